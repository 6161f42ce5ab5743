// rms_norm_backward in CANN: the gradients of rms_norm. dscale is an input that the kernel writes: it holds zeros, to
// which the kernel adds float32 sums. CANN represents it as an input and an output of the same name.
#include "op_host/rms_norm_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRmsNormBackwardParameters = {
    {"grad", kInput, scale_types()},     {"x", kInput, normalized_types()},
    {"scale", kInput, scale_types()},    {"dscale", kInput, Types(9, ge::DT_FLOAT)},
    {"dx", kOutput, normalized_types()}, {"dscale", kOutput, Types(9, ge::DT_FLOAT)},
};

static ge::graphStatus NpuRmsNormBackwardTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rms_norm(context, "rms_norm_backward", kRmsNormBackwardParameters, [](const Tensors& t) {
        return rms_norm_backward_tensors(t[0], t[1], t[2], t[4], t[3], /*adds_to_float32_dscale=*/true);
    }));
}

}  // namespace optiling

namespace ops {

class NpuRmsNormBackward : public OpDef {
public:
    explicit NpuRmsNormBackward(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRmsNormBackwardParameters, npu_rope::declare_rms_norm_attributes,
                         optiling::NpuRmsNormBackwardTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<1, 3>).SetInferDataType(npu_rope::types_of_inputs<1, 3>);
    }
};

OP_ADD(NpuRmsNormBackward);

}  // namespace ops
