// rotary_mul_qk in CANN: queries and keys rotated by the same tables in one launch.
#include "op_host/rotary_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRotaryMulQkParameters = {
    {"q", kInput, rotated_types()}, {"k", kInput, rotated_types()},      {"cos", kInput, table_types()},
    {"sin", kInput, table_types()}, {"q_out", kOutput, rotated_types()}, {"k_out", kOutput, rotated_types()},
};

static ge::graphStatus NpuRotaryMulQkTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rotary(context, "rotary_mul_qk", kRotaryMulQkParameters, [](const Tensors& t) {
        return rotary_mul_qk_tensors(t[0], t[1], t[2], t[3], t[4], t[5]);
    }));
}

}  // namespace optiling

namespace ops {

class NpuRotaryMulQk : public OpDef {
public:
    explicit NpuRotaryMulQk(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRotaryMulQkParameters, npu_rope::declare_rotary_attributes,
                         optiling::NpuRotaryMulQkTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0, 1>).SetInferDataType(npu_rope::types_of_inputs<0, 1>);
    }
};

OP_ADD(NpuRotaryMulQk);

}  // namespace ops
