// The gradient of a scale that all rows share. Each core adds its rows in UB. Then the sums of all cores are added in
// GM:
// - usually by atomic DMAs, in the order in which the cores finish;
// - in deterministic mode (RmsNormTilingData::sums_pitch is not 0) in the order of the cores, by way of a workspace
// with
//   the sums of each core. When all cores have finished, each core adds all sums of some elements. Ascend310P cannot
//   wait for all cores without a workspace of zeros. There the cores add their sums one after another.
#pragma once

#include "../memory/row_bursts.h"
#include "../memory/row_pieces.h"
#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

class DscaleRows {
public:
    // buffer: width + kDscaleExtraFloats floats, width a multiple of 8.
    __aicore__ inline void Init(LocalTensor<float> buffer, int32_t width, GM_ADDR dscale) {
        FloatAllocator parts(buffer);
        sums_ = parts.Take(width);
        tail_block_ = parts.Take(kBlockFloats);
        width_ = width;
        pieces_.Init(parts.Take(kBlockFloats).ReinterpretCast<uint32_t>(), width);
        dscale_ = dscale;
    }

    // Call once per core, at the begin of the kernel, before other uses of temp. In deterministic mode: workspace has
    // the sums of all cores; temp has at least kRowNormStats * kRowNormSlots floats.
    __aicore__ inline void Prepare(GM_ADDR workspace, const RmsNormTilingData* tiling, LocalTensor<float> temp) {
        if (tiling->sums_pitch != 0) {
            all_sums_ = workspace;
            pitch_ = tiling->sums_pitch;
            common_ = &tiling->common;
#if __CCE_AICORE__ == 200
            turns_ = TensorAt<int32_t>(workspace, AscendC::GetBlockNum() * pitch_);
            turn_temp_ = temp.ReinterpretCast<int32_t>();
            AscendC::InitDetermineComputeWorkspace(turns_, turn_temp_);
#endif
        }
#if __CCE_AICORE__ == 200
        pieces_.BuildOffsets(tail_block_);
#endif
        AscendC::Duplicate(sums_, 0.0f, width_);
    }

    // One sum for each element of a row.
    __aicore__ inline LocalTensor<float> Sums() const { return sums_; }

    // Adds `count` consecutive rows [width] to the sums. Destroys the rows.
    __aicore__ inline void AddRows(LocalTensor<float> rows, int32_t count) { AddRows(rows, count, width_); }

    // Call once per core, after its last row, if UB has the sums of whole rows: adds them to elements [0, n) of dscale.
    // scratch: memory of at least one block.
    __aicore__ inline void FinishRows(int64_t n, LocalTensor<float> scratch) {
        auto count = static_cast<int32_t>(n);
        if (all_sums_ == nullptr) {
            AddToDscale(0, count);
            return;
        }
        SyncPipes<AscendC::HardEvent::V_MTE3>();
        AscendC::DataCopy(OwnSums(0), sums_, Aligned(count));
        AddSumsOfCores(n, scratch);
    }

    // ---- a piece of a row at a time: UB has the sums of `count` elements from element `first` of one row

    // Call once per core, before the first row.
    __aicore__ inline void PreparePieces(int64_t n) {
        if (all_sums_ == nullptr) return;
        SyncPipes<AscendC::HardEvent::V_MTE3>();
        for (int64_t at = 0; at < n; at += width_) AscendC::DataCopy(OwnSums(at), sums_, Aligned(CountAt(at, n)));
        SyncPipes<AscendC::HardEvent::MTE3_V>();
    }

    __aicore__ inline void AddPiece(int64_t first, int32_t count) {
        if (all_sums_ == nullptr) {
            AddToDscale(first, count);
            return;
        }
        SyncPipes<AscendC::HardEvent::V_MTE3>();
        AscendC::SetAtomicAdd<float>();
        AscendC::DataCopy(OwnSums(first), sums_, Aligned(count));
        AscendC::SetAtomicNone();
        SyncPipes<AscendC::HardEvent::MTE3_V>();
    }

    // Call once per core, after its last row. scratch: memory of at least one block.
    __aicore__ inline void FinishPieces(int64_t n, LocalTensor<float> scratch) {
        if (all_sums_ != nullptr) AddSumsOfCores(n, scratch);
    }

private:
    __aicore__ inline void AddRows(LocalTensor<float> rows, int32_t count, int32_t width) {
        AddRowsAsTree(rows, count, width);
        AscendC::Add(sums_, sums_, rows, width);
    }

