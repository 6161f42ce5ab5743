// Rotary position embedding of queries [B,S,Nq,D] and keys [B,S,Nk,D] by the same positions. One launch and one table
// of sines and cosines serve both tensors.
#include "kernel_operator.h"
#include "rope_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rope_qk(GM_ADDR q, GM_ADDR k, GM_ADDR positions, GM_ADDR freq_factors,
                                                  GM_ADDR q_out, GM_ADDR k_out, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RopeTilingData);
    GET_TILING_DATA_MEMBER(RopeTilingData, common, tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    rotation::RopeArguments arguments{{q, k}, {q_out, k_out}, nullptr};
    rotation::RopeSource source{positions, freq_factors, tiling + __builtin_offsetof(RopeTilingData, turns)};
    rotation::RunRope<DTYPE_Q, DTYPE_Q, DTYPE_POSITIONS, /*scatters=*/false>(&tiling_data, arguments, source);
}
