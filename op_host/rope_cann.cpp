#include "op_host/rope_cann.h"

#include "op_host/rope_tiling.h"

namespace npu_rope {

void declare_rope_attributes(AttributeAdder* adder) {
    npu_rope_params params;
    bool forward = true;
    visit_rope_attributes(adder, &params, &forward);
}

Check tile_rope(gert::TilingContext* context, const char* op, const Parameters& parameters,
                RopeTensors (*make_tensors)(const Tensors&)) {
    CannCall call(op, context);
    npu_rope_params params;
    bool forward = true;
    visit_rope_attributes(&call, &params, &forward);
    Tensors tensors;
    if (Check c = call.tensors(parameters, &tensors); !c.ok()) return c;
    RopeTensors t = make_tensors(tensors);
    t.known = Known::kLayout;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    TilingResult<RopeTilingData> tiled;
    if (Check c = check_and_tile_rope(t, params, NPU_ROPE_ANGLE_EXACT, forward, platform, &tiled); !c.ok()) return c;
    if (!tiled.has_elements()) return empty_tensor_error(op, t.x_name[0], *t.x[0]);
    return pass_to_cann(op, context, tiled);
}

}  // namespace npu_rope
