// y[r] = sum of x[r][0 .. columns) in float, for half x and at most 16384 columns: groups of 64 columns are added lane
// by lane, then the lanes are summed.
#include "kernel_operator.h"

using namespace AscendC;

struct RowSumCustomTilingData {
    uint32_t rows;
    uint32_t columns;
};

class KernelRowSum {
public:
    __aicore__ inline KernelRowSum() {}
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) {
        // Eight rows form a unit, because their sums are one 32-byte block.
        const uint32_t units = (rows + ROWS_PER_UNIT - 1) / ROWS_PER_UNIT;
        firstUnit = GetBlockIdx() * units / GetBlockNum();
        endUnit = (GetBlockIdx() + 1) * units / GetBlockNum();
        this->rows = rows;
        this->columns = columns;
        this->padded = (columns + LANES - 1) / LANES * LANES;
        xGm.SetGlobalBuffer((__gm__ half *)x, rows * columns);
        yGm.SetGlobalBuffer((__gm__ float *)y, rows);
        pipe.InitBuffer(inQueue, 2, padded * sizeof(half));
        pipe.InitBuffer(outQueue, 2, ROWS_PER_UNIT * sizeof(float));
        pipe.InitBuffer(wideBuf, padded * sizeof(float));
    }
    __aicore__ inline void Process() {
        for (uint32_t unit = firstUnit; unit < endUnit; ++unit) {
            const uint32_t first = unit * ROWS_PER_UNIT;
            const uint32_t count = rows - first < ROWS_PER_UNIT ? rows - first : ROWS_PER_UNIT;
            LocalTensor<float> sums = outQueue.AllocTensor<float>();
            for (uint32_t row = 0; row < count; ++row) {
                CopyIn(first + row);
                Compute(sums[row]);
            }
            outQueue.EnQue(sums);
            CopyOut(first, count);
        }
    }

private:
    static constexpr uint32_t ROWS_PER_UNIT = 8;
    static constexpr uint32_t LANES = 64;

    __aicore__ inline void CopyIn(uint32_t row) {
        LocalTensor<half> xLocal = inQueue.AllocTensor<half>();
        DataCopyExtParams copyParams{1, static_cast<uint32_t>(columns * sizeof(half)), 0, 0, 0};
        DataCopyPadExtParams<half> padParams{false, 0, 0, 0};
        DataCopyPad(xLocal, xGm[row * columns], copyParams, padParams);
        inQueue.EnQue(xLocal);
    }
    __aicore__ inline void Compute(const LocalTensor<float> &sum) {
        LocalTensor<half> xLocal = inQueue.DeQue<half>();
        LocalTensor<float> wide = wideBuf.Get<float>();
        Duplicate(wide, 0.0f, padded);
        PipeBarrier<PIPE_V>();
        Cast(wide, xLocal, RoundMode::CAST_NONE, columns);
        PipeBarrier<PIPE_V>();
        if (padded > LANES) {
            // wide[0, 64) += each further 64 columns.
            const uint8_t repeats = static_cast<uint8_t>(padded / LANES - 1);
            Add(wide, wide[LANES], wide, LANES, repeats, {1, 1, 1, 0, 8, 0});
            PipeBarrier<PIPE_V>();
        }
        WholeReduceSum<float>(sum, wide, LANES, 1, 1, 1, 8);
        PipeBarrier<PIPE_V>();
        inQueue.FreeTensor(xLocal);
    }
    __aicore__ inline void CopyOut(uint32_t first, uint32_t count) {
        LocalTensor<float> sums = outQueue.DeQue<float>();
        DataCopyExtParams copyParams{1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0};
        DataCopyPad(yGm[first], sums, copyParams);
        outQueue.FreeTensor(sums);
    }

private:
    TPipe pipe;
    TQue<QuePosition::VECIN, 1> inQueue;
    TQue<QuePosition::VECOUT, 1> outQueue;
    TBuf<QuePosition::VECCALC> wideBuf;
    GlobalTensor<half> xGm;
    GlobalTensor<float> yGm;
    uint32_t firstUnit, endUnit, rows, columns, padded;
};

extern "C" __global__ __aicore__ void row_sum_custom(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RowSumCustomTilingData);
    GET_TILING_DATA(tilingData, tiling);
    KernelRowSum op;
    op.Init(x, y, tilingData.rows, tilingData.columns);
    op.Process();
}
