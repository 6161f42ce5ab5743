// rotary_mul in CANN: x [B,S,N,D] rotated into out by tables of cosines and sines, or by the rows of tables [rows,W]
// that position_ids [B,S] select.
#include "op_host/rotary_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRotaryMulParameters = {
    {"x", kInput, rotated_types()},    {"cos", kInput, table_types()},
    {"sin", kInput, table_types()},    {"position_ids", kOptionalInput, Types(5, ge::DT_INT64)},
    {"out", kOutput, rotated_types()},
};

static ge::graphStatus NpuRotaryMulTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rotary(context, "rotary_mul", kRotaryMulParameters, [](const Tensors& t) {
        return rotary_mul_tensors(t[0], t[1], t[2], t[4], t[3]);
    }));
}

}  // namespace optiling

namespace ops {

class NpuRotaryMul : public OpDef {
public:
    explicit NpuRotaryMul(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRotaryMulParameters, npu_rope::declare_rotary_attributes,
                         optiling::NpuRotaryMulTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0>).SetInferDataType(npu_rope::types_of_inputs<0>);
    }
};

OP_ADD(NpuRotaryMul);

}  // namespace ops
