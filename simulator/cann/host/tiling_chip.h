// Scope of a tiling: while an object of this class exists, PlatformAscendCManager on this thread returns its chip.
#pragma once

#include "src/profile.h"

namespace simulated_cann {

class TilingChipScope {
public:
    explicit TilingChipScope(const ascend_sim::Profile* profile);
    ~TilingChipScope();
    TilingChipScope(const TilingChipScope&) = delete;
    TilingChipScope& operator=(const TilingChipScope&) = delete;

private:
    const ascend_sim::Profile* previous_;
};

}  // namespace simulated_cann
