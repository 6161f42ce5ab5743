// Divide each head of queries [B,S,Nq,D] and keys [B,S,Nk,D] by the root of its mean square and multiply it by its
// scale [D]. Then rotate it by its token's position. One launch and one table of sines and cosines serve both tensors.
// Keys may be stored into rows of a cache [R,Nk,D]: those of token t into row rows[t].
#include "kernel_operator.h"
#include "rms_norm_rope_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rms_norm_rope(GM_ADDR q, GM_ADDR k, GM_ADDR q_scale, GM_ADDR k_scale,
                                                        GM_ADDR positions, GM_ADDR rows, GM_ADDR freq_factors,
                                                        GM_ADDR cache, GM_ADDR q_out, GM_ADDR k_out, GM_ADDR workspace,
                                                        GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RmsNormRopeTilingData);
    GET_TILING_DATA_MEMBER(RmsNormRopeTilingData, common, tiling_data, tiling);
    GET_TILING_DATA_MEMBER(RmsNormRopeTilingData, norm, norm_tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    // A cache is an input that the kernel writes: k_out has the same memory.
    rotation::RopeArguments arguments{{q, k}, {q_out, k_out}, rows};
    rotation::RopeSource source{positions, freq_factors, tiling + __builtin_offsetof(RmsNormRopeTilingData, turns)};
    norm::HeadNormSource norm{{q_scale, k_scale}, &norm_tiling_data};
    rotation::RunRmsNormRope<DTYPE_Q, DTYPE_POSITIONS>(&tiling_data, arguments, source, norm);
}
