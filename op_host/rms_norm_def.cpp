// rms_norm in CANN: rows of x divided by the root of their mean square, times scale, in scale's type.
#include "op_host/rms_norm_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRmsNormParameters = {
    {"x", kInput, normalized_types()},
    {"scale", kInput, scale_types()},
    {"out", kOutput, scale_types()},
};

static ge::graphStatus NpuRmsNormTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rms_norm(context, "rms_norm", kRmsNormParameters,
                                        [](const Tensors& t) { return rms_norm_tensors(t[0], t[1], t[2]); }));
}

}  // namespace optiling

namespace ops {

class NpuRmsNorm : public OpDef {
public:
    explicit NpuRmsNorm(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRmsNormParameters, npu_rope::declare_rms_norm_attributes,
                         optiling::NpuRmsNormTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0>).SetInferDataType(npu_rope::types_of_inputs<1>);
    }
};

OP_ADD(NpuRmsNorm);

}  // namespace ops
