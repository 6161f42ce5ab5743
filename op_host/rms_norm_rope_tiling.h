// The tiling of rms_norm_rope: rope_qk's, with room for each head's norm. What rope_tiling.h says of the rest
// holds here.
#pragma once

#include "op_host/rms_norm_rope_check.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {

// A call that check_rms_norm_rope has accepted, of which it found this shape.
RopeTilingInput rms_norm_rope_tiling_input(const RmsNormRopeTensors& t, const RopeShape& shape,
                                           const npu_rope_params& params, const HeadNorm& norm);

}  // namespace npu_rope
