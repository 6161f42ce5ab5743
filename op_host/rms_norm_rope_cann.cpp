#include "op_host/rms_norm_rope_cann.h"

#include "op_host/rms_norm_rope_tiling.h"

namespace npu_rope {
namespace {

constexpr const char* kOp = "rms_norm_rope";

enum OwnAttribute : size_t { kEpsilon = kRopeAttributes, kIntermediateRounding };

// Reads the tensors in the definition's order. If the call has a cache, k_out is the
// cache and follows its rules.
Check read_tensors(CannCall* call, RmsNormRopeTensors* t) {
    const npu_rope_tensor *q = call->input(0), *k = call->input(1);
    const npu_rope_tensor *q_scale = call->contiguous_input(2), *k_scale = call->contiguous_input(3);
    const npu_rope_tensor *positions = call->input(4), *rows = call->optional_view(5);
    const npu_rope_tensor *factors = call->optional_contiguous(6), *cache = call->optional_view(7);
    const npu_rope_tensor *q_out = call->output(0), *k_out = call->output(1);
    if ((rows == nullptr) != (cache == nullptr)) return bad_value(kOp, "cache", "be given with rows", "one of the two");
    if (cache == nullptr)
        *t = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, factors, q_out, k_out);
    else
        *t = rms_norm_rope_set_rows_tensors(q, k, q_scale, k_scale, positions, rows, factors, q_out, k_out);
    t->rope.known = Known::kLayout;
    return call->end();
}

Check tile(gert::TilingContext* context) {
    CannCall call(kOp, context);
    if (Check c = call.begin(kStrides); !c.ok()) return c;
    npu_rope_params params = {};
    bool forward = true;
    HeadNorm norm;
    if (Check c = read_rope_attributes(call, kOp, &params, &forward); !c.ok()) return c;
    if (!forward) return bad_value(kOp, "forward", "be true", "false");
    if (Check c = call.read(kEpsilon, "epsilon", &norm.epsilon); !c.ok()) return c;
    if (Check c = call.read(kIntermediateRounding, "intermediate_rounding", &norm.rounds); !c.ok()) return c;
    RmsNormRopeTensors t = {};
    if (Check c = read_tensors(&call, &t); !c.ok()) return c;
    RopeShape shape;
    if (Check c = check_rms_norm_rope(t, &params, norm.epsilon, NPU_ROPE_ANGLE_EXACT, &shape); !c.ok()) return c;
    Platform platform = {};
    if (Check c = platform_from_cann(kOp, *context, &platform); !c.ok()) return c;
    if (shape.empty()) return no_elements(t.rope);
    RmsNormRopeTilingData data;
    RopeLaunch launch;
    if (Check c = rms_norm_rope_tiling(rms_norm_rope_tiling_input(t, shape, params, norm), platform, &data, &launch);
        !c.ok())
        return c;
    return hand_to_cann(kOp, context, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
}

}  // namespace

void add_rms_norm_rope_attributes(ops::OpDef* def) {
    add_rope_attributes(def);
    def->Attr("epsilon").AttrType(ops::OPTIONAL).Float(1e-5f);
    def->Attr("intermediate_rounding").AttrType(ops::OPTIONAL).Bool(false);
}

ge::graphStatus tile_rms_norm_rope(gert::TilingContext* context) {
    return context == nullptr ? ge::GRAPH_FAILED : report_to_cann(tile(context));
}

}  // namespace npu_rope
