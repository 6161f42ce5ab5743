// rotary_mul in CANN: x [B,S,N,D] rotated into out by tables of cosines and sines, or by the rows of tables [rows,W]
// that position_ids [B,S] select.
#include "op_host/rotary_cann.h"

namespace optiling {

static ge::graphStatus NpuRotaryMulTiling(gert::TilingContext* context) {
    return npu_rope::tile_rotary(context, npu_rope::rotary_mul_tensors(nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ops {

class NpuRotaryMul : public OpDef {
public:
    explicit NpuRotaryMul(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16};
        const Types table = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT};
        const Types position_ids(x.size(), ge::DT_INT64);
        const std::vector<Parameter> parameters = {
            {"x", kInput, x},       {"cos", kInput, table},
            {"sin", kInput, table}, {"position_ids", kOptionalInput, position_ids},
            {"out", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rotary_attributes(this);
        this->SetInferShape(shapes_of_inputs<0>).SetInferDataType(types_of_inputs<0>);
        this->AICore().SetTiling(optiling::NpuRotaryMulTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRotaryMul);

}  // namespace ops
