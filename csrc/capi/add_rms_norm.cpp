// Define the C function that runs add_rms_norm on the CPU.
#include "csrc/capi/common.h"
#include "csrc/cpu/rms_norm.h"

extern "C" npu_rope_status npu_rope_add_rms_norm(const npu_rope_tensor* x, const npu_rope_tensor* residual,
                                                 const npu_rope_tensor* scale, int64_t axis, double epsilon,
                                                 int64_t stash_type, const npu_rope_tensor* out,
                                                 const npu_rope_tensor* sum) {
    using namespace npu_rope;
    return guarded("add_rms_norm", [&] {
        return run_rms_norm_cpu(add_rms_norm_tensors(x, residual, scale, out, sum), {axis, epsilon, stash_type});
    });
}
