// PickedRow, an operator for the tests of OperatorSources: y is the row of x with the number row[0], times 2 if
// `doubled`, plus `plus`.
#include "register/op_def_registry.h"

namespace ops {

class PickedRow : public OpDef {
public:
    explicit PickedRow(const char* name) : OpDef(name) {
        this->Input("x")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_INT32})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Input("row")
            .ParamType(REQUIRED)
            .DataType({ge::DT_INT64, ge::DT_INT64})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Output("y")
            .ParamType(REQUIRED)
            .DataType({ge::DT_FLOAT, ge::DT_INT32})
            .Format({ge::FORMAT_ND, ge::FORMAT_ND});
        this->Attr("doubled").AttrType(OPTIONAL).Bool(false);
        this->Attr("plus").AttrType(OPTIONAL).Int(0);
        this->Attr("fails").AttrType(OPTIONAL).String("");
        OpAICoreConfig config;
        config.DynamicCompileStaticFlag(true);
        this->AICore().AddConfig("ascend910b", config);
    }
};

OP_ADD(PickedRow);

}  // namespace ops
