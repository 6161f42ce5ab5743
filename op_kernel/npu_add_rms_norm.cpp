// sum = x + residual; out = the rows of sum divided by the root of their mean square, times scale.
#include "kernel_operator.h"
#include "norm/rms_norm_kernel.h"
#include "rms_norm_tiling_data.h"

extern "C" __global__ __aicore__ void npu_add_rms_norm(GM_ADDR x, GM_ADDR residual, GM_ADDR scale, GM_ADDR out,
                                                       GM_ADDR sum, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RmsNormTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    norm::RmsNormArguments arguments{x, residual, scale, out, sum};
    norm::RunRmsNorm<DTYPE_X, DTYPE_SCALE, /*adds=*/true>(&tiling_data, arguments);
}
