// rotary_mul_qk in CANN: queries and keys rotated by the same tables in one launch.
#include "op_host/rotary_cann.h"

namespace optiling {

static ge::graphStatus NpuRotaryMulQkTiling(gert::TilingContext* context) {
    return npu_rope::tile_rotary(context,
                                 npu_rope::rotary_mul_qk_tensors(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ops {

class NpuRotaryMulQk : public OpDef {
public:
    explicit NpuRotaryMulQk(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16};
        const Types table = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT};
        const std::vector<Parameter> parameters = {
            {"q", kInput, x},       {"k", kInput, x},      {"cos", kInput, table},
            {"sin", kInput, table}, {"q_out", kOutput, x}, {"k_out", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rotary_attributes(this);
        this->SetInferShape(shapes_of_inputs<0, 1>).SetInferDataType(types_of_inputs<0, 1>);
        this->AICore().SetTiling(optiling::NpuRotaryMulQkTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRotaryMulQk);

}  // namespace ops
