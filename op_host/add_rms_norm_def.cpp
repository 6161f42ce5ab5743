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
    return context == nullptr ? ge::GRAPH_FAILED : npu_rope::report_to_cann(tile(context));
}

}  // namespace optiling

namespace ops {

class NpuAddRmsNorm : public OpDef {
public:
    explicit NpuAddRmsNorm(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16,
                         ge::DT_BF16,    ge::DT_FLOAT,   ge::DT_FLOAT,   ge::DT_FLOAT};
        const Types scale = {ge::DT_FLOAT16, ge::DT_BF16,    ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
                             ge::DT_FLOAT,   ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT};
        const std::vector<Parameter> parameters = {
            {"x", kInput, x},        {"residual", kInput, x}, {"scale", kInput, scale},
            {"out", kOutput, scale}, {"sum", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rms_norm_attributes(this);
        this->SetInferShape(shapes_of_inputs<0, 1>).SetInferDataType(types_of_inputs<2, 0>);
        this->AICore().SetTiling(optiling::NpuAddRmsNormTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuAddRmsNorm);

}  // namespace ops
