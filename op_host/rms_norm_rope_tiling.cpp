// Tile rms_norm_rope: check the call, convert it to the input of rope's tiling, and add the norm's attributes.
#include "op_host/rms_norm_rope_tiling.h"

namespace npu_rope {

RopeTilingInput rms_norm_rope_tiling_input(const RmsNormRopeTensors& t, const RopeShape& shape,
                                           const npu_rope_params& params, const HeadNormAttributes& norm) {
    RopeTilingInput in = rope_tiling_input(t.rope, shape, params, true);
    in.norm.epsilon = static_cast<float>(norm.epsilon);
    in.norm.intermediate_rounding = norm.intermediate_rounding;
    return in;
}

Check check_and_tile_rms_norm_rope(const RmsNormRopeTensors& t, const npu_rope_params& params, int32_t angle,
                                   const HeadNormAttributes& norm, const Platform& platform,
                                   TilingResult<RmsNormRopeTilingData>* tiled) {
    RopeShape shape;
    if (Check c = check_rms_norm_rope(t, &params, norm.epsilon, angle, &shape); !c.ok()) return c;
    if (Check c = check_device_angle(t.rope.op, angle); !c.ok()) return c;
    const RopeTilingInput in = rms_norm_rope_tiling_input(t, shape, params, norm);
    return rms_norm_rope_tiling(in, platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
