// An operator that is not one of npu_rope's: z = alpha * x + weight * y. The weight is copies * weights[axes[0]] if
// flags[0] and adds are true, else 0. The operator has every type of attribute, one of them with an empty default, and
// no policy for views.
#include <cstring>

#include "register/op_def_registry.h"
#include "tiling/platform/platform_ascendc.h"
#include "weighted_add_tiling.h"

// Number of runs of the tiling, and the capacity of the last run's tiling data in bytes. Weak, because a library may
// contain this file more than once.
extern "C" {
__attribute__((visibility("default"), weak)) int weighted_add_tilings = 0;
__attribute__((visibility("default"), weak)) int weighted_add_capacity = 0;
}

namespace optiling {

static ge::graphStatus WeightedAddTiling(gert::TilingContext* context) {
    ++weighted_add_tilings;
    weighted_add_capacity = static_cast<int>(context->GetRawTilingData()->GetCapacity());
    const gert::RuntimeAttrs* attrs = context->GetAttrs();
    const gert::Shape& x = context->GetInputShape(0)->GetStorageShape();
    if (std::strcmp(attrs->GetStr(1), "plain") != 0) return ge::GRAPH_FAILED;  // without a message
    if (attrs->GetListInt(6)->GetSize() != 1 || attrs->GetListInt(6)->GetData()[0] != 0) return ge::GRAPH_FAILED;
    if (attrs->GetAttrNum() != 8 || context->GetComputeNodeInputNum() != 2) return ge::GRAPH_FAILED;
    const auto* axes = attrs->GetListInt(4);
    auto* data = context->GetTilingData<WeightedAddTilingData>();
    data->elements = static_cast<uint32_t>(x.GetShapeSize());
    data->alpha = *attrs->GetFloat(0);
    data->weight = static_cast<float>(*attrs->GetInt(7)) * attrs->GetListFloat(2)->GetData()[axes->GetData()[0]];
    const bool* flags = attrs->GetAttrPointer<gert::TypedContinuousVector<bool>>(3)->GetData();
    if (!flags[0] || !*attrs->GetBool(5)) data->weight = 0;
    platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
    context->GetWorkspaceSizes(1)[0] = chip.GetLibApiWorkSpaceSize() + 64;
    context->SetTilingKey(1);
    return context->SetBlockDim(1);
}

}  // namespace optiling

namespace ge {

static ge::graphStatus WeightedAddShape(gert::InferShapeContext* context) {
    *context->GetOutputShape(0) = *context->GetInputShape(0);
    return GRAPH_SUCCESS;
}

static ge::graphStatus WeightedAddType(gert::InferDataTypeContext* context) {
    return context->SetOutputDataType(0, context->GetInputDataType(0));
}

}  // namespace ge

namespace ops {

class WeightedAdd : public OpDef {
public:
    explicit WeightedAdd(const char* name) : OpDef(name) {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT16})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Input("y")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT16})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Output("z")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_FLOAT16})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Attr("alpha").AttrType(OPTIONAL).Float(0.123456789f);
        this->Attr("kind").AttrType(OPTIONAL).String("plain");
        this->Attr("weights").AttrType(OPTIONAL).ListFloat({1.5f, 2.0f});
        this->Attr("flags").AttrType(OPTIONAL).ListBool({true, false});
        this->Attr("axes").AttrType(REQUIRED).ListInt();
        this->Attr("adds").AttrType(OPTIONAL).Bool(true);
        this->Attr("shift").AttrType(OPTIONAL).ListInt({});
        this->Attr("copies").AttrType(OPTIONAL).Int(1);
        this->SetInferShape(ge::WeightedAddShape).SetInferDataType(ge::WeightedAddType);
        this->AICore().SetTiling(optiling::WeightedAddTiling).AddConfig("ascend910b");
    }
};

OP_ADD(WeightedAdd);

}  // namespace ops
