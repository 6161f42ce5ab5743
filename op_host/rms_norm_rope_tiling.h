// The tiling of rms_norm_rope: that of rope_qk, with UB memory for the norm of each head. See also rope_tiling.h.
#pragma once

#include "csrc/core/rms_norm_rope_check.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {

// Returns the tiling's input for a call that check_rms_norm_rope has accepted. shape: the result of this check.
RopeTilingInput rms_norm_rope_tiling_input(const RmsNormRopeTensors& t, const RopeShape& shape,
                                           const npu_rope_params& params, const HeadNormAttributes& norm);

// Checks a call by the rules of the operator and of the chip, and tiles it.
Check check_and_tile_rms_norm_rope(const RmsNormRopeTensors& t, const npu_rope_params& params, int32_t angle,
                                   const HeadNormAttributes& norm, const Platform& platform,
                                   TilingResult<RmsNormRopeTilingData>* tiled);

}  // namespace npu_rope
