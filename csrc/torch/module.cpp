// Let the CPU library use torch's thread pool, with torch's number of threads. Return the registration's last error in
// parts.
#include <torch/csrc/stable/ops.h>

#include "csrc/torch/errors.h"
#include "include/npu_rope.h"

namespace {

void run_on_torch(int64_t n, int32_t threads, npu_rope_range_fn body, void* ctx) {
    int64_t grain = (n + threads - 1) / threads;
    torch::stable::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) { body(begin, end, ctx); });
}

int32_t torch_threads() { return static_cast<int32_t>(torch::stable::get_num_threads()); }

struct UseThreadPool {
    UseThreadPool() { npu_rope_set_thread_pool(run_on_torch, torch_threads); }
    ~UseThreadPool() { npu_rope_set_thread_pool(nullptr, nullptr); }
} use_thread_pool;

}  // namespace

extern "C" NPU_ROPE_API npu_rope_error npu_rope_torch_last_error_parts(void) {
    return npu_rope::parts_of(npu_rope::g_last_error);
}
