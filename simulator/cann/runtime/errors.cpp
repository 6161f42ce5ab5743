// The message of the last error, and CANN's log.
#include <cxxabi.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/objects.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// The message of the process. It is not stored per thread, because an operator fails on the thread of torch_npu's
// queue, and the calling thread reads the message.
struct RecentError {
    std::string text;
};

const ForkLock error_lock(LockRank::kLast, &Locked<RecentError>::mutex());

thread_local aclError last_runtime_status = kSuccess;

// Returns the lowest level that is printed: ASCEND_GLOBAL_LOG_LEVEL, from 0 (debug) to 3 (error) and 4 (nothing).
// Returns 3 for any other text, as hicann/runtime src/dfx/log/liblog/slog/dlog_level_env.c does in
// DlogInitGlobalLogLevelByEnv. Returns 4 unless ASCEND_SLOG_PRINT_TO_STDOUT is 1.
int log_level() {
    static const int level = [] {
        const char* level_text = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
        const char* print_setting = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
        if (!print_setting || std::string(print_setting) != "1") return 4;
        const bool is_level = level_text && level_text[0] >= '0' && level_text[0] <= '4' && !level_text[1];
        return is_level ? level_text[0] - '0' : 3;
    }();
    return level;
}

}  // namespace

void set_error(const std::string& text) {
    if (host_calls()) return set_host_error(text);  // calls on the host's own memory have an error per thread
    Locked<RecentError>()->text = text;
}

// A caller without an executor has probably ignored a failed first phase. So the text repeats the earlier message.
aclError refuse_null_executor() {
    Locked<RecentError> recent;
    const std::string earlier_error = recent->text.empty() ? "" : " The error before: " + recent->text;
    recent->text = "simulated CANN: executor must not be null." + earlier_error;
    return kAclnnNullptr;
}

std::string recent_error_text() { return Locked<RecentError>()->text; }

aclError refuse_unknown_handle(const char* call, const char* argument) {
    return fail(kInvalidHandle, call, std::string(argument) + " must be one that exists.");
}

aclError fail(aclError status, const std::string& text) {
    set_error(kErrorPrefix + text);
    note_runtime_status(status);
    return status;
}

// hicann/runtime src/runtime/api/api_global_err.cc, GetRtExtErrCodeAndSetGlobalErr: each function of the runtime stores
// its error. A few do not store 207000; here all do.
void note_runtime_status(aclError status) {
    const aclError group = status / 1000;
    if (group == 107 || group == 207 || group == 507) last_runtime_status = status;
}

KeepLastError::KeepLastError() : status_(last_runtime_status) {}
KeepLastError::~KeepLastError() { last_runtime_status = status_; }

}  // namespace simulated_cann

// As in CANN, clears the message. The pointer is valid until the same thread calls this function again.
NPU_CANN_API const char* aclGetRecentErrMsg() {
    thread_local std::string text;
    text = std::exchange(simulated_cann::Locked<simulated_cann::RecentError>()->text, {});
    return text.empty() ? nullptr : text.c_str();
}

NPU_CANN_API void aclAppLog(int level, const char* function, const char* file, uint32_t line, const char* format, ...) {
    // hicann/runtime src/acl/aclrt_impl/log.cpp, aclAppLogImpl.
    if (!format || !function || !file || level < simulated_cann::log_level()) return;
    va_list args;
    va_start(args, format);
    std::fprintf(stdout, "[simulated CANN log %d] %s:%u %s: ", level, file, line, function);
    std::vfprintf(stdout, format, args);
    std::fputc('\n', stdout);
    va_end(args);
}

