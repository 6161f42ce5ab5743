// The gradient of a scale that all rows share. Each core adds its rows in UB. Atomic DMAs then add the sums of all
// cores in GM.
#pragma once

#include "../memory/row_bursts.h"
#include "../memory/row_pieces.h"
#include "../memory/vector_steps.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

class DscaleRows {
public:
    // buffer: width + kDscaleExtraFloats floats, width a multiple of 8.
    __aicore__ inline void Init(LocalTensor<float> buffer, int32_t width) {
        FloatAllocator parts(buffer);
        sums_ = parts.Take(width);
        tail_block_ = parts.Take(kBlockFloats);
        width_ = width;
        pieces_.Init(parts.Take(kBlockFloats).ReinterpretCast<uint32_t>(), width);
    }

    // Call once per core, before the first row.
    __aicore__ inline void Prepare() {
#if __CCE_AICORE__ == 200
        pieces_.BuildOffsets(tail_block_);
#endif
        AscendC::Duplicate(sums_, 0.0f, width_);
    }

    // One sum for each element of a row.
    __aicore__ inline LocalTensor<float> Sums() const { return sums_; }

    // Adds `count` consecutive rows [width] to the sums. Each step adds the second half of the rows to the first half.
    // Destroys the rows.
    __aicore__ inline void AddRows(LocalTensor<float> rows, int32_t count) {
        while (count > 1) {
            int32_t half = 1;
            while (2 * half < count) half *= 2;
            AscendC::Add(rows, rows, rows[half * width_], (count - half) * width_);
            VectorBarrier();
            count = half;
        }
        AscendC::Add(sums_, sums_, rows, width_);
    }

    // Adds the first `count` sums atomically to elements [first, first + count) in GM.
    __aicore__ inline void Flush(GM_ADDR dscale, int64_t first, int32_t count) {
#if __CCE_AICORE__ == 200
        if (count < kBlockFloats) {
            FlushShort(TensorAt<float>(dscale, first), count);
            return;
        }
        CopyLastBlockToTail(count);
#endif
        SyncPipes<AscendC::HardEvent::V_MTE3>();
        AscendC::SetAtomicAdd<float>();
        pieces_.Store(dscale, sums_, first, count);
        AscendC::SetAtomicNone();
        SyncPipes<AscendC::HardEvent::MTE3_V>();
    }

private:
#if __CCE_AICORE__ == 200
    // The tail block overlaps the previous block in GM. The overlapping elements of the tail are set to 0, so that they
    // are added only once.
    __aicore__ inline void CopyLastBlockToTail(int32_t count) {
        pieces_.CopyToTail(sums_, count);
        VectorBarrier();
        if (count % kBlockFloats == 0) return;
        AscendC::Duplicate(tail_block_, 0.0f, kBlockFloats - count % kBlockFloats);
    }

    // Adds fewer than 8 sums by the scalar unit, because a DMA copies at least 32 bytes. One core processes all rows of
    // this size.
    __aicore__ inline void FlushShort(AscendC::GlobalTensor<float> target, int32_t count) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t i = 0; i < count; ++i) {
            auto at = static_cast<uint32_t>(i);
            target.SetValue(at, target.GetValue(at) + sums_.GetValue(at));
        }
        AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::ENTIRE_DATA_CACHE>(target);
    }
#endif

    LocalTensor<float> sums_, tail_block_;
    RowPieces<float> pieces_;
    int32_t width_ = 0;
};

}  // namespace norm
