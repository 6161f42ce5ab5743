// add_rms_norm in CANN: sum = x + residual; out = the rows of sum divided by the root of their mean square, times
// scale.
#include "op_host/rms_norm_cann.h"

namespace optiling {

static npu_rope::Check tile(gert::TilingContext* context) {
    using namespace npu_rope;
    CannCall call("add_rms_norm", context);
    RmsNormAttributes a = {};
    if (Check c = read_rms_norm_attributes(&call, &a); !c.ok()) return c;
    const npu_rope_tensor *x = call.input(0), *residual = call.input(1), *scale = call.input(2);
    const npu_rope_tensor *out = call.output(0), *sum = call.output(1);
    if (Check c = call.end(); !c.ok()) return c;
    RmsNormTilingInput in;
    in.op = "add_rms_norm";
    in.adds = true;
    if (Check c = check_add_rms_norm({x, residual, scale, out, sum, Known::kLayout}, a, &in.shape); !c.ok()) return c;
    in.dtype = x->dtype;
    in.scale_dtype = scale->dtype;
    return tile_rms_norm_call(context, in, *x);
}

static ge::graphStatus NpuAddRmsNormTiling(gert::TilingContext* context) {
    return context == nullptr ? ge::GRAPH_FAILED : npu_rope::said_to_cann(tile(context));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuAddRmsNormInferShape(gert::InferShapeContext* context) {
    return npu_rope::infer_shapes_of_inputs(context, 0, 2);
}

static ge::graphStatus NpuAddRmsNormInferDataType(gert::InferDataTypeContext* context) {
    // out has scale's type, sum has x's type.
    const ge::DataType x = context->GetRequiredInputDataType(0), scale = context->GetRequiredInputDataType(2);
    if (x == ge::DT_UNDEFINED || scale == ge::DT_UNDEFINED) return ge::GRAPH_FAILED;
    const bool set = context->SetOutputDataType(0, scale) == ge::GRAPH_SUCCESS;
    return set ? context->SetOutputDataType(1, x) : ge::GRAPH_FAILED;
}

}  // namespace ge

namespace ops {

class NpuAddRmsNorm : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuAddRmsNorm(const char* name) : OpDef(name) {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16, ge::DT_BF16,
                       ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("residual")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16, ge::DT_BF16,
                       ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT,
                       ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Output("out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT,
                       ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        this->Output("sum")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16, ge::DT_BF16,
                       ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rms_norm_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("residual")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Output("out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        of_310p.Output("sum")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuAddRmsNormInferShape).SetInferDataType(ge::NpuAddRmsNormInferDataType);
        this->AICore().SetTiling(optiling::NpuAddRmsNormTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuAddRmsNorm);

}  // namespace ops
