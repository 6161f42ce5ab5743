// rms_norm in CANN: rows of x divided by the root of their mean square, times scale, in scale's type.
#include "op_host/rms_norm_cann.h"

namespace optiling {

static npu_rope::Check tile(gert::TilingContext* context) {
    using namespace npu_rope;
    CannCall call("rms_norm", context);
    RmsNormAttributes a = {};
    if (Check c = read_rms_norm_attributes(&call, &a); !c.ok()) return c;
    const npu_rope_tensor *x = call.input(0), *scale = call.input(1), *out = call.output(0);
    if (Check c = call.end(); !c.ok()) return c;
    RmsNormTilingInput in;
    if (Check c = check_rms_norm({x, scale, out, Known::kLayout}, a, &in.shape); !c.ok()) return c;
    in.dtype = x->dtype;
    in.scale_dtype = scale->dtype;
    return tile_rms_norm_call(context, in, *x);
}

static ge::graphStatus NpuRmsNormTiling(gert::TilingContext* context) {
    return context == nullptr ? ge::GRAPH_FAILED : npu_rope::report_to_cann(tile(context));
}

}  // namespace optiling

namespace ops {

class NpuRmsNorm : public OpDef {
public:
    explicit NpuRmsNorm(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16,
                         ge::DT_BF16,    ge::DT_FLOAT,   ge::DT_FLOAT,   ge::DT_FLOAT};
        const Types scale = {ge::DT_FLOAT16, ge::DT_BF16,    ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
                             ge::DT_FLOAT,   ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT};
        const std::vector<Parameter> parameters = {
            {"x", kInput, x},
            {"scale", kInput, scale},
            {"out", kOutput, scale},
        };
        add_parameters(this, parameters);
        add_rms_norm_attributes(this);
        this->SetInferShape(shapes_of_inputs<0>).SetInferDataType(types_of_inputs<1>);
        this->AICore().SetTiling(optiling::NpuRmsNormTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRmsNorm);

}  // namespace ops
