// What every file of the simulated runtime shares: how a CANN symbol is exported, and the status codes.
// Declarations are ours, after CANN's published C interface; a type that is opaque there is void here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulator/cann/runtime/objects.h"

#define NPU_CANN_API extern "C" __attribute__((visibility("default")))

using aclError = int;

namespace npu_cann {

// Numbers as acl_base.h and the aclnn documentation have them.
constexpr aclError kSuccess = 0;
constexpr aclError kInvalidParam = 100000;
constexpr aclError kRepeatInitialize = 100002;
constexpr aclError kBadAlloc = 200000;
constexpr aclError kNotSupported = 200001;
constexpr aclError kInvalidDevice = 200002;
constexpr aclError kInternalError = 500000;
constexpr aclError kContextNull = 107002;
constexpr aclError kDeviceMemoryError = 507053;
constexpr aclError kAclnnNullptr = 161001;
constexpr aclError kAclnnInvalidParam = 161002;

// Sets aclGetRecentErrMsg's text and gives the status back: `return failed(kInvalidParam, "...")`.
aclError failed(aclError status, const std::string& text);

// The same for a second phase of aclnn that got no executor.
aclError no_executor();

}  // namespace npu_cann
