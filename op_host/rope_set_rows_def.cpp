// rope_set_rows in CANN: x rotated into rows of a cache. The cache is an input that the kernel writes; CANN
// represents it as an input and an output of the same name.
#include "op_host/rope_cann.h"

namespace optiling {

using namespace npu_rope;

// The types by column. CANN compiles the kernel for each column.
static const Types kXTypes = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT,
                              ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT};
static const Types kPositionTypes = {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32,
                                     ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
static const Types kCacheTypes = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
                                  ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16};
static const Parameters kRopeSetRowsParameters = {
    {"x", kInput, kXTypes},
    {"positions", kInput, kPositionTypes},
    {"rows", kInput, Types(kXTypes.size(), ge::DT_INT64)},
    {"freq_factors", kOptionalContiguousInput, Types(kXTypes.size(), ge::DT_FLOAT)},
    {"cache", kInput, kCacheTypes},
    {"cache", kOutput, kCacheTypes},
};

static ge::graphStatus NpuRopeSetRowsTiling(gert::TilingContext* context) {
    return report_to_cann(tile_rope(context, "rope_set_rows", kRopeSetRowsParameters, [](const Tensors& t) {
        return rope_set_rows_tensors(t[0], t[1], t[2], t[3], t[4]);
    }));
}

}  // namespace optiling

namespace ops {

class NpuRopeSetRows : public OpDef {
public:
    explicit NpuRopeSetRows(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kRopeSetRowsParameters, npu_rope::declare_rope_attributes,
                         optiling::NpuRopeSetRowsTiling);
        this->SetInferShape(npu_rope::shapes_of_inputs<4>).SetInferDataType(npu_rope::types_of_inputs<4>);
    }
};

OP_ADD(NpuRopeSetRows);

}  // namespace ops
