// Messages of kernels that fault. An integer division by zero, an address outside all memory or endless recursion ends
// the process by a signal, as without the simulator, but after a message. A handler of the program itself gets the
// signal after it.
#include "src/faults.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "src/core.h"

namespace ascend_sim {

// A thread that runs a kernel. The handler may not use thread-local memory, because a thread's first use allocates it.
// The number of a thread is its own in all processes, so that the child of a fork does not take a thread of its parent
// for one of its own.
struct RunningThread {
    std::atomic<long> number{0};
    char kernel[256];  // only this thread uses it and the machine
    const Machine* machine;
};

namespace {

struct Fault {
    int signal;
    const char* text;
};
constexpr Fault kFaults[] = {{SIGFPE, "SIGFPE, as by a division of integers by zero"},
                             {SIGSEGV, "SIGSEGV, as by an address outside all memory or endless recursion"},
                             {SIGBUS, "SIGBUS"},
                             {SIGILL, "SIGILL"}};
struct sigaction g_previous[NSIG];  // the handler that the last installation found
struct sigaction g_first[NSIG];     // the handler that the first one found; it cannot call report_fault() in turn
bool g_has_first = false;
std::atomic_flag g_installs = ATOMIC_FLAG_INIT;
std::atomic<long> g_reporter{0};   // the thread that has reported a fault of the kernel that it runs
std::atomic<int> g_calls_back{0};  // of other handlers, since the last installation
constexpr int kMostCallsBack = 3;
constexpr int kMostSeconds = 10;  // in which the process ends after a report

RunningThread g_running[256];  // a fault of a kernel on more threads has no message

long thread_number() { return syscall(SYS_gettid); }

RunningThread* running_thread(long number) {
    for (RunningThread& each : g_running)
        if (each.number.load() == number) return &each;
    return nullptr;
}

void write_message(int signal, const RunningThread& thread) {
    const Machine& m = *thread.machine;
    const char* file = m.current.site.file ? m.current.site.file : "?";
    const char* slash = std::strrchr(file, '/');
    const char* api = m.current.api ? m.current.api : "kernel";
    const char* cause = "";
    for (const Fault& fault : kFaults)
        if (fault.signal == signal) cause = fault.text;
    char text[1024];
    const int length = std::snprintf(
        text, sizeof text, "[sim] %s %s:%d, core %d, %s: %s faults (%s): the process ends.\n", rule_id(Rule::End01),
        slash ? slash + 1 : file, int(m.current.site.line), int(m.core), api, thread.kernel, cause);
    const size_t bytes = std::min(size_t(std::max(length, 0)), sizeof text - 1);
    if (write(STDERR_FILENO, text, bytes) < 0) return;
}

// Calls no function that takes a lock or memory: the thread may have faulted inside one.
void report_fault(int signal, siginfo_t* info, void*) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    const long self = thread_number();
    const bool is_sent = info->si_code <= 0;  // by another process or raise()
    const RunningThread* const thread = is_sent ? nullptr : running_thread(self);
    long reporter = 0;
    const bool reports = thread && g_reporter.compare_exchange_strong(reporter, self);
    if (reports) write_message(signal, *thread);
    if (thread && !reports && reporter != self) sleep(kMostSeconds);  // the process ends meanwhile
    // A handler that was installed after this one may call this one, or install it again, when it has done its work.
    const bool is_called_back = !reports && (current.sa_sigaction != report_fault || g_reporter != 0);
    struct sigaction next = is_called_back ? g_first[signal] : g_previous[signal];
    if (is_called_back && ++g_calls_back > kMostCallsBack) {
        next = {};
        next.sa_handler = SIG_DFL;
    }
    sigaction(signal, &next, nullptr);
    if (is_sent) raise(signal);  // otherwise the instruction faults again
}

// Programs may have replaced the handlers since the last launch.
void install_fault_handlers() {
    long self = thread_number();
    g_reporter.compare_exchange_strong(self, 0);  // a handler of the program has gone on
    if (g_reporter != 0) return;                  // the process ends
    if (g_installs.test_and_set()) return;        // another thread does
    g_calls_back = 0;
    for (const auto& [signal, text] : kFaults) {
        struct sigaction current = {};
        if (sigaction(signal, nullptr, &current) != 0 || current.sa_sigaction == report_fault) continue;
        struct sigaction own = {};
        own.sa_sigaction = report_fault;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        g_previous[signal] = current;
        if (!g_has_first) g_first[signal] = current;
        sigaction(signal, &own, nullptr);
    }
    g_has_first = true;
    g_installs.clear();
}

// A stack on which a thread reports that its own has overflowed.
struct FaultStack {
    FaultStack() {
        stack_t current = {};
        if (sigaltstack(nullptr, &current) != 0 || !(current.ss_flags & SS_DISABLE)) return;  // the thread has one
        memory_.reset(new char[kBytes]);
        stack_t own = {};
        own.ss_sp = memory_.get();
        own.ss_size = kBytes;
        sigaltstack(&own, nullptr);
    }
    ~FaultStack() {
        if (!memory_) return;
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }

private:
    static constexpr size_t kBytes = size_t(64) << 10;
    std::unique_ptr<char[]> memory_;
};

}  // namespace

void prepare_to_report_faults() {
    static thread_local FaultStack stack;
    (void)stack;
    install_fault_handlers();
}

RunningKernel::RunningKernel(const char* name, const Machine& machine) {
    const long self = thread_number();
    thread_ = running_thread(self);  // of a kernel that a handler of the program has left
    for (RunningThread& each : g_running) {
        long none = 0;
        if (!thread_ && each.number.compare_exchange_strong(none, self)) thread_ = &each;
    }
    if (!thread_) return;
    std::snprintf(thread_->kernel, sizeof thread_->kernel, "%s", name);
    thread_->machine = &machine;
}

RunningKernel::~RunningKernel() {
    if (!thread_) return;
    long self = thread_->number;
    thread_->number = 0;
    g_reporter.compare_exchange_strong(self, 0);  // a handler of the program has mended the fault
}

}  // namespace ascend_sim
