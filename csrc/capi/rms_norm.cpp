// Define the C functions that run rms_norm and rms_norm_rounded_last on the CPU.
#include "csrc/cpu/rms_norm.h"

#include "csrc/capi/common.h"

extern "C" npu_rope_status npu_rope_rms_norm(const npu_rope_tensor* x, const npu_rope_tensor* scale, int64_t axis,
                                             double epsilon, int64_t stash_type, const npu_rope_tensor* out) {
    using namespace npu_rope;
    return guarded("rms_norm",
                   [&] { return run_rms_norm_cpu(rms_norm_tensors(x, scale, out), {axis, epsilon, stash_type}); });
}

extern "C" npu_rope_status npu_rope_rms_norm_rounded_last(const npu_rope_tensor* x, const npu_rope_tensor* scale,
                                                          int64_t axis, double epsilon, double scale_offset,
                                                          const npu_rope_tensor* out) {
    using namespace npu_rope;
    constexpr int64_t kFloat32 = 1;  // the stash type
    return guarded("rms_norm_rounded_last", [&] {
        return run_rms_norm_cpu(rms_norm_rounded_last_tensors(x, scale, out), {axis, epsilon, kFloat32, scale_offset});
    });
}
