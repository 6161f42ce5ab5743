// Define the C function that runs qkv_norm_rope_cache on the CPU.
#include "csrc/cpu/qkv_norm_rope_cache.h"

#include "csrc/capi/common.h"

extern "C" {

npu_rope_status npu_rope_qkv_norm_rope_cache(const npu_rope_qkv_inputs* inputs, const npu_rope_params* params,
                                             double epsilon, double scale_offset, int64_t ranks, int32_t angle,
                                             const npu_rope_qkv_outputs* outputs) {
    using namespace npu_rope;
    return guarded("qkv_norm_rope_cache", [&] {
        if (!inputs) return bad_value("qkv_norm_rope_cache", "inputs", "be a struct", "NULL");
        if (!outputs) return bad_value("qkv_norm_rope_cache", "outputs", "be a struct", "NULL");
        return run_qkv_norm_rope_cache_cpu({*inputs, *outputs}, params, {epsilon, scale_offset, ranks, angle});
    });
}

}  // extern "C"
