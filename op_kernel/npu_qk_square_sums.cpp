// The sums of the squares of each token's queries [S,Nq,D] and keys [S,Nk,D], over the heads: out [S,2], float32.
#include "kernel_operator.h"
#include "norm/square_sums_kernel.h"
#include "qk_square_sums_tiling_data.h"

extern "C" __global__ __aicore__ void npu_qk_square_sums(GM_ADDR q, GM_ADDR k, GM_ADDR out, GM_ADDR workspace,
                                                         GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(QkSquareSumsTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    KERNEL_TASK_TYPE(3, KERNEL_TYPE_MIX_AIV_1_0);  // kSquareSumsSplitRows, kSquareSumsSplitLong: SyncAll()
    KERNEL_TASK_TYPE(4, KERNEL_TYPE_MIX_AIV_1_0);
#endif
    norm::SquareSumsArguments arguments{{q, k}, out, AscendC::GetUserWorkspace(workspace)};
    norm::RunSquareSums<DTYPE_Q>(&tiling_data, arguments);
}
