// The kernel of WeightedAdd, the operator that weighted_add_def.cpp defines.
#include "kernel_operator.h"
#include "weighted_add_tiling.h"

extern "C" __global__ __aicore__ void weighted_add(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(WeightedAddTilingData);
    GET_TILING_DATA(td, tiling);
    if (!TILING_KEY_IS(1)) return;
    using namespace AscendC;
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TQue<TPosition::VECOUT, 1> out;
    const uint32_t bytes = (td.elements * sizeof(DTYPE_X) + 31) / 32 * 32;
    pipe.InitBuffer(in, 2, bytes);
    pipe.InitBuffer(out, 1, bytes);
    GlobalTensor<DTYPE_X> gx, gy, gz;
    gx.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(x));
    gy.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(y));
    gz.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(z));
    const DataCopyExtParams all{1, static_cast<uint32_t>(td.elements * sizeof(DTYPE_X)), 0, 0, 0};
    const DataCopyPadExtParams<DTYPE_X> no_padding{false, 0, 0, 0};
    LocalTensor<DTYPE_X> a = in.AllocTensor<DTYPE_X>(), b = in.AllocTensor<DTYPE_X>();
    DataCopyPad(a, gx, all, no_padding);
    in.EnQue(a);
    a = in.DeQue<DTYPE_X>();
    DataCopyPad(b, gy, all, no_padding);
    in.EnQue(b);
    b = in.DeQue<DTYPE_X>();
    LocalTensor<DTYPE_X> sum = out.AllocTensor<DTYPE_X>();
    const int32_t count = static_cast<int32_t>(td.elements);
    Muls(a, a, static_cast<DTYPE_X>(td.alpha), count);
    Muls(b, b, static_cast<DTYPE_X>(td.weight), count);
    PipeBarrier<PIPE_V>();
    Add(sum, a, b, count);
    out.EnQue(sum);
    sum = out.DeQue<DTYPE_X>();
    DataCopyPad(gz, sum, all);
    in.FreeTensor(a);
    in.FreeTensor(b);
    out.FreeTensor(sum);
}
