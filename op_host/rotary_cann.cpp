#include "op_host/rotary_cann.h"

#include "op_host/rope_cann.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {
namespace {

// Indices of the attributes that add_rotary_attributes adds.
enum Attribute : size_t { kInterleaved, kRotaryDim, kOffset, kForward, kStrides };

Check read_tensors(CannCall* call, RotaryTensors* t) {
    t->known = Known::kLayout;
    size_t input = 0;
    for (int k = 0; k < t->sides; ++k) t->x[k] = call->input(input++);
    t->cos = call->input(input++);
    t->sin = call->input(input++);
    if (t->sides == 1) t->position_ids = call->optional_view(input++);
    for (int k = 0; k < t->sides; ++k) t->out[k] = call->output(static_cast<size_t>(k));
    return call->end();
}

Check tile(gert::TilingContext* context, RotaryTensors t) {
    CannCall call(t.op, context);
    if (Check c = call.begin(kStrides); !c.ok()) return c;
    RotaryAttributes a = {};
    bool forward = true;
    if (Check c = call.read(kInterleaved, "interleaved", &a.interleaved); !c.ok()) return c;
    if (Check c = call.read(kRotaryDim, "rotary_dim", &a.rotary_dim); !c.ok()) return c;
    if (Check c = call.read(kOffset, "offset", &a.offset); !c.ok()) return c;
    if (Check c = call.read(kForward, "forward", &forward); !c.ok()) return c;
    if (Check c = read_tensors(&call, &t); !c.ok()) return c;
    RotaryShape shape;
    if (Check c = check_rotary(t, a, &shape); !c.ok()) return c;
    Platform platform = {};
    if (Check c = platform_from_cann(t.op, *context, &platform); !c.ok()) return c;
    if (shape.rows.empty()) return no_elements(t);
    RotaryTilingData data;
    RopeLaunch launch;
    if (Check c = rotary_tiling(rotary_tiling_input(t, a, shape, forward), platform, &data, &launch); !c.ok()) return c;
    return hand_to_cann(t.op, context, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
}

}  // namespace

void add_rotary_attributes(ops::OpDef* def) {
    def->Attr("interleaved").AttrType(ops::OPTIONAL).Bool(false);
    def->Attr("rotary_dim").AttrType(ops::OPTIONAL).Int(0);
    def->Attr("offset").AttrType(ops::OPTIONAL).Int(0);
    def->Attr("forward").AttrType(ops::OPTIONAL).Bool(true);
    add_strides_attribute(def);
}

ge::graphStatus tile_rotary(gert::TilingContext* context, RotaryTensors tensors) {
    return context == nullptr ? ge::GRAPH_FAILED : report_to_cann(tile(context, tensors));
}

}  // namespace npu_rope
