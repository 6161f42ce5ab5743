// The functions of HCCL that are not simulated. Each call fails, and its message and the report name the function. The
// definitions are weak: a simulated function replaces them.
#include <type_traits>

#include "hccl/hccl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"  // the functions ignore their arguments

extern "C" int simulated_cann_not_simulated(const char* call);

namespace {

template <class Result>
Result refuse(const char* call) {
    simulated_cann_not_simulated(call);
    if constexpr (std::is_same_v<Result, HcclResult>)
        return HCCL_E_NOT_SUPPORT;
    else
        return Result{};
}

}  // namespace

#define HCCL(type, name, parameters) \
    extern "C" __attribute__((weak, visibility("default"))) type name parameters { return refuse<type>(#name); }
#include "hccl/functions.def"
#undef HCCL
