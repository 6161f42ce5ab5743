// Messages of kernels that fault. An integer division by zero, an address outside all memory or endless recursion ends
// the process by a signal, as without the simulator, but after a message. A handler of the program itself is called
// once. A fault of a thread that runs no kernel, and a signal that was sent, are the program's own.
#include "src/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

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
struct sigaction g_previous[NSIG];  // the program's handlers, as the last launch found them
struct sigaction g_first[NSIG];     // as the first launch found them: a later one may call report_fault() in turn
bool g_has_first = false;
std::atomic_flag g_installs = ATOMIC_FLAG_INIT;
std::atomic<bool> g_is_ending{false};  // after a fault of a kernel
std::atomic<int> g_passed_on{0};       // signals that are the program's own, since the last launch
constexpr int kMostPassedOn = 16;      // handlers that install each other go on without end

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

void report_fault(int signal, siginfo_t* info, void* context);

bool is_function(const struct sigaction& handler) {
    return handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN;
}

void call(const struct sigaction& handler, int signal, siginfo_t* info, void* context) {
    sigset_t blocked = handler.sa_mask, own;
    sigemptyset(&own);
    sigaddset(&own, signal);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    if (handler.sa_flags & SA_NODEFER) pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
    if (handler.sa_flags & SA_SIGINFO)
        handler.sa_sigaction(signal, info, context);
    else
        handler.sa_handler(signal);
}

void end_by(int signal) {
    struct sigaction none = {};
    none.sa_handler = SIG_DFL;
    sigaction(signal, &none, nullptr);
    raise(signal);  // it takes effect when the handler returns
}

// A signal that is the program's own gets the program's handler, as if this one had not been there.
void pass_on(int signal, siginfo_t* info, void* context) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    // A handler that was installed after this one calls this one: the one before it is next.
    const bool is_called = current.sa_sigaction != report_fault;
    struct sigaction next = is_called ? g_first[signal] : g_previous[signal];
    if (++g_passed_on > kMostPassedOn) next = {};
    if (is_called && is_function(next)) return call(next, signal, info, context);
    sigaction(signal, &next, nullptr);
    if (info->si_code <= 0) raise(signal);  // it was sent; otherwise the instruction faults again
}

// Calls no function that takes a lock or memory: the thread may have faulted inside one.
void report_fault(int signal, siginfo_t* info, void* context) {
    const bool is_sent = info->si_code <= 0;  // by a process or raise()
    RunningThread* const thread = is_sent ? nullptr : running_thread(thread_number());
    if (!thread && !g_is_ending) return pass_on(signal, info, context);
    if (thread && !thread->has_faulted) {
        thread->has_faulted = true;
        g_is_ending = true;
        write_message(signal, *thread);
        if (is_function(g_previous[signal])) call(g_previous[signal], signal, info, context);
    }
    end_by(signal);
}

// Programs may have replaced the handlers since the last launch.
void install_fault_handlers() {
    if (g_installs.test_and_set()) return;  // another thread does
    g_is_ending = false;                    // a handler of the program has left the kernel
    g_passed_on = 0;
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
        void* const memory =
            mmap(nullptr, kGuardBytes + kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED) return;
        memory_ = static_cast<char*>(memory);
        mprotect(memory_, kGuardBytes, PROT_NONE);
        stack_t own = {};
        own.ss_sp = memory_ + kGuardBytes;
        own.ss_size = kBytes;
        sigaltstack(&own, nullptr);
    }
    ~FaultStack() {
        if (!memory_) return;
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
        munmap(memory_, kGuardBytes + kBytes);
    }

private:
    static constexpr size_t kBytes = size_t(64) << 10, kGuardBytes = size_t(64) << 10;  // pages have up to 64 KiB
    char* memory_ = nullptr;
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
