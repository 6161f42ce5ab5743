// rotary_mul in CANN: x [B,S,N,D] rotated into out by tables of cosines and sines, or by the rows of tables [rows,W]
// that position_ids [B,S] select.
#include "op_host/rotary_cann.h"

namespace optiling {

static ge::graphStatus NpuRotaryMulTiling(gert::TilingContext* context) {
    return npu_rope::tile_rotary(context, npu_rope::rotary_mul_tensors(nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRotaryMulInferShape(gert::InferShapeContext* context) {
    return npu_rope::infer_shapes_of_inputs(context, 0, 1);
}

static ge::graphStatus NpuRotaryMulInferDataType(gert::InferDataTypeContext* context) {
    return npu_rope::infer_types_of_inputs(context, 0, 1);
}

}  // namespace ge

namespace ops {

class NpuRotaryMul : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRotaryMul(const char* name) : OpDef(name) {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("cos")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("sin")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("position_ids")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Output("out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rotary_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("cos")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("sin")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("position_ids")
            .ParamType(OPTIONAL)
            .DataType({ge::DT_INT64, ge::DT_INT64, ge::DT_INT64})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Output("out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRotaryMulInferShape).SetInferDataType(ge::NpuRotaryMulInferDataType);
        this->AICore().SetTiling(optiling::NpuRotaryMulTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRotaryMul);

}  // namespace ops
