// rms_norm_backward in CANN: the gradients of rms_norm. dscale is an input that the kernel writes: it holds zeros, to
// which the kernel adds float32 sums. CANN represents it as an input and an output of the same name.
#include "op_host/rms_norm_cann.h"

namespace optiling {

static npu_rope::Check tile(gert::TilingContext* context) {
    using namespace npu_rope;
    CannCall call("rms_norm_backward", context);
    RmsNormAttributes a = {};
    if (Check c = read_rms_norm_attributes(&call, &a); !c.ok()) return c;
    const npu_rope_tensor *grad = call.input(0), *x = call.input(1), *scale = call.input(2), *dscale = call.input(3);
    const npu_rope_tensor* dx = call.output(0);
    if (Check c = call.end(); !c.ok()) return c;
    RmsNormTilingInput in;
    in.op = "rms_norm_backward";
    in.backward = true;
    if (Check c = check_rms_norm_backward_sums({grad, x, scale, dx, dscale, Known::kLayout}, a, &in.shape); !c.ok())
        return c;
    in.dtype = x->dtype;
    in.scale_dtype = scale->dtype;
    return tile_rms_norm_call(context, in, *x);
}

static ge::graphStatus NpuRmsNormBackwardTiling(gert::TilingContext* context) {
    return context == nullptr ? ge::GRAPH_FAILED : npu_rope::said_to_cann(tile(context));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRmsNormBackwardInferShape(gert::InferShapeContext* context) {
    const gert::Shape *x = context->GetRequiredInputShape(1), *dscale = context->GetRequiredInputShape(3);
    gert::Shape *dx = context->GetOutputShape(0), *dscale_out = context->GetOutputShape(1);
    if (x == nullptr || dscale == nullptr || dx == nullptr || dscale_out == nullptr) return ge::GRAPH_FAILED;
    *dx = *x;
    *dscale_out = *dscale;
    return ge::GRAPH_SUCCESS;
}

static ge::graphStatus NpuRmsNormBackwardInferDataType(gert::InferDataTypeContext* context) {
    const ge::DataType x = context->GetRequiredInputDataType(1), dscale = context->GetRequiredInputDataType(3);
    if (x == ge::DT_UNDEFINED || dscale == ge::DT_UNDEFINED) return ge::GRAPH_FAILED;
    const bool set = context->SetOutputDataType(0, x) == ge::GRAPH_SUCCESS;
    return set ? context->SetOutputDataType(1, dscale) : ge::GRAPH_FAILED;
}

}  // namespace ge

namespace ops {

class NpuRmsNormBackward : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRmsNormBackward(const char* name) : OpDef(name) {
        this->Input("grad")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT,
                       ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("x")
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
        this->Input("dscale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT,
                       ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Output("dx")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16, ge::DT_BF16,
                       ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        this->Output("dscale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT,
                       ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rms_norm_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("grad")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("scale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("dscale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Output("dx")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        of_310p.Output("dscale")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRmsNormBackwardInferShape).SetInferDataType(ge::NpuRmsNormBackwardInferDataType);
        this->AICore().SetTiling(optiling::NpuRmsNormBackwardTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRmsNormBackward);

}  // namespace ops
