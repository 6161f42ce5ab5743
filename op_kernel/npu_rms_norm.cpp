// ONNX's RMSNormalization: out = the rows of x divided by the root of their mean square, times scale. out may be x
// itself if the types agree.
#include "kernel_operator.h"
#include "norm/rms_norm_kernel.h"
#include "rms_norm_tiling_data.h"

extern "C" __global__ __aicore__ void npu_rms_norm(GM_ADDR x, GM_ADDR scale, GM_ADDR out, GM_ADDR workspace,
                                                   GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RmsNormTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    norm::RmsNormArguments arguments{x, nullptr, scale, out, nullptr};
    norm::RunRmsNorm<DTYPE_X, DTYPE_SCALE, /*adds=*/false>(&tiling_data, arguments);
}
