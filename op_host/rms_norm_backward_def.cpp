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
    return context == nullptr ? ge::GRAPH_FAILED : npu_rope::report_to_cann(tile(context));
}

}  // namespace optiling

namespace ops {

class NpuRmsNormBackward : public OpDef {
public:
    explicit NpuRmsNormBackward(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16,
                         ge::DT_BF16,    ge::DT_FLOAT,   ge::DT_FLOAT,   ge::DT_FLOAT};
        const Types scale = {ge::DT_FLOAT16, ge::DT_BF16,    ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
                             ge::DT_FLOAT,   ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT};
        const Types dscale(x.size(), ge::DT_FLOAT);
        const std::vector<Parameter> parameters = {
            {"grad", kInput, scale},    {"x", kInput, x},   {"scale", kInput, scale},
            {"dscale", kInput, dscale}, {"dx", kOutput, x}, {"dscale", kOutput, dscale},
        };
        add_parameters(this, parameters);
        add_rms_norm_attributes(this);
        this->SetInferShape(shapes_of_inputs<1, 3>).SetInferDataType(types_of_inputs<1, 3>);
        this->AICore().SetTiling(optiling::NpuRmsNormBackwardTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRmsNormBackward);

}  // namespace ops
