// Define the C functions that run qkv_norm_rope_cache and qk_square_sums on the CPU.
#include "csrc/cpu/qkv_norm_rope_cache.h"

#include "csrc/capi/common.h"

extern "C" {

npu_rope_status npu_rope_qkv_norm_rope_cache(const npu_rope_qkv_inputs* inputs, const npu_rope_params* params,
                                             double epsilon, double scale_offset, int64_t ranks, npu_rope_angle angle,
                                             const npu_rope_qkv_outputs* outputs) {
    using namespace npu_rope;
    return guarded("qkv_norm_rope_cache", [&] {
        if (!inputs) return bad_value("qkv_norm_rope_cache", "inputs", "be a struct", "NULL");
        if (!outputs) return bad_value("qkv_norm_rope_cache", "outputs", "be a struct", "NULL");
        return run_qkv_norm_rope_cache_cpu({*inputs, *outputs}, params, {epsilon, scale_offset, ranks, angle});
    });
}

npu_rope_status npu_rope_qk_square_sums(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                        const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("qk_square_sums", [&] { return run_qk_square_sums_cpu(q, k, out); });
}

}  // extern "C"
