// C functions of rope.
#include "csrc/cpu/rope.h"

#include "csrc/capi/common.h"

extern "C" {

npu_rope_params npu_rope_default_params(int32_t n_dims, npu_rope_mode mode) {
    npu_rope_params p = {};
    p.n_dims = n_dims;
    p.mode = mode;
    p.freq_base = 10000.0;
    p.freq_scale = 1.0;
    p.attn_factor = 1.0;
    p.beta_fast = 32.0;
    p.beta_slow = 1.0;
    return p;
}

npu_rope_status npu_rope_rope(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                              const npu_rope_tensor* freq_factors, const npu_rope_params* params, int32_t forward,
                              npu_rope_angle angle, const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("rope",
                   [&] { return run_rope_cpu(rope_tensors(x, positions, freq_factors, out), params, forward, angle); });
}

}  // extern "C"
