// Rotary position embedding of x [B,S,N,D] into rows of a cache [R,N,D]: token t becomes row rows[t].
#include "kernel_operator.h"
#include "rope_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rope_set_rows(GM_ADDR x, GM_ADDR positions, GM_ADDR rows,
                                                        GM_ADDR freq_factors, GM_ADDR cache, GM_ADDR cache_out,
                                                        GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RopeTilingData);
    GET_TILING_DATA_MEMBER(RopeTilingData, common, tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    // The cache is an input that the kernel writes: input and output have the same memory.
    rotation::RopeArguments arguments{{x, nullptr}, {cache_out, nullptr}, rows};
    rotation::RopeSource source{positions, freq_factors, tiling + __builtin_offsetof(RopeTilingData, turns)};
    rotation::RunRope<DTYPE_X, DTYPE_CACHE, DTYPE_POSITIONS, /*scatters=*/true>(&tiling_data, arguments, source);
}
