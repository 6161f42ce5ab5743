// Run the parts of a large call on OpenMP or on a host framework's thread pool. A process with two thread pools would
// have more threads than cores.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"

namespace npu_rope {

void set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn num_threads);
int num_threads();

// Returns the number of threads for a call on this number of elements. Each thread gets at least 32 Ki elements. A
// thread for fewer elements costs more time than it saves: one core rotates about 64 Ki elements in the few
// microseconds that it takes to start and join threads.
int threads_for(int64_t elements);

// Calls body(begin, end, ctx) for disjoint ranges that cover [0, n). Uses only the calling thread if threads or n
// is 1.
void parallel_ranges(int64_t n, int threads, npu_rope_range_fn body, void* ctx);

}  // namespace npu_rope
