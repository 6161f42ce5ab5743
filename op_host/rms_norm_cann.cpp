#include "op_host/rms_norm_cann.h"

#include "op_host/rms_norm_tiling.h"

namespace npu_rope {
namespace {

// Lists the attributes. Returns their defaults if A is AttributeAdder, the values of the call if A is CannCall.
template <typename A>
RmsNormAttributes rms_norm_attributes(A* visitor) {
    RmsNormAttributes attributes = {-1, 1e-5, 1};
    visitor->optional("axis", &attributes.axis);
    visitor->optional("epsilon", &attributes.epsilon);
    visitor->optional("stash_type", &attributes.stash_type);
    visitor->strides();
    return attributes;
}

}  // namespace

void declare_rms_norm_attributes(AttributeAdder* adder) { rms_norm_attributes(adder); }

Check tile_rms_norm(gert::TilingContext* context, const char* op, const Parameters& parameters,
                    RmsNormTensors (*make_tensors)(const Tensors&)) {
    CannCall call(op, context);
    const RmsNormAttributes a = rms_norm_attributes(&call);
    Tensors tensors;
    if (Check c = call.tensors(parameters, &tensors); !c.ok()) return c;
    RmsNormTensors t = make_tensors(tensors);
    t.known = Known::kLayout;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    TilingResult<RmsNormTilingData> tiled;
    const bool deterministic = context->GetDeterministic() != 0;
    if (Check c = check_and_tile_rms_norm(t, a, platform, &tiled, deterministic); !c.ok()) return c;
    if (!tiled.has_elements()) return empty_tensor_error(op, "x", *t.x);
    return pass_to_cann(op, context, tiled);
}

}  // namespace npu_rope
