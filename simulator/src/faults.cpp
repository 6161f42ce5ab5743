// Messages of kernels that fault. An integer division by zero, an address outside all memory or endless recursion ends
// the process by a signal, as without the simulator, but after a message. A handler of the program itself gets the
// signal after it.
#include "src/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "src/core.h"

namespace ascend_sim {
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
std::atomic<std::thread::id> g_reporter{};  // the thread that has reported a fault
constexpr int kMostSeconds = 10;            // in which the process ends after a report

// A thread that runs a kernel. The handler may not use thread-local memory, because a thread's first use allocates it.
struct RunningThread {
    std::atomic<std::thread::id> thread{};
    const RunningKernel* kernel = nullptr;  // only this thread uses it
};
RunningThread g_running[256];  // a fault of a kernel on more threads has no message

RunningThread* running_thread() {
    for (RunningThread& each : g_running)
        if (each.thread.load() == std::this_thread::get_id()) return &each;
    return nullptr;
}

void write_message(int signal, const RunningKernel& kernel) {
    const Machine& m = kernel.machine;
    const char* file = m.current.site.file ? m.current.site.file : "?";
    const char* slash = std::strrchr(file, '/');
    const char* api = m.current.api ? m.current.api : "kernel";
    const char* cause = "";
    for (const Fault& fault : kFaults)
        if (fault.signal == signal) cause = fault.text;
    char text[1024];
    const int length = std::snprintf(
        text, sizeof text, "[sim] %s %s:%d, core %d, %s: %s faults (%s): the process ends.\n", rule_id(Rule::End01),
        slash ? slash + 1 : file, int(m.current.site.line), int(m.core), api, kernel.name, cause);
    const size_t bytes = std::min(size_t(std::max(length, 0)), sizeof text - 1);
    if (write(STDERR_FILENO, text, bytes) < 0) return;
}

// Calls no function that takes a lock or memory: the thread may have faulted inside one.
void report_fault(int signal, siginfo_t* info, void*) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    const std::thread::id self = std::this_thread::get_id();
    const bool is_sent = info->si_code <= 0;  // by another process or raise()
    const RunningKernel* const kernel = is_sent ? nullptr : running_kernel();
    std::thread::id reporter{};
    const bool reports = kernel && g_reporter.compare_exchange_strong(reporter, self);
    if (reports) write_message(signal, *kernel);
    if (kernel && !reports && reporter != self) sleep(kMostSeconds);  // the process ends meanwhile
    // A handler that was installed after this one may call this one, or install it again, when it has done its work.
    const bool is_called_back = !reports && (current.sa_sigaction != report_fault || g_reporter != std::thread::id{});
    sigaction(signal, is_called_back ? &g_first[signal] : &g_previous[signal], nullptr);
    if (is_sent) raise(signal);  // otherwise the instruction faults again
}

// Programs may have replaced the handlers since the last launch.
void install_fault_handlers() {
    // If this thread has reported a fault, a handler of the program has gone on.
    std::thread::id self = std::this_thread::get_id();
    g_reporter.compare_exchange_strong(self, std::thread::id{});
    if (g_reporter != std::thread::id{}) return;  // the process ends
    if (g_installs.test_and_set()) return;        // another thread does
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

RunningKernel::RunningKernel(const char* name, const Machine& machine) : name(name), machine(machine) {
    for (RunningThread& each : g_running) {
        std::thread::id none{};
        if (!each.thread.compare_exchange_strong(none, std::this_thread::get_id())) continue;
        each.kernel = this;
        return;
    }
}

RunningKernel::~RunningKernel() {
    if (RunningThread* const own = running_thread()) own->thread = std::thread::id{};
}

const RunningKernel* running_kernel() {
    const RunningThread* const own = running_thread();
    return own ? own->kernel : nullptr;
}

}  // namespace ascend_sim
