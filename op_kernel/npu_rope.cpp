// Rotary position embedding: x [B,S,N,D] rotated by positions into out, which may be x.
#include "kernel_operator.h"
#include "rope_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rope(GM_ADDR x, GM_ADDR positions, GM_ADDR freq_factors, GM_ADDR out,
                                               GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RopeTilingData);
    GET_TILING_DATA_MEMBER(RopeTilingData, common, tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    rotation::RopeArguments arguments{{x, nullptr}, {out, nullptr}, nullptr};
    rotation::RopeSource source{positions, freq_factors, tiling + __builtin_offsetof(RopeTilingData, turns)};
    rotation::RunRope<DTYPE_X, DTYPE_X, DTYPE_POSITIONS, /*scatters=*/false>(&tiling_data, arguments, source);
}
