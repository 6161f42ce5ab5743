// Run the parts of a large call on OpenMP or on a host framework's thread pool. A process with two thread pools would
// have more threads than cores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/npu_rope.h"

namespace npu_rope {

void set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn num_threads);
int num_threads();

// Returns the number of threads for a call on this number of elements. Each thread gets at least 32 Ki elements. A
// thread for fewer elements costs more time than it saves: one core rotates about 64 Ki elements in the few
// microseconds that it takes to start and join threads.
int threads_for(int64_t elements);

// Memory of one part of a call, for its tables and rows. Without an address, take() only counts bytes.
class PartMemory {
public:
    static constexpr size_t kAlignment = 64;  // bytes; parts share no cache line

    PartMemory() = default;
    explicit PartMemory(char* address) : address_(address) {}

    // Returns memory for `count` elements, which have no values yet.
    template <typename T>
    T* take(int64_t count) {
        char* const from = address_ ? address_ + used_ : nullptr;
        used_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        return reinterpret_cast<T*>(from);
    }
    size_t used() const { return used_; }

private:
    char* address_ = nullptr;
    size_t used_ = 0;
};

using PartBody = void (*)(int64_t begin, int64_t end, PartMemory memory, const void* job);

// Calls body(begin, end, memory, job) for disjoint ranges that cover [0, n). Uses only the calling thread if threads or
// n is 1. The memory of all parts, of `bytes` each, is allocated before any part begins, and a body allocates nothing:
// when memory is missing, no part has written a result.
void parallel_ranges(int64_t n, int threads, size_t bytes, PartBody body, const void* job);

// Calls run(begin, end, job, Memory(job, memory)) for such ranges. The constructor of Memory takes what a part needs.
template <class Memory, auto run, class Job>
void run_parts(int64_t n, int threads, const Job& job) {
    PartMemory counter;
    static_cast<void>(Memory(job, counter));
    const auto body = [](int64_t begin, int64_t end, PartMemory memory, const void* job_of_part) {
        const auto& part_job = *static_cast<const Job*>(job_of_part);
        run(begin, end, part_job, Memory(part_job, memory));
    };
    parallel_ranges(n, threads, counter.used(), body, &job);
}

}  // namespace npu_rope
