#include "csrc/sim/rope.h"

extern "C" npu_rope_status npu_rope_sim_rope_qk(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                                const npu_rope_params* params, int32_t forward, npu_rope_angle angle,
                                                const npu_rope_tensor* q_out, const npu_rope_tensor* k_out,
                                                const npu_rope_sim_options* options) {
    using namespace npu_rope;
    return rope_sim_entry(rope_qk_tensors(q, k, positions, freq_factors, q_out, k_out), params, forward, angle,
                          options);
}
