// CANN's aclop: operators by name, without aclnn. Descriptors and attributes are simulated; an operator fails when it
// is called. Source: acl_op.h of CANN 8.1.
#pragma once

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#define ACL_TENSOR_SHAPE_RANGE_NUM 2
#define ACL_TENSOR_VALUE_RANGE_NUM 2
#define ACL_OP_DUMP_OP_AICORE_ARGS 0x00000001U

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclTensorDesc aclTensorDesc;
typedef struct aclopHandle aclopHandle;
typedef struct aclopAttr aclopAttr;
typedef struct aclopKernelDesc aclopKernelDesc;
typedef void (*aclDataDeallocator)(void* data, size_t length);
typedef aclError (*aclopCompileFunc)(int numInputs, const aclTensorDesc* const inputDesc[], int numOutputs,
                                     const aclTensorDesc* const outputDesc[], const aclopAttr* opAttr,
                                     aclopKernelDesc* kernelDesc);
typedef enum aclEngineType { ACL_ENGINE_SYS, ACL_ENGINE_AICORE, ACL_ENGINE_VECTOR } aclopEngineType;

static const int ACL_COMPILE_FLAG_BIN_SELECTOR = 1;

#define ACL_OP(type, name, parameters) type name parameters;
#define ACL_OP_COMPILER(type, name, parameters)
#include "acl/op_functions.def"
#undef ACL_OP
#undef ACL_OP_COMPILER

#ifdef __cplusplus
}
#endif
