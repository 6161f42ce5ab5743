// The tiling structs of library functions, as a kernel sees them: SoftMaxTiling, LayerNormTiling and the like.
#pragma once

#include <cstdint>

#include "ascendc/library/tiling_fields.h"

#define ASCEND_SIM_FIELD(type, name) type name = 0;
#define ASCEND_SIM_STRUCT(Name, fields) \
    struct Name {                       \
        fields(ASCEND_SIM_FIELD)        \
    };
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT
#undef ASCEND_SIM_FIELD

namespace AscendC::tiling {
#define ASCEND_SIM_STRUCT(Name, fields) using ::Name;
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT
}  // namespace AscendC::tiling
