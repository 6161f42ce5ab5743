// The tiling of qkv_norm_rope_cache: that of rope for three sides, with norms and outputs of other types. See also
// rope_tiling.h.
#pragma once

#include "csrc/core/qkv_norm_rope_cache_check.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {

// Checks a call by the rules of the operator and of the chip, and tiles it.
Check check_and_tile_qkv_norm_rope_cache(const QkvTensors& t, const npu_rope_params& params,
                                         const QkvAttributes& attributes, const Platform& platform,
                                         TilingResult<QkvNormRopeCacheTilingData>* tiled);

}  // namespace npu_rope
