// OP_ADD registers a definition or a part of it. CANN compiles the same sources three times: for the generator of the
// interfaces, for the shape library and for the tiling library.
#pragma once

#include "register/op_def.h"
#include "register/op_def_factory.h"

namespace simulated_cann {
// Runs the registration. If it finds too little memory, later calls of the library's operators return an error.
int register_operator(void (*registration)());
}  // namespace simulated_cann

#if defined(OP_PROTO_LIB)
#define OP_ADD(opType, ...)                                                                 \
    [[maybe_unused]] static int g_##opType##_added = simulated_cann::register_operator([] { \
        opType op(#opType);                                                                 \
        gert::OpImplRegisterV2 impl(#opType);                                               \
        impl.InferShape(op.GetInferShape());                                                \
        impl.InferDataType(op.GetInferDataType());                                          \
    })
#elif defined(OP_TILING_LIB)
#define OP_ADD(opType, ...)                                                                 \
    [[maybe_unused]] static int g_##opType##_added = simulated_cann::register_operator([] { \
        opType op(#opType);                                                                 \
        gert::OpImplRegisterV2(#opType).Tiling(op.AICore().GetTiling());                    \
    })
#else
#define OP_ADD(opType, ...)                          \
    [[maybe_unused]] static int g_##opType##_added = \
        ops::OpDefFactory::OpDefRegister(#opType, [](const char*) -> ops::OpDef { return opType(#opType); })
#endif
