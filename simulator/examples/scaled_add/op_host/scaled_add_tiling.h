// Tiling data of ScaledAdd, for the host and, by the build, for the kernel.
#pragma once

#include "register/tilingdata_base.h"

namespace optiling {

BEGIN_TILING_DATA_DEF(ScaledAddTilingData)
TILING_DATA_FIELD_DEF(int64_t, elements);
TILING_DATA_FIELD_DEF(uint32_t, tileElements);
TILING_DATA_FIELD_DEF(float, scale);
END_TILING_DATA_DEF;

REGISTER_TILING_DATA_CLASS(ScaledAdd, ScaledAddTilingData)

struct ScaledAddCompileInfo {
    uint32_t cores = 0;
    uint64_t ubBytes = 0;
};

}  // namespace optiling
