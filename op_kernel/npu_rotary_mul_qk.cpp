// Queries [B,S,Nq,D] and keys [B,S,Nk,D] rotated by the same tables of cosines and sines in one launch.
#include "kernel_operator.h"
#include "rotary_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rotary_mul_qk(GM_ADDR q, GM_ADDR k, GM_ADDR cos, GM_ADDR sin, GM_ADDR q_out,
                                                        GM_ADDR k_out, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RotaryTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    rotation::RopeArguments arguments{{q, k}, {q_out, k_out}, nullptr};
    rotation::RotarySource source{cos, sin, nullptr, &tiling_data.table, nullptr};
    rotation::RunRotary<DTYPE_Q, DTYPE_COS>(&tiling_data.common, arguments, source);
}
