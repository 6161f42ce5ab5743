// The message of the last error, and CANN's log.
#include <cxxabi.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

// One message for the process, not one per thread: an operator fails on the thread of torch_npu's queue, and the
// calling thread reads the message.
struct RecentError {
    std::string text;
};

// The lowest level that is printed: ASCEND_GLOBAL_LOG_LEVEL, from 0 (debug) to 3 (error). Without
// ASCEND_SLOG_PRINT_TO_STDOUT=1 it is 4, which prints nothing.
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
    if (host_calls()) return set_host_error(text);  // calls on the host's own memory have an error per thread
    Locked<RecentError>()->text = text;
}

// A caller without an executor has probably ignored a failed first phase. Repeats the message of that phase.
aclError no_executor() {
    Locked<RecentError> recent;
    const std::string before = recent->text.empty() ? "" : " The error before: " + recent->text;
    recent->text = "simulated CANN: executor must not be null." + before;
    return kAclnnNullptr;
}

std::string recent_error_text() { return Locked<RecentError>()->text; }

aclError no_object(const char* call, const char* argument) {
    return failed(kInvalidHandle, call, std::string(argument) + " must be one that exists.");
}

aclError failed(aclError status, const std::string& text) {
    set_error("simulated CANN: " + text);
    return status;
}

}  // namespace simulated_cann

// Clears the message, as CANN does; the pointer is valid until the same thread calls this again.
NPU_CANN_API const char* aclGetRecentErrMsg() {
    thread_local std::string text;
    text = std::exchange(simulated_cann::Locked<simulated_cann::RecentError>()->text, {});
    return text.empty() ? nullptr : text.c_str();
}

NPU_CANN_API void aclAppLog(int level, const char* function, const char* file, uint32_t line, const char* format, ...) {
    if (level < simulated_cann::log_level()) return;
    va_list args;
    va_start(args, format);
    std::fprintf(stdout, "[simulated CANN log %d] %s:%u %s: ", level, file ? file : "", line, function ? function : "");
    std::vfprintf(stdout, format, args);
    std::fputc('\n', stdout);
    va_end(args);
}

NPU_CANN_API aclError aclrtGetLastError(int /*level*/) { return simulated_cann::kSuccess; }
NPU_CANN_API aclError aclrtPeekAtLastError(int /*level*/) { return simulated_cann::kSuccess; }

// A generated stub calls this before it fails (simulator/ascend_sim/programs/stubs.py).
NPU_CANN_API aclError simulated_cann_not_simulated(const char* symbol) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    const std::string call = status == 0 && demangled ? demangled : symbol;
    std::free(demangled);
    std::string text = call +
                       " is not simulated. To add it, define this function in the file of simulator/cann/runtime/ "
                       "for its subject.";
    simulated_cann::count_not_simulated(call);
    std::fprintf(stderr, "simulated CANN: %s\n", text.c_str());
    return simulated_cann::failed(simulated_cann::kNotSupported, text);
}
