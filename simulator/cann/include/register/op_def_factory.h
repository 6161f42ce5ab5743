// Registration of definitions by the operator's name.
#pragma once

#include <functional>

#include "register/op_def.h"

namespace ops {

using OpDefCreator = std::function<OpDef(const char*)>;

class OpDefFactory {
public:
    static int OpDefRegister(const char* name, OpDefCreator creator);
};

}  // namespace ops
