// rope in CANN: x [B,S,N,D] rotated by positions into out. Order and types of the arguments:
// specs/ggml_rope_acltensor.txt.
#include "op_host/rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRopeTiling(gert::TilingContext* context) {
    return npu_rope::tile_rope(context, npu_rope::rope_tensors(nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ops {

class NpuRope : public OpDef {
public:
    explicit NpuRope(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};
        const Types positions = {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
        const Types freq_factors(x.size(), ge::DT_FLOAT);
        const std::vector<Parameter> parameters = {
            {"x", kInput, x},
            {"positions", kInput, positions},
            {"freq_factors", kOptionalContiguousInput, freq_factors},
            {"out", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rope_attributes(this);
        this->SetInferShape(shapes_of_inputs<0>).SetInferDataType(types_of_inputs<0>);
        this->AICore().SetTiling(optiling::NpuRopeTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRope);

}  // namespace ops
