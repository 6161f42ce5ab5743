// Shared definitions of the simulated runtime: the export macro of CANN's symbols and the status codes.
// The exported functions follow CANN's published C interface; handles of streams, events and graphs are void* here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cann/runtime/objects.h"

#define NPU_CANN_API extern "C" __attribute__((visibility("default")))

using aclError = int;

namespace simulated_cann {

// Values of acl_base.h and the aclnn documentation.
constexpr aclError kSuccess = 0;
constexpr aclError kInvalidParam = 100000;
constexpr aclError kInvalidFile = 100003;
constexpr aclError kRepeatInitialize = 100002;
constexpr aclError kRepeatFinalize = 100037;
constexpr aclError kNotSupported = 200001;
constexpr aclError kInternalError = 500000;
constexpr aclError kAclnnNullptr = 161001;
constexpr aclError kAclnnInvalidParam = 161002;
constexpr aclError kAclnnTilingError = 561002;
constexpr aclError kAclnnInnerNullptr = 561103;
// Values of the runtime, hicann/runtime include/external/acl/error_codes/rt_error_codes.h.
constexpr aclError kRtInvalid = 107000;
constexpr aclError kRtInvalidDevice = 107001;
constexpr aclError kContextNull = 107002;
constexpr aclError kStreamContext = 107003;
constexpr aclError kModelContext = 107004;
constexpr aclError kEventTimestampInvalid = 107006;
constexpr aclError kStreamSubscribe = 107011;
constexpr aclError kThreadSubscribe = 107012;
constexpr aclError kNotSubscribed = 107015;
constexpr aclError kInvalidMemoryType = 107016;
constexpr aclError kInvalidHandle = 107017;
constexpr aclError kCaptureDependency = 107024;
constexpr aclError kStreamUnjoined = 107025;
constexpr aclError kModelCaptured = 107026;
constexpr aclError kStreamCaptured = 107027;
constexpr aclError kEventCaptured = 107028;
constexpr aclError kStreamNotCaptured = 107029;
constexpr aclError kCaptureModeRefuses = 107030;
constexpr aclError kCaptureImplicit = 107031;
constexpr aclError kCaptureConflict = 107032;
constexpr aclError kTaskGroupStatus = 107033;
constexpr aclError kTaskGroupInterrupted = 107034;
constexpr aclError kCaptureUnmatched = 107036;
constexpr aclError kModelRunning = 107037;
constexpr aclError kCaptureWrongThread = 107038;
constexpr aclError kCaptureModeRefusesAsync = 107041;
constexpr aclError kRtNotSupported = 207000;
constexpr aclError kRtOutOfMemory = 207001;  // of the device and of the host
constexpr aclError kNoEventResource = 207007;
constexpr aclError kNoStreamResource = 207008;
constexpr aclError kRtInternal = 507000;
constexpr aclError kContextReleased = 507007;
constexpr aclError kTaskNotSupported = 507009;
constexpr aclError kReportTimeout = 507012;
constexpr aclError kCopyEngine = 507013;
constexpr aclError kAiCoreException = 507015;
constexpr aclError kVectorCoreException = 507035;
constexpr aclError kDeviceSetUp = 507033;
constexpr aclError kStreamSyncTimeout = 507046;
constexpr aclError kCaptureInvalidated = 507903;
constexpr aclError kDeviceMemoryError = 507053;

// Errors. fail() sets the text of aclGetRecentErrMsg and returns the status. A function refuse_... always does this and
// returns an error. A function check_... does it if a rule is broken, and otherwise returns kSuccess.
aclError fail(aclError status, const std::string& text);
constexpr const char* kErrorPrefix = "simulated CANN: ";  // of the texts of fail()
// As above, with the text "CALL: RULE", or with a value "CALL: RULE but got VALUE.".
inline aclError fail(aclError status, const std::string& call, const std::string& rule) {
    return fail(status, call + ": " + rule);
}
template <class T>
aclError fail(aclError status, const std::string& call, const std::string& rule, T got) {
    return fail(status, call, rule + " but got " + std::to_string(got) + ".");
}

// Stores a status of the runtime that a call of this thread returns, for aclrtGetLastError; ignores 0 and the statuses
// of acl and aclnn. fail() calls this.
void note_runtime_status(aclError status);

// Keeps the status of aclrtGetLastError while this thread runs work of a stream: only a call that waits returns an
// error of the work.
class KeepLastError {
public:
    KeepLastError();
    ~KeepLastError();
    KeepLastError(const KeepLastError&) = delete;

private:
    const aclError status_;
};

// Returns the text that was set last, and does not clear it.
std::string recent_error_text();

// Returns kContextNull if no device is set on this thread (hicann/runtime src/runtime/core/src/runtime.cc,
// Runtime::CurrentContext). Most calls check this. Exceptions are DevFree, HostFree, PointerGetAttributes, GetStreamId
// of a stream that is not null, and waits and queries of events by the host (src/runtime/api/impl/api_impl.cc).
aclError check_context(const char* call);

// Refuses a handle that is not null and that no object of the expected kind has: the object was destroyed, or has
// another kind. Returns kInvalidHandle. The runtime checks every handle before the context (hicann/runtime
// src/runtime/api/api_handle_guard.cc, ValidateEventHandleForApi and the functions after it).
aclError refuse_unknown_handle(const char* call, const char* argument);

bool is_ascend310p();
bool is_ascend950();

// Returns the status of a kernel that failed on this chip: the status of a vector core, or on Ascend310P of an AI core.
aclError kernel_exception();

// Refuses a call of a second phase of aclnn whose executor is NULL.
aclError refuse_null_executor();

// Stores the executor of a stand-in between its two phases. Returns its handle.
aclOpExecutor* keep_executor(std::unique_ptr<aclOpExecutor> executor);

// Deletes an executor of keep_executor(). Returns false if it is not one, or has run.
bool destroy_executor(const aclOpExecutor* executor);

// Queues a stand-in of libopapi on the stream, like launch() of objects.h but without a check of the guard zones.
// Stand-ins check their own bounds, and a training step calls many of them. When the work runs, it fills the workspace
// with junk. An executor runs once; a refused workspace leaves it as it is.
int32_t launch_stand_in(const char* name, void* workspace, uint64_t bytes, aclOpExecutor* executor, void* stream);

}  // namespace simulated_cann
