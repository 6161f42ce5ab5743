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

static ge::graphStatus NpuRmsNormRopeInferDataType(gert::InferDataTypeContext* context) {
    return npu_rope::infer_types_of_inputs(context, 0, 2);
}

}  // namespace ge

namespace ops {

class NpuRmsNormRope : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRmsNormRope(const char* name) : OpDef(name) {
        this->Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("k")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("q_scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        this->Input("k_scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        this->Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("rows")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        this->Input("cache")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        this->Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rms_norm_rope_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("k")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("q_scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        of_310p.Input("k_scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        of_310p.Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("rows")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        of_310p.Input("cache")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        of_310p.Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRmsNormRopeInferShape).SetInferDataType(ge::NpuRmsNormRopeInferDataType);
        this->AICore().SetTiling(optiling::NpuRmsNormRopeTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRmsNormRope);

}  // namespace ops
