// The kernel of rms_norm_backward for rows that are too long for UB. It processes a row chunk by chunk, in two passes.
// The first pass adds the squares of the row and its products with g = grad * scale. The second pass computes the
// results. If squares leave the range of float32, the row needs more passes. The sums of dscale stay in UB if they fit.
// Otherwise the kernel adds grad * (normalized x) of each chunk of each row to dscale in GM.
#pragma once

#include "../memory/row_pieces.h"
#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "arguments.h"
#include "chunk_sums.h"
#include "dscale_rows.h"
#include "gradient_rows.h"
#include "kernel_operator.h"
#include "row_norm.h"
#include "scale_rows.h"
#include "stash_rows.h"

namespace norm {

using namespace memory;

// T: type of x and dx; ScaleT: type of scale and grad.
template <typename T, typename ScaleT>
class LongRmsNormBackwardKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                               const RmsNormBackwardArguments& arguments) {
        tiles_.Init(&tiling->common, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        Tile row{};
        if (!tiles_.Next(&row)) return;
        Init(pipe, tiling, arguments);
        if (tiling->keeps_dscale == 0) dscale_.PreparePieces(tiling->n);
        do {
            DifferentiateRow(row);
        } while (tiles_.Next(&row));
        if (tiling->keeps_dscale != 0) {
            dscale_.FinishRows(tiling->n, work_.template Get<float>());
        } else {
            dscale_.FinishPieces(tiling->n, work_.template Get<float>());
        }
    }

private:
    // The purpose of a pass over a row's chunks.
    enum class Pass { kSum, kLargest, kProducts, kWrite };

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                                const RmsNormBackwardArguments& arguments) {
        tiling_ = tiling;
        arguments_ = arguments;
        chunks_ = RowChunks{tiling->n, tiling->chunk};
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(tiling->common.queue_bytes));
        pipe->InitBuffer(grad_, 2, static_cast<uint32_t>(tiling->grad_queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(tiling->common.queue_bytes));
        pipe->InitBuffer(work_, static_cast<uint32_t>(tiling->common.work_bytes));
        pipe->InitBuffer(stats_, static_cast<uint32_t>(tiling->stats_bytes));
        pipe->InitBuffer(dscale_buffer_, static_cast<uint32_t>(tiling->dscale_bytes));
        FloatAllocator work(work_.template Get<float>());
        rows_ = work.Take(tiling->chunk);
        g_ = work.Take(tiling->chunk);
        temp_ = work.Take(tiling->chunk);
        squares_.Init(work.Take(tiling->levels * kRepeatFloats));
        products_.Init(work.Take(tiling->levels * kRepeatFloats));
        sums_ = work.Take(kRepeatFloats);
        largest_ = work.Take(kBlockFloats);
        pieces_.Init(work.Take(kOffsets).template ReinterpretCast<uint32_t>(), tiling->chunk);
        grad_pieces_.Init(work.Take(kOffsets).template ReinterpretCast<uint32_t>(), tiling->chunk);
#if __CCE_AICORE__ == 200
        pieces_.BuildOffsets(temp_);
        grad_pieces_.BuildOffsets(temp_);
#endif
        scale_rows_.Init(pipe, tiling->scale_bytes, tiling->scale_raw_bytes,
                         ScaleLayout{kScaleDense, nullptr, nullptr});
        stash_.Init(tiling->stash);
        LocalTensor<float> stats = stats_.template Get<float>();
        dscale_.Init(dscale_buffer_.template Get<float>(),
                     tiling->dscale_bytes / static_cast<int32_t>(sizeof(float)) - kDscaleExtraFloats, arguments.dscale);
        dscale_.Prepare(arguments.workspace, tiling, stats);
        norm_.Init(&tiling->norm, stats, kRowNormSlots);
        gradient_.Init(&norm_, tiling->inverse_n, stats[kRowNormSlots * kRowNormStats], kRowNormSlots);
    }

    __aicore__ inline void DifferentiateRow(const Tile& row) {
        x_offset_ = TileOffset(row, tiling_->common.side[0].x_stride);
        dx_offset_ = TileOffset(row, tiling_->common.side[0].out_stride);
        grad_offset_ = TileOffset(row, tiling_->common.side[1].x_stride);
        factor_ = 1.0f;
        RunPass(Pass::kSum);
        squares_.Total(sums_, chunks_.Count());
        bool out_of_range = norm_.FindInverseRmsFromSums(sums_, tiling_->norm.n_epsilon);
        if (out_of_range) {
            SumMultipliedRow();
        } else {
            products_.Total(sums_, chunks_.Count());
            gradient_.FindMeanFromProductsWithX(sums_);
        }
        RunPass(Pass::kWrite);
        scale_rows_.EndRow(tiling_->keeps_scale != 0);
    }

    // For a row with squares outside the range of float32: multiplies the row by a power of two and adds its squares
    // again. The products of g with the multiplied row could leave the range, so the kernel adds the products of g with
    // the normalized row.
    __aicore__ inline void SumMultipliedRow() {
        AscendC::Duplicate(largest_, 0.0f, kBlockFloats);
        RunPass(Pass::kLargest);
        SyncPipes<AscendC::HardEvent::V_S>();
        // The next write of largest_ (for a later row) follows the SyncPipes<S_V>() in FindInverseRmsFromSums(), so it
        // waits for the reads of the scalar unit here.
        RowMultiplier multiplier = norm_.MultiplierFor(largest_);
        factor_ = multiplier.factor;
        RunPass(Pass::kSum);
        squares_.Total(sums_, chunks_.Count());
        norm_.FindInverseRmsFromSums(sums_, multiplier.n_epsilon);
        gradient_.ScaleUpInverses(1);  // 2^15 times 1 / RMS, so that small results are not subnormal
        RunPass(Pass::kProducts);
        products_.Total(sums_, chunks_.Count());
        gradient_.FindMean(sums_);
    }

    // ---- a row's chunks, one after another

    __aicore__ inline void RunPass(Pass pass) {
        LoadChunk(0);
        for (int64_t k = 0; k < chunks_.Count(); ++k) {
            int32_t count = chunks_.ElementsOf(k), lanes = RoundUp(count, kBlockFloats);
            LocalTensor<T> x = in_.template DeQue<T>();
            LocalTensor<ScaleT> grad = grad_.template DeQue<ScaleT>();
            if (k + 1 < chunks_.Count()) LoadChunk(k + 1);
            pieces_.Widen(rows_, x, count, lanes);
            in_.FreeTensor(x);
            stash_.Round(rows_, temp_, lanes);
            if (pass == Pass::kLargest) {
                UpdateLargest(largest_, rows_, temp_, lanes);
            } else {
                if (factor_ != 1.0f) AscendC::Muls(rows_, rows_, factor_, lanes);
                FindG(grad, k, count);  // the barrier in its Widen() also covers the Muls of the rows
                if (pass == Pass::kSum)
                    AddSums(k, lanes);
                else
                    NormalizeChunk(pass, grad, k, count);
            }
            grad_.FreeTensor(grad);
        }
    }

    __aicore__ inline void LoadChunk(int64_t k) {
        int64_t at = k * tiling_->chunk;
        LocalTensor<T> x = in_.template AllocTensor<T>();
        pieces_.Load(x, arguments_.x, x_offset_ + at, chunks_.ElementsOf(k));
        in_.EnQue(x);
        LocalTensor<ScaleT> grad = grad_.template AllocTensor<ScaleT>();
        grad_pieces_.Load(grad, arguments_.grad, grad_offset_ + at, chunks_.ElementsOf(k));
        grad_.EnQue(grad);
    }

    // g_ = grad * scale, for chunk k.
    __aicore__ inline void FindG(LocalTensor<ScaleT> grad, int64_t k, int32_t count) {
        int32_t lanes = RoundUp(count, kBlockFloats);
        grad_pieces_.Widen(g_, grad, count, lanes);
        LocalTensor<float> scale =
            scale_rows_.Piece(arguments_.scale, 0, k * tiling_->chunk, count, tiling_->keeps_scale != 0);
        AscendC::Mul(g_, g_, scale, lanes);
    }

    // ---- sums

    __aicore__ inline void AddSums(int64_t k, int32_t lanes) {
        AscendC::Mul(temp_, rows_, rows_, lanes);
        squares_.Add(temp_, k, lanes);
        AddProducts(k, lanes);
    }

    __aicore__ inline void AddProducts(int64_t k, int32_t lanes) {
        AscendC::Mul(temp_, rows_, g_, lanes);
        products_.Add(temp_, k, lanes);
    }

    // ---- results

    // Normalizes chunk k. Then adds the products of the chunk with g, or writes the results.
    __aicore__ inline void NormalizeChunk(Pass pass, LocalTensor<ScaleT> grad, int64_t k, int32_t count) {
        int32_t lanes = RoundUp(count, kBlockFloats);
        if (factor_ != 1.0f)  // SumMultipliedRow() has scaled 1 / RMS up
            gradient_.NormalizeWithScaledUpInverse(rows_, lanes);
        else
            norm_.NormalizePiece(rows_, rows_, lanes);
        if (pass == Pass::kProducts)
            AddProducts(k, lanes);
        else
            WriteResults(grad, k, count);
    }

    __aicore__ inline void WriteResults(LocalTensor<ScaleT> grad, int64_t k, int32_t count) {
        int64_t at = k * tiling_->chunk;
        int32_t lanes = RoundUp(count, kBlockFloats);
        WriteDx(at, count);
        stash_.template RoundToStashThenTo<T>(rows_, temp_, lanes);
        grad_pieces_.Widen(g_, grad, count, lanes);
        if (tiling_->keeps_dscale != 0) {
            AscendC::Mul(rows_, rows_, g_, lanes);
            VectorBarrier();
            LocalTensor<float> sums = dscale_.Sums()[static_cast<uint32_t>(at)];
            AscendC::Add(sums, sums, rows_, lanes);
            VectorBarrier();
        } else {
            AscendC::Mul(dscale_.Sums(), rows_, g_, lanes);
            dscale_.AddPiece(at, count);
        }
    }

    __aicore__ inline void WriteDx(int64_t at, int32_t count) {
        int32_t lanes = RoundUp(count, kBlockFloats);
        PitchedRows wide = OneRow(temp_);
        LocalTensor<T> dx = out_.template AllocTensor<T>();
        if constexpr (sizeof(T) == sizeof(float)) wide.data = dx;
        gradient_.Differentiate(wide, OneRow(g_), OneRow(rows_), 1, lanes);
        if (factor_ != 1.0f) {
            gradient_.RescaleRow(wide.data, factor_, lanes);
            VectorBarrier();
        }
        if constexpr (sizeof(T) != sizeof(float))
            AscendC::Cast(dx, temp_, NarrowMode<T>(), static_cast<uint32_t>(lanes));
        pieces_.CopyToTail(dx, count);
        VectorBarrier();
        pieces_.StoreQueued(arguments_.dx, &out_, dx, dx_offset_ + at, count);
    }

    static constexpr int32_t kOffsets = 16;  // Gather offsets of the elements of a 32-byte block

    const RmsNormTilingData* tiling_ = nullptr;
    RmsNormBackwardArguments arguments_{};
    Tiles tiles_;
    RowNorm norm_;
    GradientRows gradient_;
    DscaleRows dscale_;
    StashRows stash_;
    ChunkSums squares_, products_;
    ScaleRows<ScaleT> scale_rows_;
    RowPieces<T> pieces_;
    RowPieces<ScaleT> grad_pieces_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_, grad_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, stats_, dscale_buffer_;
    LocalTensor<float> rows_, g_, temp_, sums_, largest_;
    RowChunks chunks_{};
    int64_t x_offset_ = 0, dx_offset_ = 0, grad_offset_ = 0;
    float factor_ = 1.0f;  // the power of two by which the row is multiplied
};

}  // namespace norm
