// rms_norm_rope in CANN: heads of queries and keys normalized, scaled and rotated in one launch. With `rows` and
// `cache`, keys are stored into these rows of the cache, and k_out is the cache itself.
#include "op_host/rms_norm_rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRmsNormRopeTiling(gert::TilingContext* context) {
    return npu_rope::tile_rms_norm_rope(context);
}

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
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};
        const Types positions = {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
        const Types rows(x.size(), ge::DT_INT64);
        const Types freq_factors(x.size(), ge::DT_FLOAT);
        const std::vector<Parameter> parameters = {
            {"q", kInput, x},
            {"k", kInput, x},
            {"q_scale", kContiguousInput, x},
            {"k_scale", kContiguousInput, x},
            {"positions", kInput, positions},
            {"rows", kOptionalInput, rows},
            {"freq_factors", kOptionalContiguousInput, freq_factors},
            {"cache", kOptionalInput, x},
            {"q_out", kOutput, x},
            {"k_out", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rms_norm_rope_attributes(this);
        this->SetInferShape(ge::NpuRmsNormRopeInferShape).SetInferDataType(types_of_inputs<0, 1>);
        this->AICore().SetTiling(optiling::NpuRmsNormRopeTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRmsNormRope);

}  // namespace ops
