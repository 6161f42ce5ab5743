// Define the C function that runs rotary_mul on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rotary.h"

extern "C" npu_rope_status npu_rope_rotary_mul(const npu_rope_tensor* x, const npu_rope_tensor* cos,
                                               const npu_rope_tensor* sin, int32_t interleaved, int64_t rotary_dim,
                                               int64_t offset, int32_t forward, const npu_rope_tensor* out) {
    using namespace npu_rope;
    RotaryAttributes attributes{interleaved != 0, rotary_dim, offset, /*num_heads=*/0};
    return guarded("rotary_mul",
                   [&] { return run_rotary_cpu(rotary_mul_tensors(x, cos, sin, out), attributes, forward != 0); });
}
