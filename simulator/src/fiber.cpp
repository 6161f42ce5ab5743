#include "src/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ascend_sim {

constexpr size_t kStackBytes = size_t{1} << 20;  // reserved; the system provides the pages that a kernel touches

// Memory of a stack. Its lowest page is not accessible, so that an overflow ends the process there.
class Stack {
public:
    Stack() : guard_bytes_(size_t(sysconf(_SC_PAGESIZE))) {
        base_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        mprotect(base_, guard_bytes_, PROT_NONE);
    }
    Stack(Stack&& other) noexcept : guard_bytes_(other.guard_bytes_), base_(other.base_) { other.base_ = MAP_FAILED; }
    Stack& operator=(Stack&&) = delete;
    ~Stack() {
        if (base_ != MAP_FAILED) munmap(base_, kStackBytes);
    }
    char* begin() const { return static_cast<char*>(base_) + guard_bytes_; }
    size_t bytes() const { return kStackBytes - guard_bytes_; }

private:
    size_t guard_bytes_;
    void* base_;
};

namespace {

// Stacks of ended fibers, for the next ones of this thread.
thread_local std::vector<Stack> g_free_stacks;

Stack take_stack() {
    if (g_free_stacks.empty()) return Stack();
    Stack stack = std::move(g_free_stacks.back());
    g_free_stacks.pop_back();
    return stack;
}

}  // namespace

struct Fiber::Parts {
    std::function<void()> body;
    Stack stack = take_stack();
    ucontext_t own{}, caller{};
    bool ended = false;
    // The address sanitizer follows stacks; it must know of each switch.
    void* own_shadow = nullptr;
    void* caller_shadow = nullptr;
    const void* caller_stack = nullptr;
    size_t caller_bytes = 0;
#if defined(__SANITIZE_THREAD__)
    // So does the thread sanitizer, with an object for each stack. A switch orders the accesses of both stacks.
    void* own_object = __tsan_create_fiber(0);
    void* caller_object = nullptr;
    ~Parts() { __tsan_destroy_fiber(own_object); }
#endif

    void switch_to_own() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&caller_shadow, stack.begin(), stack.bytes());
#endif
#if defined(__SANITIZE_THREAD__)
        caller_object = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(own_object, 0);
#endif
        swapcontext(&caller, &own);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(caller_shadow, nullptr, nullptr);
#endif
    }
    void begin_own() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(own_shadow, &caller_stack, &caller_bytes);
#endif
    }
    void switch_to_caller() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(ended ? nullptr : &own_shadow, caller_stack, caller_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
        __tsan_switch_to_fiber(caller_object, 0);
#endif
        swapcontext(&own, &caller);
        begin_own();
    }
};

// makecontext passes integers only.
void Fiber::enter(unsigned high, unsigned low) {
    auto* parts = reinterpret_cast<Parts*>(uintptr_t(uint64_t(high) << 32 | low));
    parts->begin_own();
    parts->body();
    parts->ended = true;
    parts->switch_to_caller();
}

Fiber::Fiber(std::function<void()> body) : parts_(new Parts{std::move(body)}) {
    Parts& p = *parts_;
    getcontext(&p.own);
    p.own.uc_stack.ss_sp = p.stack.begin();
    p.own.uc_stack.ss_size = p.stack.bytes();
    p.own.uc_link = nullptr;
    const auto address = uint64_t(reinterpret_cast<uintptr_t>(&p));
    makecontext(&p.own, reinterpret_cast<void (*)()>(&Fiber::enter), 2, unsigned(address >> 32), unsigned(address));
}

Fiber::~Fiber() {
    try {
        g_free_stacks.push_back(std::move(parts_->stack));
    } catch (const std::bad_alloc&) {  // the stack is freed with parts_
    }
}

void Fiber::resume() { parts_->switch_to_own(); }
void Fiber::pause() { parts_->switch_to_caller(); }
bool Fiber::has_ended() const { return parts_->ended; }

}  // namespace ascend_sim
