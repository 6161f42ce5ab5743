// The message of a status code, and CANN's log.
#include <cxxabi.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "cann/runtime/api.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"

namespace npu_cann {
namespace {

// One message for the process, not one per thread: an operator fails on the thread of torch_npu's queue, and the
// calling thread reads the message.
std::mutex error_mutex;
std::string recent_error;

// ASCEND_GLOBAL_LOG_LEVEL as CANN reads it: 0 debug .. 3 error; the log is printed only if the variable is set.
int log_level() {
    static const int level = [] {
        const char* wanted = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
        const char* printed = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
        if (!printed || std::string(printed) != "1") return 4;
        return wanted ? std::atoi(wanted) : 3;
    }();
    return level;
}

}  // namespace

void set_error(const std::string& text) {
    if (host_calls()) return set_host_error(text);
    std::lock_guard<std::mutex> lock(error_mutex);
    recent_error = text;
}

// A second phase without an executor means that the caller ignored a failed first phase, so its message is kept.
aclError no_executor() {
    std::lock_guard<std::mutex> lock(error_mutex);
    const std::string before = recent_error.empty() ? "" : " The error before: " + recent_error;
    recent_error = "simulated CANN: executor must not be null." + before;
    return kAclnnNullptr;
}

std::string recent_error_text() {
    std::lock_guard<std::mutex> lock(error_mutex);
    return recent_error;
}

aclError no_object(const char* call, const char* argument) {
    return failed(kInvalidHandle, call, std::string(argument) + " must be one that exists.");
}

aclError failed(aclError status, const std::string& text) {
    set_error("simulated CANN: " + text);
    return status;
}

}  // namespace npu_cann

// Clears the message, as CANN does; the pointer is valid until the same thread calls this again.
NPU_CANN_API const char* aclGetRecentErrMsg() {
    thread_local std::string text;
    std::lock_guard<std::mutex> lock(npu_cann::error_mutex);
    text.swap(npu_cann::recent_error);
    npu_cann::recent_error.clear();
    return text.empty() ? nullptr : text.c_str();
}

NPU_CANN_API void aclAppLog(int level, const char* function, const char* file, uint32_t line, const char* format, ...) {
    if (level < npu_cann::log_level()) return;
    va_list args;
    va_start(args, format);
    std::fprintf(stdout, "[simulated CANN log %d] %s:%u %s: ", level, file ? file : "", line, function ? function : "");
    std::vfprintf(stdout, format, args);
    std::fputc('\n', stdout);
    va_end(args);
}

NPU_CANN_API aclError aclrtGetLastError(int /*level*/) { return npu_cann::kSuccess; }
NPU_CANN_API aclError aclrtPeekAtLastError(int /*level*/) { return npu_cann::kSuccess; }

// A generated stub calls this before it fails (ascend_sim/programs/stubs.py).
NPU_CANN_API aclError npu_cann_not_simulated(const char* symbol) {
    int status = 0;
    char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    const std::string call = status == 0 && plain ? plain : symbol;
    std::free(plain);
    std::string text = call +
                       " is not simulated. To add it: an extern \"C\" function of this name in a file of "
                       "simulator/cann/runtime/, by subject.";
    npu_cann::count_not_simulated(call);
    std::fprintf(stderr, "simulated CANN: %s\n", text.c_str());
    return npu_cann::failed(npu_cann::kNotSupported, text);
}
