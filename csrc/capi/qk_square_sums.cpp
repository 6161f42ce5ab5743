// Define the C function that runs qk_square_sums on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/qkv_norm_rope_cache.h"

extern "C" npu_rope_status npu_rope_qk_square_sums(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                   const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("qk_square_sums", [&] { return run_qk_square_sums_cpu(q, k, out); });
}
