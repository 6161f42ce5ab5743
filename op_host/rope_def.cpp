// rope in CANN: x [B,S,N,D] rotated by positions into out. Order and types of the arguments:
// specs/ggml_rope_acltensor.txt.
#include "op_host/rope_cann.h"

namespace optiling {

using namespace npu_rope;

static const Parameters kRopeParameters = {
    {"x", kInput, rope_types()},
    {"positions", kInput, position_types()},
    {"freq_factors", kOptionalContiguousInput, Types(6, ge::DT_FLOAT)},
    {"out", kOutput, rope_types()},
};

static ge::graphStatus NpuRopeTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rope(context, "rope", kRopeParameters,
                                    [](const Tensors& t) { return rope_tensors(t[0], t[1], t[2], t[3]); }));
}

}  // namespace optiling

namespace ops {

class NpuRope : public OpDef {
public:
    explicit NpuRope(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRopeParameters, npu_rope::declare_rope_attributes, optiling::NpuRopeTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<0>).SetInferDataType(npu_rope::types_of_inputs<0>);
    }
};

OP_ADD(NpuRope);

}  // namespace ops
