// Selects rms_norm_rope's kernel set for this process.
#include "csrc/cpu/rms_norm_rope_kernels.h"

#include "csrc/cpu/isa.h"

namespace npu_rope {

const RmsNormRopeKernels& active_rms_norm_rope_kernels() {
#if defined(NPU_ROPE_X86)
    return of_active_isa(rms_norm_rope_kernels_baseline, rms_norm_rope_kernels_avx2, rms_norm_rope_kernels_avx512,
                         rms_norm_rope_kernels_avx512bf16);
#else
    return rms_norm_rope_kernels_baseline();
#endif
}

}  // namespace npu_rope
