// The chip of the call whose tiling runs on this thread, as long as an object of this class exists.
#pragma once

#include "src/profile.h"

namespace simulated_cann {

class TiledChip {
public:
    explicit TiledChip(const ascend_sim::Profile* profile);
    ~TiledChip();
    TiledChip(const TiledChip&) = delete;
    TiledChip& operator=(const TiledChip&) = delete;

private:
    const ascend_sim::Profile* before_;
};

}  // namespace simulated_cann