    // Adds the first `count` sums atomically to elements [first, first + count) of dscale.
    __aicore__ inline void AddToDscale(int64_t first, int32_t count) {
#if __CCE_AICORE__ == 200
        if (count < kBlockFloats) {
            AddFewToDscale(TensorAt<float>(dscale_, first), count);
            return;
        }
        CopyLastBlockToTail(count);
#endif
        SyncPipes<AscendC::HardEvent::V_MTE3>();
        AscendC::SetAtomicAdd<float>();
        pieces_.Store(dscale_, sums_, first, count);
        AscendC::SetAtomicNone();
        SyncPipes<AscendC::HardEvent::MTE3_V>();
    }

    // ---- the sums of all cores in the workspace

    __aicore__ inline uint32_t Aligned(int32_t count) const {
        return static_cast<uint32_t>(RoundUp(count, kBlockFloats));
    }
    __aicore__ inline int32_t CountAt(int64_t first, int64_t end) const { return CountAt(first, end, width_); }
    __aicore__ inline int32_t CountAt(int64_t first, int64_t end, int32_t most) const {
        return end - first < most ? static_cast<int32_t>(end - first) : most;
    }
    __aicore__ inline AscendC::GlobalTensor<float> SumsOf(int64_t core, int64_t first) const {
        return TensorAt<float>(all_sums_, core * pitch_ + first);
    }
    __aicore__ inline AscendC::GlobalTensor<float> OwnSums(int64_t first) const {
        return SumsOf(AscendC::GetBlockIdx(), first);
    }

#if __CCE_AICORE__ == 200
    // Adds the core's own sums when it is its turn.
    __aicore__ inline void AddSumsOfCores(int64_t n, LocalTensor<float>) {
        AscendC::WaitPreBlock(turns_, turn_temp_);
        for (int64_t at = 0; at < n; at += width_) {
            SyncPipes<AscendC::HardEvent::MTE3_MTE2>();
            AscendC::DataCopy(sums_, OwnSums(at), Aligned(CountAt(at, n)));
            SyncPipes<AscendC::HardEvent::MTE2_V>();
            AddToDscale(at, CountAt(at, n));
        }
        AscendC::NotifyNextBlock(turns_, turn_temp_);
    }
#else
    // Adds the sums of all cores, for this core's share of the elements. Every element belongs to one core.
    __aicore__ inline void AddSumsOfCores(int64_t n, LocalTensor<float> scratch) {
        AscendC::SyncAll();
        Share own = ShareOf(n, kBlockFloats, AscendC::GetBlockNum(), AscendC::GetBlockIdx());
        int64_t end = own.first + own.count;
        // Sums of whole rows may be wider than scratch.
        int32_t most = MinOf(width_, static_cast<int32_t>(scratch.GetSize()) / kBlockFloats * kBlockFloats);
        for (int64_t at = own.first; at < end; at += most) AddSumsOfPiece(at, CountAt(at, end, most), scratch);
    }

    __aicore__ inline void AddSumsOfPiece(int64_t first, int32_t count, LocalTensor<float> scratch) {
        auto width = static_cast<int32_t>(Aligned(count));
        int64_t cores = AscendC::GetBlockNum(), most = scratch.GetSize() / static_cast<uint32_t>(width);
        RowBursts<float> bursts;
        bursts.Init(common_, count, width);
        AscendC::Duplicate(sums_, 0.0f, width);
        VectorBarrier();
        for (int64_t core = 0; core < cores; core += most) {
            int64_t loaded = cores - core < most ? cores - core : most;
            SyncPipes<AscendC::HardEvent::V_MTE2>();
            bursts.LoadRows(scratch, all_sums_, core * pitch_ + first, loaded, pitch_, count);
            SyncPipes<AscendC::HardEvent::MTE2_V>();
            AddRows(scratch, static_cast<int32_t>(loaded), width);
            VectorBarrier();
        }
        AddToDscale(first, count);
    }
#endif

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
    __aicore__ inline void AddFewToDscale(AscendC::GlobalTensor<float> target, int32_t count) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t i = 0; i < count; ++i) {
            auto at = static_cast<uint32_t>(i);
            target.SetValue(at, target.GetValue(at) + sums_.GetValue(at));
        }
        AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::ENTIRE_DATA_CACHE>(target);
    }

    AscendC::GlobalTensor<int32_t> turns_;
    LocalTensor<int32_t> turn_temp_;
#endif

    LocalTensor<float> sums_, tail_block_;
    RowPieces<float> pieces_;
    int32_t width_ = 0;
    GM_ADDR dscale_ = nullptr;
    GM_ADDR all_sums_ = nullptr;  // the sums of core 0; NULL: the cores add in any order
    const CommonTiling* common_ = nullptr;
    int64_t pitch_ = 0;  // distance of the sums of two cores, in floats
};

}  // namespace norm
