#include "op_host/rotary_cann.h"

#include "op_host/rotary_tiling.h"

namespace npu_rope {
namespace {

// Lists the attributes. A: AttributeAdder or CannCall.
template <typename A>
void rotary_attributes(A* a, RotaryAttributes* attributes, bool* forward) {
    a->optional("interleaved", &attributes->interleaved);
    a->optional("rotary_dim", &attributes->rotary_dim);
    a->optional("offset", &attributes->offset);
    a->optional("forward", forward);
    a->strides();
}

}  // namespace

void declare_rotary_attributes(AttributeAdder* adder) {
    RotaryAttributes a = {};
    bool forward = true;
    rotary_attributes(adder, &a, &forward);
}

Check tile_rotary(gert::TilingContext* context, const char* op, const Parameters& parameters,
                  RotaryTensors (*make_tensors)(const Tensors&)) {
    CannCall call(op, context);
    RotaryAttributes a = {};
    bool forward = true;
    rotary_attributes(&call, &a, &forward);
    Tensors tensors;
    if (Check c = call.tensors(parameters, &tensors); !c.ok()) return c;
    RotaryTensors t = make_tensors(tensors);
    t.known = Known::kLayout;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    RotaryShape shape;
    TilingResult<RotaryTilingData> tiled;
    if (Check c = check_and_tile_rotary(t, a, forward, platform, &shape, &tiled); !c.ok()) return c;
    if (!tiled.has_elements()) return empty_tensor_error(op, t.x_name[0], *t.x[0]);
    return pass_to_cann(op, context, tiled);
}

}  // namespace npu_rope
