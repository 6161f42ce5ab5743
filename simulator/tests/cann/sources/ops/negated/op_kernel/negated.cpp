// x = -x of td.count elements, if the tiling key is 5.
#include "kernel_operator.h"

struct NegatedTilingData {
    uint32_t count;
};

extern "C" __global__ __aicore__ void negated(GM_ADDR x, GM_ADDR x_ref, GM_ADDR workspace, GM_ADDR tiling) {
    using namespace AscendC;
    REGISTER_TILING_DEFAULT(NegatedTilingData);
    GET_TILING_DATA(td, tiling);
    if (!TILING_KEY_IS(5)) return;
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 4096);
    LocalTensor<DTYPE_X_REF> tile = buffer.Get<DTYPE_X_REF>();
    GlobalTensor<DTYPE_X> from, to;
    from.SetGlobalBuffer((__gm__ DTYPE_X*)x, td.count);
    to.SetGlobalBuffer((__gm__ DTYPE_X*)x_ref, td.count);
    DataCopy(tile, from, td.count);
    PipeBarrier<PIPE_ALL>();
    Muls(tile, tile, DTYPE_X(-1), td.count);
    PipeBarrier<PIPE_ALL>();
    DataCopy(to, tile, td.count);
}
