// The chunks of a long row, and two reductions over all chunks: to 64 partial sums, and to the largest magnitude.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/vector_steps.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

// The division of a long row into chunks. RowPieces copies the chunks.
struct RowChunks {
    int64_t elements;  // elements of the row
    int64_t chunk;     // elements of a chunk; the last chunk may have fewer

    __aicore__ inline int64_t Count() const { return (elements + chunk - 1) / chunk; }

    // The number of elements of chunk k.
    __aicore__ inline int32_t ElementsOf(int64_t k) const {
        int64_t left = elements - k * chunk;
        return static_cast<int32_t>(left < chunk ? left : chunk);
    }
};

// Updates `largest` by the magnitudes of `numbers`. The maximum of the 8 elements of `largest` is the largest magnitude
// so far. temp: scratch memory of `width` floats. The caller adds a vector barrier before each call and
// SyncPipes<V_S>() after the last call.
__aicore__ inline void UpdateLargest(LocalTensor<float> largest, LocalTensor<float> numbers, LocalTensor<float> temp,
                                     int32_t width) {
    AscendC::Abs(temp, numbers, width);
    VectorBarrier();
    FoldRows<RowOp::kMax>(temp, 0, 1, width, kBlockFloats);
    AscendC::Max(largest, largest, temp, kBlockFloats);
}

// Adds chunks in a binary tree. Level `level` of levels_ holds the sum of 2^level chunks if bit `level` of the number
// of chunks is set. The number of additions that a term goes through grows with the logarithm of the number of chunks.
class ChunkSums {
public:
    // levels: 64 floats per level.
    __aicore__ inline void Init(LocalTensor<float> levels) { levels_ = levels; }

    // Adds the `width` numbers of chunk k. Their buffer has at least 64 floats. Destroys the numbers.
    __aicore__ inline void Add(LocalTensor<float> numbers, int64_t k, int32_t width) {
        if (width < kRepeatFloats) AscendC::Duplicate(numbers[width], 0.0f, kRepeatFloats - width);
        VectorBarrier();
        FoldRows<RowOp::kAdd>(numbers, 0, 1, width, kRepeatFloats);
        int32_t level = 0;
        for (int64_t bits = k; bits % 2 != 0; bits /= 2, ++level) {
            AscendC::Add(numbers, numbers, levels_[level * kRepeatFloats], kRepeatFloats);
            VectorBarrier();
        }
        AscendC::DataCopy(levels_[level * kRepeatFloats], numbers, static_cast<uint32_t>(kRepeatFloats));
        VectorBarrier();
    }

    // sums: receives 64 partial sums of all chunks.
    __aicore__ inline void Total(LocalTensor<float> sums, int64_t chunks) {
        AscendC::Duplicate(sums, 0.0f, kRepeatFloats);
        VectorBarrier();
        int32_t level = 0;
        for (int64_t bits = chunks; bits > 0; bits /= 2, ++level) {
            if (bits % 2 == 0) continue;
            AscendC::Add(sums, sums, levels_[level * kRepeatFloats], kRepeatFloats);
            VectorBarrier();
        }
    }

private:
    LocalTensor<float> levels_;
};

}  // namespace norm
