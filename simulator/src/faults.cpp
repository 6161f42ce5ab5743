// Messages of kernels that fault. An integer division by zero, an address outside all memory or endless recursion ends
// the process by a signal, as without the simulator, but after a message. A handler of the program itself gets the
// signal, too. A fault of a thread that runs no kernel, and a signal that another process sent, are the program's own.
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
    char kernel[256];  // only this thread uses it and what follows
    const Machine* machine;
    bool has_faulted;
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
struct sigaction g_previous[NSIG];  // the program's handlers
bool g_is_installed = false;
std::atomic_flag g_installs = ATOMIC_FLAG_INIT;

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

// Let the program's handler do its work, as if the system had called it.
void call_handler(int signal, siginfo_t* info, void* context) {
    const struct sigaction handler = g_previous[signal];
    if (handler.sa_flags & int(SA_RESETHAND)) g_previous[signal].sa_handler = SIG_DFL;
    sigset_t blocked = handler.sa_mask, before;
    sigaddset(&blocked, signal);
    if (handler.sa_flags & SA_NODEFER) sigdelset(&blocked, signal);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (handler.sa_flags & SA_SIGINFO)
        handler.sa_sigaction(signal, info, context);
    else
        handler.sa_handler(signal);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Calls no function that takes a lock or memory: the thread may have faulted inside one.
void report_fault(int signal, siginfo_t* info, void* context) {
    // A handler that was called for the fault of its thread may raise the signal again, for the next handler.
    const bool is_own = info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
    RunningThread* const thread = is_own ? running_thread(thread_number()) : nullptr;
    const bool is_first = thread && !thread->has_faulted;
    if (is_first) {
        thread->has_faulted = true;
        write_message(signal, *thread);
    }
    const auto handler = g_previous[signal].sa_handler;
    const bool is_handled = handler != SIG_DFL && handler != SIG_IGN;
    if (is_handled && (is_first || !thread)) call_handler(signal, info, context);
    const bool is_sent = info->si_code <= 0;
    if (!thread && (is_handled || (handler == SIG_IGN && is_sent))) return;
    struct sigaction none = {};
    none.sa_handler = SIG_DFL;
    sigaction(signal, &none, nullptr);
    if (thread || is_sent) raise(signal);  // otherwise the instruction faults again
}

// Installs the handlers at the first launch, and again for signals that have no handler any more. A handler that the
// program has installed since then stays, because it may call this one.
void install_fault_handlers() {
    if (g_installs.test_and_set()) return;  // another thread does
    for (const auto& [signal, text] : kFaults) {
        struct sigaction current = {};
        if (sigaction(signal, nullptr, &current) != 0) continue;
        if (g_is_installed && current.sa_handler != SIG_DFL) continue;
        struct sigaction own = {};
        own.sa_sigaction = report_fault;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        g_previous[signal] = current;
        sigaction(signal, &own, nullptr);
    }
    g_is_installed = true;
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
    thread_->has_faulted = false;
}

RunningKernel::~RunningKernel() {
    if (thread_) thread_->number = 0;
}

}  // namespace ascend_sim
