// Define the C function that runs rms_norm_backward on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rms_norm.h"

extern "C" npu_rope_status npu_rope_rms_norm_backward(const npu_rope_tensor* grad, const npu_rope_tensor* x,
                                                      const npu_rope_tensor* scale, int64_t axis, double epsilon,
                                                      int64_t stash_type, const npu_rope_tensor* dx,
                                                      const npu_rope_tensor* dscale) {
    using namespace npu_rope;
    return guarded("rms_norm_backward", [&] {
        return run_rms_norm_cpu(rms_norm_backward_tensors(grad, x, scale, dx, dscale), {axis, epsilon, stash_type});
    });
}
