// add_rms_norm in CANN: sum = x + residual; out = the rows of sum divided by the root of their mean square, times
// scale.
#include "op_host/rms_norm_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kAddRmsNormParameters = {
    {"x", kInput, normalized_types()}, {"residual", kInput, normalized_types()}, {"scale", kInput, scale_types()},
    {"out", kOutput, scale_types()},   {"sum", kOutput, normalized_types()},
};

static ge::graphStatus NpuAddRmsNormTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rms_norm(context, "add_rms_norm", kAddRmsNormParameters, [](const Tensors& t) {
        return add_rms_norm_tensors(t[0], t[1], t[2], t[3], t[4]);
    }));
}

}  // namespace optiling

namespace ops {

class NpuAddRmsNorm : public OpDef {
public:
    explicit NpuAddRmsNorm(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kAddRmsNormParameters, npu_rope::declare_rms_norm_attributes,
                         optiling::NpuAddRmsNormTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0, 1>).SetInferDataType(npu_rope::types_of_inputs<2, 0>);
    }
};

OP_ADD(NpuAddRmsNorm);

}  // namespace ops
