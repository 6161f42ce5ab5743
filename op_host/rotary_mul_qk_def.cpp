// rotary_mul_qk in CANN: queries and keys rotated by the same tables in one launch.
#include "op_host/rotary_cann.h"

namespace optiling {

static ge::graphStatus NpuRotaryMulQkTiling(gert::TilingContext* context) {
    return npu_rope::tile_rotary(context,
                                 npu_rope::rotary_mul_qk_tensors(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuRotaryMulQkInferShape(gert::InferShapeContext* context) {
    return npu_rope::infer_shapes_of_inputs(context, 0, 2);
}

static ge::graphStatus NpuRotaryMulQkInferDataType(gert::InferDataTypeContext* context) {
    return npu_rope::infer_types_of_inputs(context, 0, 2);
}

}  // namespace ge

namespace ops {

class NpuRotaryMulQk : public OpDef {
public:
    // Each column of types is one compile of the kernel.
    explicit NpuRotaryMulQk(const char* name) : OpDef(name) {
        this->Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        this->Input("k")
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
        this->Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND});
        this->Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16})
            .FormatList({ge::FORMAT_ND});
        npu_rope::add_rotary_attributes(this);

        // Ascend310P has no bfloat16.
        OpAICoreConfig of_310p;
        of_310p.Input("q")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND})
            .IgnoreContiguous();
        of_310p.Input("k")
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
        of_310p.Output("q_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND});
        of_310p.Output("k_out")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_FLOAT16})
            .FormatList({ge::FORMAT_ND});

        this->SetInferShape(ge::NpuRotaryMulQkInferShape).SetInferDataType(ge::NpuRotaryMulQkInferDataType);
        this->AICore().SetTiling(optiling::NpuRotaryMulQkTiling);
        npu_rope::add_chips(this, &of_310p);
    }
};

OP_ADD(NpuRotaryMulQk);

}  // namespace ops
