// x [B,S,N,D] rotated by tables of cosines and sines into out, which may be x itself. The tables have one row per
// token, or position_ids select the rows.
#include "kernel_operator.h"
#include "rotary_tiling_data.h"
#include "rotation/rope_kernel.h"

extern "C" __global__ __aicore__ void npu_rotary_mul(GM_ADDR x, GM_ADDR cos, GM_ADDR sin, GM_ADDR position_ids,
                                                     GM_ADDR out, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RotaryTilingData);
    GET_TILING_DATA(tiling_data, tiling);
#if __CCE_AICORE__ != 200
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    rotation::RopeArguments arguments{{x, nullptr}, {out, nullptr}, nullptr};
    rotation::RotarySource source{cos, sin, position_ids, &tiling_data.table, nullptr};
    rotation::RunRotary<DTYPE_X, DTYPE_COS>(&tiling_data.common, arguments, source);
}
