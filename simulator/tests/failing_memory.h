// A program's allocations that fail on demand, one after another. Its malloc replaces that of the C library, whose
// functions __libc_* it calls. One source file of a program includes this header.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace failing_memory {

// Allocations of all threads count, because a launch has two.
inline std::atomic<bool> is_armed{false}, fails_later{false};
inline std::atomic<long> count{0}, failing{0};

// Lets the allocation with this number fail, counted from the next one; with fails_later, all after it too.
inline void arm(long number) {
    count = 0;
    failing = number;
    is_armed = true;
}

inline bool fails() {
    if (!is_armed) return false;
    const long number = ++count;
    return number == failing || (fails_later && number > failing);
}

}  // namespace failing_memory

extern "C" {
void* malloc(size_t bytes) { return failing_memory::fails() ? nullptr : __libc_malloc(bytes); }
// glibc ends the process if it cannot note a destructor of a thread (cxa_thread_atexit_impl.c), so these 32 bytes
// exist.
void* calloc(size_t n, size_t bytes) {
    return n * bytes != 32 && failing_memory::fails() ? nullptr : __libc_calloc(n, bytes);
}
void* realloc(void* old, size_t bytes) { return failing_memory::fails() ? nullptr : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) {
    return failing_memory::fails() ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
}
