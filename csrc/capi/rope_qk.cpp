// Define the C function that runs rope_qk on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rope.h"

extern "C" npu_rope_status npu_rope_rope_qk(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                            const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                            const npu_rope_params* params, int32_t forward, int32_t angle,
                                            const npu_rope_tensor* q_out, const npu_rope_tensor* k_out) {
    using namespace npu_rope;
    return guarded("rope_qk", [&] {
        return run_rope_cpu(rope_qk_tensors(q, k, positions, freq_factors, q_out, k_out), params, forward, angle);
    });
}
