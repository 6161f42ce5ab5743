// Negated and Untouched: operators without a tiling. Negated writes its input in place.
#include "register/op_def_registry.h"

namespace ops {

class Negated : public OpDef {
public:
    explicit Negated(const char* name) : OpDef(name) {
        this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Output("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->AICore().AddConfig("ascend910b").AddConfig("ascend910_93");
    }
};

class Untouched : public OpDef {
public:
    explicit Untouched(const char* name) : OpDef(name) {
        this->Input("parts").ParamType(DYNAMIC).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Attr("axes").AttrType(REQUIRED).ListInt();
        this->AICore().AddConfig("ascend910b");
    }
};

OP_ADD(Negated);
OP_ADD(Untouched);

}  // namespace ops
