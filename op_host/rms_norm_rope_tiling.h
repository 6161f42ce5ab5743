// The tiling of rms_norm_rope: rope_qk's tiling with room for each head's norm. See rope_tiling.h for the rest.
#pragma once

#include "csrc/core/rms_norm_rope_check.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {

// The tiling's input for a call that check_rms_norm_rope has accepted; shape: as that check filled it.
inline RopeTilingInput rms_norm_rope_tiling_input(const RmsNormRopeTensors& t, const RopeShape& shape,
                                                  const npu_rope_params& params, const HeadNorm& norm) {
    RopeTilingInput in = rope_tiling_input(t.rope, shape, params, true);
    in.norm.epsilon = static_cast<float>(norm.epsilon);
    in.norm.intermediate_rounding = norm.intermediate_rounding;
    return in;
}

}  // namespace npu_rope
