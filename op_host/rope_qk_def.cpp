// rope_qk in CANN: queries and keys rotated by the same positions in one launch.
#include "op_host/rope_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRopeQkParameters = {
    {"q", kInput, rope_types()},
    {"k", kInput, rope_types()},
    {"positions", kInput, position_types()},
    {"freq_factors", kOptionalContiguousInput, Types(6, ge::DT_FLOAT)},
    {"q_out", kOutput, rope_types()},
    {"k_out", kOutput, rope_types()},
};

static ge::graphStatus NpuRopeQkTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rope(context, "rope_qk", kRopeQkParameters, [](const Tensors& t) {
        return rope_qk_tensors(t[0], t[1], t[2], t[3], t[4], t[5]);
    }));
}

}  // namespace optiling

namespace ops {

class NpuRopeQk : public OpDef {
public:
    explicit NpuRopeQk(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRopeQkParameters, npu_rope::declare_rope_attributes,
                         optiling::NpuRopeQkTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0, 1>).SetInferDataType(npu_rope::types_of_inputs<0, 1>);
    }
};

OP_ADD(NpuRopeQk);

}  // namespace ops
