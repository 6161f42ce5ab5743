#include "op_host/rope_cann.h"

#include "op_host/rope_tiling.h"

namespace npu_rope {

void add_rope_attributes(AttributeAdder* adder) {
    npu_rope_params params;
    bool forward = true;
    rope_attributes(adder, &params, &forward);
}

Check tile_rope(gert::TilingContext* context, const char* op, const Parameters& parameters,
                RopeTensors (*make)(const Tensors&)) {
    CannCall call(op, context);
    npu_rope_params params;
    bool forward = true;
    rope_attributes(&call, &params, &forward);
    Tensors given;
    if (Check c = call.tensors(parameters, &given); !c.ok()) return c;
    RopeTensors t = make(given);
    t.known = Known::kLayout;
    RopeShape shape;
    if (Check c = check_rope(t, &params, NPU_ROPE_ANGLE_EXACT, &shape); !c.ok()) return c;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    if (shape.empty()) return no_elements(t);
    RopeTilingData data;
    RopeLaunch launch;
    if (Check c = rope_tiling(rope_tiling_input(t, shape, params, forward), platform, &data, &launch); !c.ok())
        return c;
    return hand_to_cann(op, context, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
}

}  // namespace npu_rope
