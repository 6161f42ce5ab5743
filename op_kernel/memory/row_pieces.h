// Copy pieces of a long row, which start at a chunk's border, between GM and UB. No memory past a piece is accessed.
// Ascend310P's DMA copies only whole 32-byte blocks. There a piece must have 32 bytes or more, and a second DMA copies
// its last 32 bytes to or from the tail block after the buffer's chunk.
#pragma once

#include "kernel_operator.h"
#include "row_bursts.h"
#include "row_steps.h"
#include "vector_steps.h"

namespace memory {

template <typename T>
class RowPieces {
public:
    // ascending: memory for the byte offsets of a block's elements; chunk: number of elements of a chunk.
    __aicore__ inline void Init(LocalTensor<uint32_t> ascending, int32_t chunk) {
        ascending_ = ascending;
        tail_ = static_cast<uint32_t>(chunk);
    }

    __aicore__ inline void BuildOffsets(LocalTensor<float> temp) {
        FillAscending(temp, kBlockItems);
        ToByteOffsets(ascending_, temp, sizeof(T), kBlockItems);
    }

    __aicore__ inline void Load(LocalTensor<T> dst, GM_ADDR memory, int64_t first, int32_t count) {
        AscendC::GlobalTensor<T> source = TensorAt<T>(memory, first);
#if __CCE_AICORE__ == 200
        AscendC::DataCopy(dst, source, static_cast<uint32_t>(Aligned(count)));
        if (Rest(count) > 0)
            AscendC::DataCopy(dst[tail_], TensorAt<T>(memory, first + count - kBlockItems),
                              static_cast<uint32_t>(kBlockItems));
#else
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count) * sizeof(T), 0, 0, 0);
        auto fill = static_cast<uint8_t>(RoundUp(count, kBlockItems) - count);
        AscendC::DataCopyPad(dst, source, run, AscendC::DataCopyPadExtParams<T>(true, 0, fill, static_cast<T>(0.0f)));
#endif
    }

    __aicore__ inline void Store(GM_ADDR memory, LocalTensor<T> src, int64_t first, int32_t count) {
        AscendC::GlobalTensor<T> target = TensorAt<T>(memory, first);
#if __CCE_AICORE__ == 200
        AscendC::DataCopy(target, src, static_cast<uint32_t>(Aligned(count)));
        if (Rest(count) == 0) return;
        // Both DMAs write the same values where they overlap; the barrier keeps them from running at the same time.
        AscendC::PipeBarrier<PIPE_MTE3>();
        AscendC::DataCopy(TensorAt<T>(memory, first + count - kBlockItems), src[tail_],
                          static_cast<uint32_t>(kBlockItems));
#else
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count) * sizeof(T), 0, 0, 0);
        AscendC::DataCopyPad(target, src, run);
#endif
    }

    // Queues a piece, waits for its instructions and stores it.
    template <typename Queue>
    __aicore__ inline void StoreQueued(GM_ADDR memory, Queue* queue, LocalTensor<T> piece, int64_t first,
                                       int32_t count) {
        queue->EnQue(piece);
        piece = queue->template DeQue<T>();
        Store(memory, piece, first, count);
        queue->FreeTensor(piece);
    }

    // Converts a loaded piece to `lanes` lanes of float32, which end within the piece's last block of T. The lanes
    // from `count` on become 0.
    __aicore__ inline void Widen(LocalTensor<float> wide, LocalTensor<T> piece, int32_t count, int32_t lanes) {
#if __CCE_AICORE__ == 200
        int32_t defined = count;
#else
        int32_t defined = lanes;
#endif
        CopyFromTail(piece, count);
        if constexpr (sizeof(T) == sizeof(float)) {
            AscendC::Muls(wide, piece, 1.0f, defined);
        } else {
            AscendC::Cast(wide, piece, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(defined));
        }
        VectorBarrier();
#if __CCE_AICORE__ == 200
        // The DMA of this SoC does not pad.
        ClearLanes(wide, 0, 1, LaneRange{count, lanes});
#endif
    }

    // CopyFromTail() copies the end of a piece from the tail block, where Load() puts it, to its place. CopyToTail()
    // copies the end of a piece to the tail block, where Store() reads it.
    __aicore__ inline void CopyFromTail(LocalTensor<T> piece, int32_t count) {
#if __CCE_AICORE__ == 200
        if (Rest(count) == 0) return;
        AscendC::Gather(piece[Aligned(count)], piece[tail_], ascending_, Bytes(kBlockItems - Rest(count)),
                        static_cast<uint32_t>(Rest(count)));
        VectorBarrier();
#endif
    }
    __aicore__ inline void CopyToTail(LocalTensor<T> piece, int32_t count) {
#if __CCE_AICORE__ == 200
        if (Rest(count) == 0) return;
        VectorBarrier();
        AscendC::Gather(piece[tail_], piece, ascending_, Bytes(count - kBlockItems),
                        static_cast<uint32_t>(kBlockItems));
#endif
    }

private:
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(T));

    __aicore__ inline int32_t Aligned(int32_t count) const { return count / kBlockItems * kBlockItems; }
    __aicore__ inline int32_t Rest(int32_t count) const { return count % kBlockItems; }
    __aicore__ inline uint32_t Bytes(int32_t elements) const { return static_cast<uint32_t>(elements) * sizeof(T); }

    LocalTensor<uint32_t> ascending_;
    uint32_t tail_ = 0;
};

}  // namespace memory
