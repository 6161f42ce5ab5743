// The tiling structs of library functions as a kernel sees them, such as SoftMaxTiling and LayerNormTiling. They are
// plain C++, because the host's functions also use them. The headers that both use include each other by file name,
// without a folder.
#pragma once

#include <cstdint>

#include "tiling_fields.h"

#define ASCEND_SIM_FIELD(type, name) type name = 0;
#define ASCEND_SIM_STRUCT(Name, fields) \
    struct Name {                       \
        fields(ASCEND_SIM_FIELD)        \
    };
namespace AscendC::tiling {
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
}  // namespace AscendC::tiling
#undef ASCEND_SIM_STRUCT
#undef ASCEND_SIM_FIELD

namespace ascend_sim {
using namespace AscendC::tiling;
}  // namespace ascend_sim
