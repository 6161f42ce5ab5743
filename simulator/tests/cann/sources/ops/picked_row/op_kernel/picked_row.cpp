// y is row td.row of x, times 2 if `doubled`, plus td.plus if `plus` is PLUS_NUMBER. The row passes through the
// workspace.
#include "../row_copy/row_copy.h"
#include "kernel_operator.h"
#include "picked_row_key.h"
#include "picked_row_tiling_data.h"

template <uint32_t plus, bool doubled>
__global__ __aicore__ void picked_row(GM_ADDR x, GM_ADDR row, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    using namespace AscendC;
    using T = DTYPE_X;
    REGISTER_TILING_DEFAULT(PickedRowTilingData);
    GET_TILING_DATA(td, tiling);
    static_assert(ORIG_DTYPE_ROW == DT_INT64 && FORMAT_ROW == FORMAT_ND);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 4096);
    LocalTensor<T> tile = buffer.Get<T>();
    GlobalTensor<T> from, to, between;
    from.SetGlobalBuffer((__gm__ T*)x + td.row * td.columns, td.columns);
    to.SetGlobalBuffer((__gm__ T*)y, td.columns);
    between.SetGlobalBuffer((__gm__ T*)GetUserWorkspace(workspace), 1024);
    CopyRow(tile, from, td.columns);
    PipeBarrier<PIPE_ALL>();
    if (doubled) Muls(tile, tile, T(2), td.columns);
    PipeBarrier<PIPE_ALL>();
    if (plus == 7) Adds(tile, tile, T(td.plus), td.columns);
    PipeBarrier<PIPE_ALL>();
    CopyRow(between, tile, td.columns);
    PipeBarrier<PIPE_ALL>();
    CopyRow(tile, between, td.columns);
    PipeBarrier<PIPE_ALL>();
    CopyRow(to, tile, td.columns);
}
