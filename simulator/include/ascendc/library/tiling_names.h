// The tiling structs under the names that kernels use.
#pragma once

#include "tiling_structs.h"

#define ASCEND_SIM_STRUCT(Name, fields) using AscendC::tiling::Name;
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT
