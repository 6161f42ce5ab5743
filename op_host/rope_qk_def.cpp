// rope_qk in CANN: queries and keys rotated by the same positions in one launch.
#include "op_host/rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRopeQkTiling(gert::TilingContext* context) {
    return npu_rope::tile_rope(context,
                               npu_rope::rope_qk_tensors(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ops {

class NpuRopeQk : public OpDef {
public:
    explicit NpuRopeQk(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};
        const Types positions = {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
        const Types freq_factors(x.size(), ge::DT_FLOAT);
        const std::vector<Parameter> parameters = {
            {"q", kInput, x},
            {"k", kInput, x},
            {"positions", kInput, positions},
            {"freq_factors", kOptionalContiguousInput, freq_factors},
            {"q_out", kOutput, x},
            {"k_out", kOutput, x},
        };
        add_parameters(this, parameters);
        add_rope_attributes(this);
        this->SetInferShape(shapes_of_inputs<0, 1>).SetInferDataType(types_of_inputs<0, 1>);
        this->AICore().SetTiling(optiling::NpuRopeQkTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRopeQk);

}  // namespace ops
