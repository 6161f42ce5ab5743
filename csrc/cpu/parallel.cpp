#include "csrc/cpu/parallel.h"

#include <algorithm>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define NPU_ROPE_HAS_FORK
#endif

namespace npu_rope {
namespace {

// The host framework's thread pool. If both are NULL, OpenMP runs the parts.
npu_rope_run_fn g_run = nullptr;
npu_rope_num_threads_fn g_num_threads = nullptr;

// A forked child has a copy of the thread pool's state (OpenMP's or the host framework's), but only the thread that
// called fork(). Parallel work would wait forever for the missing threads, so the child computes on its one thread.
bool g_is_forked = false;
#if defined(NPU_ROPE_HAS_FORK)
[[maybe_unused]] const int g_at_fork = pthread_atfork(nullptr, nullptr, [] { g_is_forked = true; });
#endif

}  // namespace

void set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn pool_size) {
    g_run = run && pool_size ? run : nullptr;
    g_num_threads = run && pool_size ? pool_size : nullptr;
}

int num_threads() {
    if (g_is_forked) return 1;
    if (g_num_threads) {
        int threads = g_num_threads();
        return threads > 1 ? threads : 1;
    }
#if defined(_OPENMP)
    return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
    return 1;
#endif
}

int threads_for(int64_t elements) {
    constexpr int64_t kElementsPerThread = 32 * 1024;
    const int64_t useful_threads = elements / kElementsPerThread;
    return useful_threads <= 1 ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), useful_threads));
}

void parallel_ranges(int64_t n, int threads, npu_rope_range_fn body, void* ctx) {
    if (n <= 0) return;
    if (threads <= 1 || n == 1) {
        body(0, n, ctx);
        return;
    }
    if (g_run) {
        g_run(n, threads, body, ctx);
        return;
    }
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    {
        int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
        int64_t begin = n * part / parts, end = n * (part + 1) / parts;
        if (begin < end) body(begin, end, ctx);
    }
#else
    body(0, n, ctx);
#endif
}

}  // namespace npu_rope
