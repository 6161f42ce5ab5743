// Copy pieces of a long row between GM and UB. A piece is a chunk or its first part. No memory past a piece is
// accessed.
//
// The DMA of Ascend310P copies only whole 32-byte blocks. There a piece must have at least 32 bytes, and a second DMA
// copies its last 32 bytes. In UB these bytes are in a tail block, which follows the memory of a whole chunk.
#pragma once

#include "kernel_operator.h"
#include "row_bursts.h"
#include "row_steps.h"
#include "vector_steps.h"

namespace memory {

template <typename T>
class RowPieces {
public:
    // ascending: memory for the byte offsets of the elements of one block. chunk: number of elements of a chunk.
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

    // Waits for the vector instructions that compute a piece, stores the piece and frees its buffer.
    template <typename Queue>
    __aicore__ inline void StoreQueued(GM_ADDR memory, Queue* queue, LocalTensor<T> piece, int64_t first,
                                       int32_t count) {
        queue->EnQue(piece);
        piece = queue->template DeQue<T>();
        Store(memory, piece, first, count);
        queue->FreeTensor(piece);
    }

    // Converts a loaded piece of `count` elements to float32 and sets lanes [count, lanes) to 0. These lanes are within
    // the last 32-byte block of the piece.
    __aicore__ inline void Widen(LocalTensor<float> wide, LocalTensor<T> piece, int32_t count, int32_t lanes) {
#if __CCE_AICORE__ == 200
        int32_t loaded = count;
#else
        int32_t loaded = lanes;  // Load() has filled the last block with zeros
#endif
        CopyFromTail(piece, count);
        if constexpr (sizeof(T) == sizeof(float)) {
            AscendC::Muls(wide, piece, 1.0f, loaded);
        } else {
            AscendC::Cast(wide, piece, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(loaded));
        }
        VectorBarrier();
#if __CCE_AICORE__ == 200
        // The DMA of this SoC does not pad.
        ClearLanes(wide, 0, 1, LaneRange{count, lanes});
#endif
    }

    // Copies the end of a loaded piece from the tail block to its place after the whole blocks.
    __aicore__ inline void CopyFromTail(LocalTensor<T> piece, int32_t count) {
#if __CCE_AICORE__ == 200
        if (Rest(count) == 0) return;
        AscendC::Gather(piece[Aligned(count)], piece[tail_], ascending_, Bytes(kBlockItems - Rest(count)),
                        static_cast<uint32_t>(Rest(count)));
        VectorBarrier();
#endif
    }
    // Copies the last 32 bytes of a computed piece to the tail block, from which Store() reads them.
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

    // Elements of a piece in whole blocks, and after the whole blocks.
    __aicore__ inline int32_t Aligned(int32_t count) const { return count / kBlockItems * kBlockItems; }
    __aicore__ inline int32_t Rest(int32_t count) const { return count % kBlockItems; }
    __aicore__ inline uint32_t Bytes(int32_t elements) const { return static_cast<uint32_t>(elements) * sizeof(T); }

    LocalTensor<uint32_t> ascending_;  // the byte offset of each element of a block
    uint32_t tail_ = 0;                // offset of the tail block in a piece's buffer, in elements
};

}  // namespace memory
