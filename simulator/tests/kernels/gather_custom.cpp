// y[i] = table[index[i]]: the table stays in UB; indices are copied in tiles and converted to byte offsets in UB.
#include "kernel_operator.h"

using namespace AscendC;

struct GatherCustomTilingData {
    uint32_t tableLength;
    uint32_t indexLength;
};

class KernelGather {
public:
    __aicore__ inline KernelGather() {}
    __aicore__ inline void Init(GM_ADDR table, GM_ADDR index, GM_ADDR y, uint32_t tableLength, uint32_t indexLength) {
        this->tableLength = tableLength;
        this->indexLength = indexLength;
        tableGm.SetGlobalBuffer((__gm__ float *)table, tableLength);
        indexGm.SetGlobalBuffer((__gm__ int32_t *)index, indexLength);
        yGm.SetGlobalBuffer((__gm__ float *)y, indexLength);
        pipe.InitBuffer(tableBuf, tableLength * sizeof(float));
        pipe.InitBuffer(inQueue, 2, TILE * sizeof(int32_t));
        pipe.InitBuffer(outQueue, 2, TILE * sizeof(float));
    }
    __aicore__ inline void Process() {
        LocalTensor<float> table = tableBuf.Get<float>();
        DataCopyPad(table, tableGm, {1, static_cast<uint32_t>(tableLength * sizeof(float)), 0, 0, 0},
                    {false, 0, 0, 0});
        // The table passes through no queue, so pipe V waits for its copy by an explicit event.
        const int32_t eventId = static_cast<int32_t>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_V));
        SetFlag<HardEvent::MTE2_V>(eventId);
        WaitFlag<HardEvent::MTE2_V>(eventId);
        for (uint32_t begin = GetBlockIdx() * TILE; begin < indexLength; begin += GetBlockNum() * TILE) {
            const uint32_t count = indexLength - begin < TILE ? indexLength - begin : TILE;
            CopyIn(begin, count);
            Compute(table, count);
            CopyOut(begin, count);
        }
    }

private:
    static constexpr uint32_t TILE = 64;

    __aicore__ inline void CopyIn(uint32_t begin, uint32_t count) {
        LocalTensor<int32_t> indexLocal = inQueue.AllocTensor<int32_t>();
        DataCopyPad(indexLocal, indexGm[begin], {1, static_cast<uint32_t>(count * sizeof(int32_t)), 0, 0, 0},
                    {false, 0, 0, 0});
        inQueue.EnQue(indexLocal);
    }
    __aicore__ inline void Compute(const LocalTensor<float> &table, uint32_t count) {
        LocalTensor<int32_t> indexLocal = inQueue.DeQue<int32_t>();
        LocalTensor<float> yLocal = outQueue.AllocTensor<float>();
        Muls(indexLocal, indexLocal, static_cast<int32_t>(sizeof(float)), count);
        PipeBarrier<PIPE_V>();
        Gather(yLocal, table, indexLocal.ReinterpretCast<uint32_t>(), 0, count);
        outQueue.EnQue(yLocal);
        inQueue.FreeTensor(indexLocal);
    }
    __aicore__ inline void CopyOut(uint32_t begin, uint32_t count) {
        LocalTensor<float> yLocal = outQueue.DeQue<float>();
        DataCopyPad(yGm[begin], yLocal, {1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0});
        outQueue.FreeTensor(yLocal);
    }

private:
    TPipe pipe;
    TBuf<QuePosition::VECCALC> tableBuf;
    TQue<QuePosition::VECIN, 1> inQueue;
    TQue<QuePosition::VECOUT, 1> outQueue;
    GlobalTensor<float> tableGm, yGm;
    GlobalTensor<int32_t> indexGm;
    uint32_t tableLength, indexLength;
};

extern "C" __global__ __aicore__ void gather_custom(GM_ADDR table, GM_ADDR index, GM_ADDR y, GM_ADDR workspace,
                                                    GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(GatherCustomTilingData);
    GET_TILING_DATA(tilingData, tiling);
    KernelGather op;
    op.Init(table, index, y, tilingData.tableLength, tilingData.indexLength);
    op.Process();
}
