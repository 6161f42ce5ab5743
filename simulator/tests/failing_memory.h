// A program's allocations and threads that fail on demand, one after another. Its malloc replaces that of the C
// library, whose functions __libc_* it calls; its pthread_create calls the next one. One source file of a program
// includes this header.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <thread>  // pthread_t

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* dlsym(void*, const char*);
}

namespace failing_memory {

inline std::atomic<bool> fails_later{false};

// Calls of one kind, of which one fails.
struct Failures {
    std::atomic<bool> is_armed{false};
    std::atomic<long> count{0}, failing{0};

    // Lets the call with this number fail, counted from the next one; with fails_later, all after it too.
    void arm(long number) {
        count = 0;
        failing = number;
        is_armed = true;
    }
    // Sets errno if this call fails.
    bool fails(int error) {
        if (!is_armed) return false;
        const long number = ++count;
        const bool is_failing = number == failing || (fails_later && number > failing);
        if (is_failing) errno = error;
        return is_failing;
    }
};
inline Failures allocations, thread_creations;  // of all threads of the process

// The C library's pthread_create: the next one after this program's, by RTLD_NEXT.
using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
inline const auto create_thread = reinterpret_cast<CreateThread>(dlsym(reinterpret_cast<void*>(-1l), "pthread_create"));

}  // namespace failing_memory

// Visible, because the libraries of the program call these functions.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(size_t bytes) { return failing_memory::allocations.fails(ENOMEM) ? nullptr : __libc_malloc(bytes); }
// glibc ends the process if it cannot note a destructor of a thread (cxa_thread_atexit_impl.c), so these 32 bytes
// exist.
void* calloc(size_t n, size_t bytes) {
    return n * bytes != 32 && failing_memory::allocations.fails(ENOMEM) ? nullptr : __libc_calloc(n, bytes);
}
void* realloc(void* old, size_t bytes) {
    return failing_memory::allocations.fails(ENOMEM) ? nullptr : __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
    return failing_memory::allocations.fails(ENOMEM) ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* settings, void* (*body)(void*), void* argument) {
    return failing_memory::thread_creations.fails(EAGAIN)
               ? EAGAIN
               : failing_memory::create_thread(thread, settings, body, argument);
}
}
#pragma GCC visibility pop
