// Who runs a large call's parts: OpenMP, or a thread pool that a host framework lends us, so
// that one process never has two pools competing for its cores.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"

namespace npu_rope {

void set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn num_threads);
int num_threads();

// How many threads a call on so many elements is worth: below 32 Ki each, another costs more than it saves (a
// team's fork and join is a few microseconds; one core rotates 64 Ki elements in about as long).
int threads_for(int64_t elements);

// body(begin, end, ctx) over disjoint ranges covering [0, n); on the calling thread alone when
// threads is 1 or n is.
void parallel_ranges(int64_t n, int threads, npu_rope_range_fn body, void* ctx);

}  // namespace npu_rope
