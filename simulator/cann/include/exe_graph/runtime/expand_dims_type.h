// The rule by which a shape gets more dimensions for a format. The simulated calls have no such rule.
#pragma once

#include "exe_graph/runtime/shape.h"
#include "graph/types.h"

namespace gert {

class ExpandDimsType {
public:
    ExpandDimsType() = default;
    bool operator==(const ExpandDimsType&) const { return true; }
    uint64_t GetFullSize() const { return 0; }
};

}  // namespace gert
