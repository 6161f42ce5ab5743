// Define the C functions that run rms_norm_rope on the CPU, without and with a cache for the keys.
#include "csrc/cpu/rms_norm_rope.h"

#include "csrc/capi/common.h"

extern "C" {

npu_rope_status npu_rope_rms_norm_rope(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                       const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                       const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                       const npu_rope_params* params, double epsilon, int32_t intermediate_rounding,
                                       int32_t angle, const npu_rope_tensor* q_out, const npu_rope_tensor* k_out) {
    using namespace npu_rope;
    return guarded("rms_norm_rope", [&] {
        const auto tensors = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, freq_factors, q_out, k_out);
        return run_rms_norm_rope_cpu(tensors, params, epsilon, intermediate_rounding != 0, angle);
    });
}

npu_rope_status npu_rope_rms_norm_rope_set_rows(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                                const npu_rope_tensor* positions, const npu_rope_tensor* rows,
                                                const npu_rope_tensor* freq_factors, const npu_rope_params* params,
                                                double epsilon, int32_t intermediate_rounding, int32_t angle,
                                                const npu_rope_tensor* q_out, const npu_rope_tensor* cache) {
    using namespace npu_rope;
    return guarded("rms_norm_rope", [&] {
        const auto tensors =
            rms_norm_rope_set_rows_tensors(q, k, q_scale, k_scale, positions, rows, freq_factors, q_out, cache);
        return run_rms_norm_rope_cpu(tensors, params, epsilon, intermediate_rounding != 0, angle);
    });
}

}  // extern "C"
