#include "op_host/rms_norm_rope_tiling.h"

namespace npu_rope {

RopeTilingInput rms_norm_rope_tiling_input(const RmsNormRopeTensors& t, const RopeShape& shape,
                                           const npu_rope_params& params, const HeadNorm& norm) {
    RopeTilingInput in = rope_tiling_input(t.rope, shape, params, true);
    in.norm.epsilon = static_cast<float>(norm.epsilon);
    in.norm.rounds = norm.rounds;
    return in;
}

}  // namespace npu_rope
