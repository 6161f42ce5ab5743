#include "op_host/rms_norm_cann.h"

#include "op_host/rms_norm_tiling.h"

namespace npu_rope {
namespace {

// A: AttributeAdder or CannCall.
template <typename A>
RmsNormAttributes rms_norm_attributes(A* a) {
    RmsNormAttributes attributes = {-1, 1e-5, 1};
    a->optional("axis", &attributes.axis);
    a->optional("epsilon", &attributes.epsilon);
    a->optional("stash_type", &attributes.stash_type);
    a->strides();
    return attributes;
}

}  // namespace

void add_rms_norm_attributes(AttributeAdder* adder) { rms_norm_attributes(adder); }

Check tile_rms_norm(gert::TilingContext* context, const char* op, const Parameters& parameters,
                    RmsNormTensors (*make)(const Tensors&)) {
    CannCall call(op, context);
    const RmsNormAttributes a = rms_norm_attributes(&call);
    Tensors given;
    if (Check c = call.tensors(parameters, &given); !c.ok()) return c;
    RmsNormTensors t = make(given);
    t.known = Known::kLayout;
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    const RmsNormTilingInput in = rms_norm_tiling_input(t, shape);
    const char* chip = platform.arch == kArch310p ? "Ascend310P" : "Ascend910B";
    if (Check c = check_rms_norm_on_chip(in, platform, chip); !c.ok()) return c;
    if (shape.rows == 0 || shape.n == 0)
        return bad_value(op, "x", "have elements on an NPU", "shape " + shape_text(t.x->shape, t.x->ndim));
    RmsNormTilingData data;
    RopeLaunch launch;
    if (Check c = rms_norm_tiling(in, platform, &data, &launch); !c.ok()) return c;
    return hand_to_cann(op, context, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
}

}  // namespace npu_rope
