// The functions of acl and aclop that are not simulated. Each call fails, and its message and the report name the
// function. The definitions are weak: a simulated function replaces them.
#include <type_traits>

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"
#include "aclnn/acl_meta.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"  // the functions ignore their arguments

extern "C" int simulated_cann_not_simulated(const char* call);

namespace {

template <class Result>
Result refuse(const char* call) {
    const int status = simulated_cann_not_simulated(call);
    if constexpr (std::is_same_v<Result, aclError>) return status;
    if constexpr (!std::is_void_v<Result>) return Result{};
}

}  // namespace

#define ACL(type, name, parameters) \
    extern "C" __attribute__((weak, visibility("default"))) type name parameters { return refuse<type>(#name); }
#define ACL_OP ACL
#define ACL_OP_COMPILER ACL
#include "acl/functions.def"
#include "acl/op_functions.def"
ACL(aclnnStatus, aclInitTensor,
    (aclTensor*, const int64_t*, uint64_t, aclDataType, const int64_t*, int64_t, aclFormat, const int64_t*, uint64_t,
     void*))
ACL(aclnnStatus, aclDumpOpTensors, (const char*, const char*, aclTensor**, size_t, size_t, aclrtStream))
#undef ACL_OP
#undef ACL_OP_COMPILER
#undef ACL
