// z = x + scale * y, and + bias if the tiling key is 1: tiles through queues with two buffers each.
#include "kernel_operator.h"

using namespace AscendC;

constexpr int32_t BUFFER_NUM = 2;

template <typename T, bool HAS_BIAS>
class KernelScaledAdd {
public:
    __aicore__ inline KernelScaledAdd(const ScaledAddTilingData& tilingData) : td(tilingData) {}

    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR bias, GM_ADDR z) {
        xGm.SetGlobalBuffer((__gm__ T*)x);
        yGm.SetGlobalBuffer((__gm__ T*)y);
        zGm.SetGlobalBuffer((__gm__ T*)z);
        pipe.InitBuffer(xQueue, BUFFER_NUM, td.tileElements * sizeof(T));
        pipe.InitBuffer(yQueue, BUFFER_NUM, td.tileElements * sizeof(T));
        pipe.InitBuffer(zQueue, BUFFER_NUM, td.tileElements * sizeof(T));
        if constexpr (HAS_BIAS) {
            biasGm.SetGlobalBuffer((__gm__ T*)bias);
            pipe.InitBuffer(biasQueue, BUFFER_NUM, td.tileElements * sizeof(T));
        }
    }

    __aicore__ inline void Process() {
        const int64_t step = static_cast<int64_t>(td.tileElements) * GetBlockNum();
        for (int64_t begin = static_cast<int64_t>(td.tileElements) * GetBlockIdx(); begin < td.elements;
             begin += step) {
            const int64_t left = td.elements - begin;
            ProcessTile(begin, static_cast<uint32_t>(left < td.tileElements ? left : td.tileElements));
        }
    }

private:
    __aicore__ inline LocalTensor<T> CopyIn(TQue<QuePosition::VECIN, 1>& queue, const GlobalTensor<T>& from,
                                            uint32_t count) {
        LocalTensor<T> tile = queue.template AllocTensor<T>();
        DataCopyExtParams copy{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
        DataCopyPadExtParams<T> pad{false, 0, 0, 0};
        DataCopyPad(tile, from, copy, pad);
        queue.EnQue(tile);
        return queue.template DeQue<T>();
    }

    __aicore__ inline void ProcessTile(int64_t begin, uint32_t count) {
        LocalTensor<T> x = CopyIn(xQueue, xGm[begin], count);
        LocalTensor<T> y = CopyIn(yQueue, yGm[begin], count);
        LocalTensor<T> z = zQueue.template AllocTensor<T>();
        Muls(y, y, static_cast<T>(td.scale), count);
        PipeBarrier<PIPE_V>();
        Add(z, x, y, count);
        xQueue.FreeTensor(x);
        yQueue.FreeTensor(y);
        if constexpr (HAS_BIAS) {
            LocalTensor<T> bias = CopyIn(biasQueue, biasGm[begin], count);
            PipeBarrier<PIPE_V>();
            Add(z, z, bias, count);
            biasQueue.FreeTensor(bias);
        }
        zQueue.EnQue(z);
        z = zQueue.template DeQue<T>();
        DataCopyExtParams copy{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
        DataCopyPad(zGm[begin], z, copy);
        zQueue.FreeTensor(z);
    }

    const ScaledAddTilingData& td;
    TPipe pipe;
    TQue<QuePosition::VECIN, 1> xQueue, yQueue, biasQueue;
    TQue<QuePosition::VECOUT, 1> zQueue;
    GlobalTensor<T> xGm, yGm, biasGm, zGm;
};

extern "C" __global__ __aicore__ void scaled_add(GM_ADDR x, GM_ADDR y, GM_ADDR bias, GM_ADDR z, GM_ADDR workspace,
                                                 GM_ADDR tiling) {
    GET_TILING_DATA(tilingData, tiling);
    if (TILING_KEY_IS(0)) {
        KernelScaledAdd<DTYPE_X, false> op(tilingData);
        op.Init(x, y, bias, z);
        op.Process();
    } else if (TILING_KEY_IS(1)) {
        KernelScaledAdd<DTYPE_X, true> op(tilingData);
        op.Init(x, y, bias, z);
        op.Process();
    }
}
