// Define the C function that runs rms_norm on the CPU.
#include "csrc/cpu/rms_norm.h"

#include "csrc/capi/common.h"

extern "C" npu_rope_status npu_rope_rms_norm(const npu_rope_tensor* x, const npu_rope_tensor* scale, int64_t axis,
                                             double epsilon, int64_t stash_type, const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("rms_norm",
                   [&] { return run_rms_norm_cpu(rms_norm_tensors(x, scale, out), {axis, epsilon, stash_type}); });
}
