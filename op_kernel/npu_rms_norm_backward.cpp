// The gradients of rms_norm: computes dx and adds the gradient of the scale to dscale, which the caller has set to 0.
#include "kernel_operator.h"
#include "norm/rms_norm_backward_kernel.h"
#include "rms_norm_tiling_data.h"

extern "C" __global__ __aicore__ void npu_rms_norm_backward(GM_ADDR grad, GM_ADDR x, GM_ADDR scale, GM_ADDR dscale,
                                                            GM_ADDR dx, GM_ADDR dscale_out, GM_ADDR workspace,
                                                            GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RmsNormTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    KERNEL_TASK_TYPE(3, KERNEL_TYPE_MIX_AIV_1_0);  // kRmsNormOrderedRows, kRmsNormOrderedLong: SyncAll()
    KERNEL_TASK_TYPE(4, KERNEL_TYPE_MIX_AIV_1_0);
#endif
    // dscale is an input that the kernel writes: input and output have the same memory.
    norm::RmsNormBackwardArguments arguments{grad, x, scale, dx, dscale_out, AscendC::GetUserWorkspace(workspace)};
    norm::RunRmsNormBackward<DTYPE_X, DTYPE_SCALE>(&tiling_data, arguments);
}
