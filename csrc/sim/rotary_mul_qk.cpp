#include "csrc/sim/rotary.h"

extern "C" npu_rope_status npu_rope_sim_rotary_mul_qk(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                      const npu_rope_tensor* cos, const npu_rope_tensor* sin,
                                                      int32_t interleaved, int64_t rotary_dim, int64_t offset,
                                                      int32_t forward, const npu_rope_tensor* q_out,
                                                      const npu_rope_tensor* k_out,
                                                      const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return rotary_sim_entry(rotary_mul_qk_tensors(q, k, cos, sin, q_out, k_out),
                            {interleaved != 0, rotary_dim, offset, 0}, forward != 0, options);
}