// hicann/runtime src/acl/aclrt_impl/context.cpp, aclrtPeekAtLastErrorImpl; src/runtime/api/impl/api_impl.cc, GetLastErr
// and PeekLastErr: the last status of the runtime that a call of this thread returned. GetLastErr clears it.
NPU_CANN_API aclError aclrtPeekAtLastError(int level) {
    using namespace simulated_cann;
    if (level != 0) return fail(kInvalidParam, __func__, "level must be 0, ACL_RT_THREAD_LEVEL,", level);
    return last_runtime_status;
}
NPU_CANN_API aclError aclrtGetLastError(int level) {
    using namespace simulated_cann;
    if (level != 0) return fail(kInvalidParam, __func__, "level must be 0, ACL_RT_THREAD_LEVEL,", level);
    return std::exchange(last_runtime_status, kSuccess);
}

// Lists no memory with uncorrectable errors: the simulated memory has none. hicann/runtime
// src/runtime/api/impl/api_error.cc, GetMemUceInfo: Ascend310P lacks RT_FEATURE_DFX_FAST_RECOVER.
NPU_CANN_API aclError aclrtGetMemUceInfo(int32_t device, void* found, size_t /*found_count*/, size_t* count) {
    using namespace simulated_cann;
    if (!found || !count) return fail(kInvalidParam, __func__, "memUceInfoArray and retSize must not be null.");
    if (is_ascend310p()) return fail(kRtNotSupported, __func__, "this chip does not list faults of its memory.");
    if (aclError error = check_device(__func__, device)) return error;
    *count = 0;
    return kSuccess;
}

// aclrtErrorInfo of hicann/runtime, include/external/acl/acl_rt.h. `detail` is the larger part of its union.
struct ErrorInfo {
    uint8_t try_repair, has_detail, reserved[2];
    enum : int32_t { kNoError = 0, kAicore = 3, kOthers = 0xFFFF } error_type;
    union {
        int32_t aicore_error_type;
        size_t detail[1 + 20 * 16];
    };
};
// Describes the device's fault. By hicann/runtime src/runtime/config/*/dev_info_reg.cc, Ascend310P has no such
// function. The values of Ascend950 are those of ApiImplDavid::GetErrorVerbose
// (src/runtime/api/impl/api_impl_david.cc): the unknown type of an error of the cores has a detail, and a fault can't
// be repaired. The other chips only describe faults of the memory and of links (api_impl.cc, ApiImpl::GetErrorVerbose),
// which the simulation does not have.
NPU_CANN_API aclError aclrtGetErrorVerbose(int32_t device, ErrorInfo* info) {
    using namespace simulated_cann;
    if (!info) return fail(kInvalidParam, __func__, "errorInfo must not be null.");
    if (is_ascend310p()) return fail(kRtNotSupported, __func__, "this chip does not describe its faults.");
    if (aclError error = check_device(__func__, device)) return error;
    const int32_t failure = is_ascend950() ? device_failure(device) : kSuccess;
    const bool is_in_cores = failure == kAiCoreException || failure == kVectorCoreException;
    info->try_repair = 0;
    info->has_detail = is_in_cores;
    info->error_type = !failure ? ErrorInfo::kNoError : is_in_cores ? ErrorInfo::kAicore : ErrorInfo::kOthers;
    if (is_in_cores) info->aicore_error_type = 0;
    return kSuccess;
}

// A function that is not simulated calls this before it fails (cann/opapi/absent.cpp, ascend_sim/programs/stubs.py).
NPU_CANN_API aclError simulated_cann_not_simulated(const char* symbol) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    const std::string call = status == 0 && demangled ? demangled : symbol;
    std::free(demangled);
    const bool is_aclnn = call.compare(0, 5, "aclnn") == 0, is_hccl = call.compare(0, 4, "Hccl") == 0;
    const std::string folder = is_aclnn ? "opapi" : is_hccl ? "hccl" : "runtime";
    const std::string text = call + " is not simulated. " +
                             (is_aclnn ? "The page simulator/docs/aclnn.md lists the functions that are. " : "") +
                             "Report it to the project, or contribute it in simulator/cann/" + folder + "/.";
    simulated_cann::count_not_simulated(call);
    simulated_cann::print_message({text});
    return simulated_cann::fail(simulated_cann::kNotSupported, text);
}
