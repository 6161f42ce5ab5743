// rope_set_rows in CANN: x rotated into rows of a cache. The cache is an input that the kernel writes; CANN
// represents it as an input and an output of the same name.
#include "op_host/rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRopeSetRowsTiling(gert::TilingContext* context) {
    return npu_rope::tile_rope(context, npu_rope::rope_set_rows_tensors(nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRopeSetRowsInferShape(gert::InferShapeContext* context) {
    return npu_rope::infer_shapes_of_inputs(context, 4, 1);
}

static ge::graphStatus NpuRopeSetRowsInferDataType(gert::InferDataTypeContext* context) {
    return npu_rope::infer_types_of_inputs(context, 4, 1);
}

}  // namespace ge

namespace ops {

class NpuRopeSetRows : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRopeSetRows(const char* name) : OpDef(name) {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT16,
                       ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64,
                       ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("rows")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64,
                       ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT,
                       ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        this->Input("cache")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT16,
                       ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Output("cache")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT16,
                       ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rope_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("rows")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        of_310p.Input("cache")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Output("cache")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRopeSetRowsInferShape).SetInferDataType(ge::NpuRopeSetRowsInferDataType);
        this->AICore().SetTiling(optiling::NpuRopeSetRowsTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRopeSetRows);

}  // namespace ops
