// OP_ADD registers a definition or a part of it. CANN compiles the same sources three times: for the generator of the
// interfaces, for the shape library and for the tiling library.
#pragma once

#include "register/op_def.h"
#include "register/op_def_factory.h"

#if defined(OP_PROTO_LIB)
#define OP_ADD(opType, ...)                               \
    [[maybe_unused]] static int g_##opType##_added = [] { \
        opType op(#opType);                               \
        gert::OpImplRegisterV2 impl(#opType);             \
        impl.InferShape(op.GetInferShape());              \
        impl.InferDataType(op.GetInferDataType());        \
        return 0;                                         \
    }()
#elif defined(OP_TILING_LIB)
#define OP_ADD(opType, ...)                                              \
    [[maybe_unused]] static int g_##opType##_added = [] {                \
        opType op(#opType);                                              \
        gert::OpImplRegisterV2(#opType).Tiling(op.AICore().GetTiling()); \
        return 0;                                                        \
    }()
#else
#define OP_ADD(opType, ...)                          \
    [[maybe_unused]] static int g_##opType##_added = \
        ops::OpDefFactory::OpDefRegister(#opType, [](const char*) -> ops::OpDef { return opType(#opType); })
#endif
