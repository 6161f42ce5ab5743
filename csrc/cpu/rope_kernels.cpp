// Selects rope's kernel set for this process.
#include "csrc/cpu/rope_kernels.h"

#include "csrc/cpu/isa.h"

namespace npu_rope {

const KernelSet& active_kernels() {
#if defined(NPU_ROPE_X86)
    return of_active_isa(kernels_baseline, kernels_avx2, kernels_avx512, kernels_avx512bf16);
#else
    return kernels_baseline();
#endif
}

}  // namespace npu_rope
