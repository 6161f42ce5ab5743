// Define the C functions that run rope on the CPU and return its default parameters.
#include "csrc/cpu/rope.h"

#include "csrc/capi/common.h"

extern "C" {

npu_rope_params npu_rope_default_params(int32_t n_dims, int32_t mode) {
    npu_rope_params params = {};
    params.n_dims = n_dims;
    params.mode = mode;
    params.freq_base = 10000.0;
    params.freq_scale = 1.0;
    params.attn_factor = 1.0;
    params.beta_fast = 32.0;
    params.beta_slow = 1.0;
    return params;
}

npu_rope_status npu_rope_rope(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                              const npu_rope_tensor* freq_factors, const npu_rope_params* params, int32_t forward,
                              int32_t angle, const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("rope",
                   [&] { return run_rope_cpu(rope_tensors(x, positions, freq_factors, out), params, forward, angle); });
}

}  // extern "C"
