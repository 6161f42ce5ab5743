// C function of rotary_mul_qk.
#include "csrc/capi/common.h"
#include "csrc/cpu/rotary.h"

extern "C" npu_rope_status npu_rope_rotary_mul_qk(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                  const npu_rope_tensor* cos, const npu_rope_tensor* sin,
                                                  int32_t interleaved, int64_t rotary_dim, int64_t offset,
                                                  int32_t forward, const npu_rope_tensor* q_out,
                                                  const npu_rope_tensor* k_out) {
    using namespace npu_rope;
    RotaryAttributes a{interleaved != 0, rotary_dim, offset, /*num_heads=*/0};
    return guarded("rotary_mul_qk", [&] {
        return run_rotary_cpu(rotary_mul_qk_tensors(q, k, cos, sin, q_out, k_out), a, forward != 0);
    });
}
