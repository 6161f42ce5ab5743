// Kernels that end in another way than by a return, and loops that do not end.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "mini.h"

KERNEL(exception_that_stays_inside) {
    Ub ub(256);
    try {
        throw std::runtime_error("caught");  // keeps SIM-END-01
    } catch (const std::runtime_error&) {
    }
}

KERNEL(exception_that_leaves) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    Muls(t, t, 2.0f, 64);  // breaks SIM-END-01: an exception leaves the kernel exception_that_leaves: no tile.
    if (GetBlockNum() == 1) throw std::runtime_error("no tile");
}

KERNEL(number_that_is_thrown) {
    if (GetBlockNum() == 1) throw 1;  // breaks SIM-END-01 (no line): an exception leaves the kernel number_that_is_thrown: it is no
}

// The other cores wait for core 1.
KERNEL(exception_of_core_one) {
    if (GetBlockIdx() == 1) throw std::runtime_error("of core 1");
    SyncAll();
}

KERNEL(exit_of_the_last_core) {
    if (GetBlockIdx() == GetBlockNum() - 1) std::exit(0);
}

KERNEL(abort_of_the_last_core) {
    if (GetBlockIdx() == GetBlockNum() - 1) std::abort();
}

KERNEL(exit_without_handlers_of_the_last_core) {
    if (GetBlockIdx() == GetBlockNum() - 1) std::_Exit(0);
}

KERNEL(exit_of_unix_of_the_last_core) {
    if (GetBlockIdx() == GetBlockNum() - 1) _exit(0);
}

KERNEL(quick_exit_of_the_last_core) {
    if (GetBlockIdx() == GetBlockNum() - 1) std::quick_exit(0);
}

KERNEL(division_by_zero_of_the_last_core) {
    volatile int32_t divisor = GetBlockIdx() == GetBlockNum() - 1 ? 0 : 1;
    volatile int32_t quotient = 7 / divisor;
    (void)quotient;
}

__aicore__ inline int64_t sum_from(int64_t first, const volatile int64_t* values) {
    volatile int64_t more[64];
    more[first % 64] = values[0];
    return first + sum_from(first + 1, more) + more[1];
}

KERNEL(endless_recursion) {
    volatile int64_t values[1] = {1};
    volatile int64_t sum = sum_from(0, values);
    (void)sum;
}

KERNEL(exit_of_no_core) {}

// Faults while the thread holds the lock of malloc(), as after a write through a wrong pointer.
static void fault_inside_malloc() {
    uintptr_t* chunks[9];
    for (uintptr_t*& chunk : chunks) chunk = static_cast<uintptr_t*>(std::malloc(1024));
    uintptr_t* const last = static_cast<uintptr_t*>(std::malloc(1024));
    for (uintptr_t* chunk : chunks) std::free(chunk);
    chunks[7][1] = 16;  // the next chunk in malloc()'s list of free memory
    for (int i = 0; i < 9; ++i) chunks[i] = static_cast<uintptr_t*>(std::malloc(1024));
    std::free(last);
}

KERNEL(second_without_instructions) { std::this_thread::sleep_for(std::chrono::seconds(1)); }

KERNEL(fault_inside_malloc_of_the_kernel) { fault_inside_malloc(); }
KERNEL(fault_inside_malloc_of_a_thread) { std::thread(fault_inside_malloc).join(); }

KERNEL(address_outside_all_memory) { *reinterpret_cast<volatile int32_t*>(uintptr_t(16)) = 1; }

KERNEL(loop_without_instructions) {
    for (volatile bool is_endless = true; is_endless;) continue;
}

KERNEL(wait_for_a_flag_that_is_set) {
    GlobalTensor<int32_t> flags = global<int32_t>(x);
    while (flags.GetValue(1) == 0) continue;  // keeps SIM-END-02
}

KERNEL(endless_wait_for_a_flag) {
    GlobalTensor<int32_t> flags = global<int32_t>(x);
    while (flags.GetValue(0) == 0) continue;  // breaks SIM-END-02: this is instruction 16777217 of the core.
}
