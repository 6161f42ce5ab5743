// rope_qk in CANN: queries and keys rotated by the same positions in one launch.
#include "op_host/rope_cann.h"

namespace optiling {

static ge::graphStatus NpuRopeQkTiling(gert::TilingContext* context) {
    return npu_rope::tile_rope(context,
                               npu_rope::rope_qk_tensors(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRopeQkInferShape(gert::InferShapeContext* context) {
    return npu_rope::infer_shapes_of_inputs(context, 0, 2);
}

static ge::graphStatus NpuRopeQkInferDataType(gert::InferDataTypeContext* context) {
    return npu_rope::infer_types_of_inputs(context, 0, 2);
}

}  // namespace ge

namespace ops {

class NpuRopeQk : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRopeQk(const char* name) : OpDef(name) {
        this->Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("k")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        this->Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        this->Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rope_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("k")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("positions")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("freq_factors")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .AutoContiguous();
        of_310p.Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});
        of_310p.Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRopeQkInferShape).SetInferDataType(ge::NpuRopeQkInferDataType);
        this->AICore().SetTiling(optiling::NpuRopeQkTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRopeQk);

}  // namespace ops
