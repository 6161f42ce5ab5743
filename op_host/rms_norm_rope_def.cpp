// rms_norm_rope in CANN: heads of queries and keys normalized, scaled and rotated in one launch. With `rows` and
// `cache`, the keys are stored into those rows of the cache, and k_out is the cache.
#include "op_host/rms_norm_rope_tiling.h"
#include "op_host/rope_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRmsNormRopeParameters = {
    {"q", kInput, rope_types()},
    {"k", kInput, rope_types()},
    {"q_scale", kContiguousInput, rope_types()},
    {"k_scale", kContiguousInput, rope_types()},
    {"positions", kInput, position_types()},
    {"rows", kOptionalInput, Types(6, ge::DT_INT64)},
    {"freq_factors", kOptionalContiguousInput, Types(6, ge::DT_FLOAT)},
    {"cache", kOptionalInput, rope_types()},
    {"q_out", kOutput, rope_types()},
    {"k_out", kOutput, rope_types()},
};

// Lists rope's attributes, then those of the norm. A: AttributeAdder or CannCall.
template <typename A>
static void attributes(A* a, npu_rope_params* params, bool* forward, HeadNormAttributes* norm) {
    visit_rope_attributes(a, params, forward);
    *norm = {1e-5, false};
    a->optional("epsilon", &norm->epsilon);
    a->optional("intermediate_rounding", &norm->intermediate_rounding);
}

static void declare_attributes(AttributeAdder* adder) {
    npu_rope_params params;
    bool forward = true;
    HeadNormAttributes norm;
    attributes(adder, &params, &forward, &norm);
}

static Check tile(gert::TilingContext* context) {
    constexpr const char* op = "rms_norm_rope";
    CannCall call(op, context);
    npu_rope_params params;
    bool forward = true;
    HeadNormAttributes norm;
    attributes(&call, &params, &forward, &norm);
    Tensors v;
    const Check read = call.tensors(kRmsNormRopeParameters, &v);
    if (v.size() == kRmsNormRopeParameters.size() && (v[5] == nullptr) != (v[7] == nullptr))
        return bad_value(op, "cache", "be given with rows", "one of the two");
    if (!read.ok()) return read;
    if (!forward) return bad_value(op, "forward", "be true", "false");
    const npu_rope_tensor *rows = v[5], *cache = v[7];
    RmsNormRopeTensors t = cache ? rms_norm_rope_set_rows_tensors(v[0], v[1], v[2], v[3], v[4], rows, v[6], v[8], v[9])
                                 : rms_norm_rope_tensors(v[0], v[1], v[2], v[3], v[4], v[6], v[8], v[9]);
    t.rope.known = Known::kLayout;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    TilingResult<RmsNormRopeTilingData> tiled;
    const Check check = check_and_tile_rms_norm_rope(t, params, NPU_ROPE_ANGLE_EXACT, norm, platform, &tiled);
    if (!check.ok()) return check;
    if (!tiled.has_elements()) return empty_tensor_error(op, t.rope.x_name[0], *t.rope.x[0]);
    return pass_to_cann(op, context, tiled);
}

static ge::graphStatus NpuRmsNormRopeTiling(gert::TilingContext* context) { return report_to_cann(tile(context)); }

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRmsNormRopeInferShape(gert::InferShapeContext* context) {
    constexpr size_t kK = 1, kCache = 7;
    const gert::Shape *q = context->GetRequiredInputShape(0), *cache = context->GetOptionalInputShape(kCache);
    const gert::Shape* k = cache != nullptr ? cache : context->GetRequiredInputShape(kK);
    gert::Shape *q_out = context->GetOutputShape(0), *k_out = context->GetOutputShape(1);
    if (q == nullptr || k == nullptr || q_out == nullptr || k_out == nullptr) return ge::GRAPH_FAILED;
    *q_out = *q;
    *k_out = *k;
    return ge::GRAPH_SUCCESS;
}

}  // namespace ge

namespace ops {

class NpuRmsNormRope : public OpDef {
public:
    explicit NpuRmsNormRope(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRmsNormRopeParameters, optiling::declare_attributes,
                         optiling::NpuRmsNormRopeTiling);
        this->SetInferShape(ge::NpuRmsNormRopeInferShape).SetInferDataType(npu_rope::types_of_inputs<0, 1>);
    }
};

OP_ADD(NpuRmsNormRope);

}  // namespace ops
