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
struct sigaction g_previous[NSIG];
std::atomic_flag g_installs = ATOMIC_FLAG_INIT;
thread_local char g_running_name[256];

// Calls no function that takes a lock or memory: the kernel may have faulted inside one.
void report_fault(int signal, siginfo_t* info, void*) {
    sigaction(signal, &g_previous[signal], nullptr);
    if (info->si_code <= 0) {  // another process or raise() has sent it
        raise(signal);
        return;
    }
    if (!kernel_runs()) return;  // the instruction faults again
    const Machine& m = machine();
    const char* file = m.current.site.file ? m.current.site.file : "?";
    const char* slash = std::strrchr(file, '/');
    const char* api = m.current.api ? m.current.api : "kernel";
    const char* cause = "";
    for (const Fault& fault : kFaults)
        if (fault.signal == signal) cause = fault.text;
    char text[1024];
    const int length = std::snprintf(
        text, sizeof text, "[sim] %s %s:%d, core %d, %s: %s faults (%s): the process ends.\n", rule_id(Rule::End01),
        slash ? slash + 1 : file, int(m.current.site.line), int(m.core), api, g_running_name, cause);
    const size_t bytes = std::min(size_t(std::max(length, 0)), sizeof text - 1);
    if (write(STDERR_FILENO, text, bytes) < 0) return;
}

// Programs may have replaced the handlers since the last launch.
void install_fault_handlers() {
    if (g_installs.test_and_set()) return;  // another thread does
    for (const auto& [signal, text] : kFaults) {
        struct sigaction current = {};
        if (sigaction(signal, nullptr, &current) != 0 || current.sa_sigaction == report_fault) continue;
        struct sigaction own = {};
        own.sa_sigaction = report_fault;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        g_previous[signal] = current;
        sigaction(signal, &own, nullptr);
    }
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

void report_faults_of(const char* kernel) {
    static thread_local FaultStack stack;
    (void)stack;
    install_fault_handlers();
    std::snprintf(g_running_name, sizeof g_running_name, "%s", kernel);
}

}  // namespace ascend_sim
