// Messages of kernels that fault. An integer division by zero, an address outside all memory or endless recursion ends
// the process by a signal, as without the simulator, but after a message. A signal for which the program has a handler
// is the program's: two handlers of one signal cannot know which of them mends a fault. So is one that it ignores.
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
std::atomic<bool> g_is_ending{false};  // a signal ends the process
RunningThread g_running[256];          // a fault of a kernel on more threads has no message

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
    const bool is_sent = info->si_code <= 0;  // by a process or raise()
    const RunningThread* const thread = is_sent ? nullptr : running_thread(thread_number());
    if (thread) write_message(signal, *thread);
    g_is_ending = true;
    struct sigaction none = {};
    none.sa_handler = SIG_DFL;
    sigaction(signal, &none, nullptr);
    raise(signal);  // it takes effect when this handler returns; not every instruction would fault again
}

void install_fault_handlers() {
    if (g_is_ending) return;
    for (const auto& [signal, text] : kFaults) {
        struct sigaction current = {};
        if (sigaction(signal, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) continue;
        struct sigaction own = {};
        own.sa_sigaction = report_fault;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(signal, &own, nullptr);
    }
}

// A stack on which a thread reports that its own has overflowed. A program's handlers may run on it, too, and may end
// the process there.
struct FaultStack {
    FaultStack() : memory_(mmap(nullptr, kGuardBytes + kBytes, PROT_READ | PROT_WRITE, kFlags, -1, 0)) {
        if (memory_ != MAP_FAILED) mprotect(memory_, kGuardBytes, PROT_NONE);
    }
    ~FaultStack() {
        stack_t current = {};
        if (memory_ != MAP_FAILED && sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_ONSTACK))
            munmap(memory_, kGuardBytes + kBytes);
    }
    // Returns whether the thread has this stack from now on, because it has no other.
    bool take() const {
        stack_t current = {}, own = {};
        if (memory_ == MAP_FAILED || sigaltstack(nullptr, &current) != 0 || !(current.ss_flags & SS_DISABLE))
            return false;
        own.ss_sp = static_cast<char*>(memory_) + kGuardBytes;
        own.ss_size = kBytes;
        return sigaltstack(&own, nullptr) == 0;
    }
    static void give_back() {
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }

private:
    static constexpr size_t kBytes = size_t(1) << 20, kGuardBytes = size_t(64) << 10;  // pages have up to 64 KiB
    static constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK;
    void* memory_;
};

}  // namespace

RunningKernel::RunningKernel(const char* name, const Machine& machine) {
    static thread_local const FaultStack stack;
    install_fault_handlers();
    has_stack_ = stack.take();
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
    if (has_stack_) FaultStack::give_back();
    if (thread_) thread_->number = 0;
}

}  // namespace ascend_sim
