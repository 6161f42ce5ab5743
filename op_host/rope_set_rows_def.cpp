// rope_set_rows in CANN: x rotated into rows of a cache. The cache is an input that the kernel writes; CANN
// represents it as an input and an output of the same name.
#include "op_host/rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRopeSetRowsTiling(gert::TilingContext* context) {
    return npu_rope::tile_rope(context, npu_rope::rope_set_rows_tensors(nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ops {

class NpuRopeSetRows : public OpDef {
public:
    explicit NpuRopeSetRows(const char* name) : OpDef(name) {
        using namespace npu_rope;
        // Each column of types is one compile of the kernel.
        const Types x = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT,
                         ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT};
        const Types positions = {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32,
                                 ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
        const Types rows(x.size(), ge::DT_INT64);
        const Types freq_factors(x.size(), ge::DT_FLOAT);
        const Types cache = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
                             ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16};
        const std::vector<Parameter> parameters = {
            {"x", kInput, x},         {"positions", kInput, positions},
            {"rows", kInput, rows},   {"freq_factors", kOptionalContiguousInput, freq_factors},
            {"cache", kInput, cache}, {"cache", kOutput, cache},
        };
        add_parameters(this, parameters);
        add_rope_attributes(this);
        this->SetInferShape(shapes_of_inputs<4>).SetInferDataType(types_of_inputs<4>);
        this->AICore().SetTiling(optiling::NpuRopeSetRowsTiling);
        add_chips(this, parameters);
    }
};

OP_ADD(NpuRopeSetRows);

}  // namespace ops
