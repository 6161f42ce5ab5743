// Queries, keys and values [T,N,D] from the projection to the cache: q and k divided by the root of their mean squares,
// multiplied by scales and rotated, k and v returned or stored into rows of caches. One launch does all of it.
#include "kernel_operator.h"
#include "qkv_norm_rope_cache_tiling_data.h"
#include "rotation/qkv_kernel.h"

extern "C" __global__ __aicore__ void npu_qkv_norm_rope_cache(
    GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR q_scale, GM_ADDR k_scale, GM_ADDR q_bias, GM_ADDR k_bias,
    GM_ADDR square_sums, GM_ADDR positions, GM_ADDR freq_factors, GM_ADDR cos, GM_ADDR sin, GM_ADDR slots,
    GM_ADDR k_quant_scale, GM_ADDR k_quant_offset, GM_ADDR v_quant_scale, GM_ADDR v_quant_offset, GM_ADDR k_cache,
    GM_ADDR v_cache, GM_ADDR q_out, GM_ADDR k_out, GM_ADDR v_out, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(QkvNormRopeCacheTilingData);
    GET_TILING_DATA_MEMBER(QkvNormRopeCacheTilingData, common, tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    // A cache is an input that the kernel writes: the output of the same side has the same memory.
    rotation::QkvArguments arguments{{q, k, v},
                                     {q_out, k_out, v_out},
                                     slots,
                                     square_sums,
                                     {q_scale, k_scale},
                                     {q_bias, k_bias},
                                     {nullptr, k_quant_scale, v_quant_scale},
                                     {nullptr, k_quant_offset, v_quant_offset}};
    GM_ADDR turns = tiling + __builtin_offsetof(QkvNormRopeCacheTilingData, turns);
    rotation::RopeSource angles{positions, freq_factors, turns};
    rotation::RotarySource tables{cos, sin, positions, nullptr, turns};
    rotation::RunQkvNormRopeCache<DTYPE_Q, DTYPE_Q_SCALE, DTYPE_POSITIONS>(&tiling_data, tiling, arguments, angles,
                                                                           tables);
}
