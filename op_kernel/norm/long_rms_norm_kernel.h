// The kernel of rms_norm and add_rms_norm for rows that do not fit UB together with their results. It processes a row
// chunk by chunk, in two passes. The first pass adds the squares and the second one computes the result. If squares
// leave the range of float32, the row needs more passes. A row that fits UB as float32 stays there between the passes.
// Longer rows are loaded in each pass.
#pragma once

#include "../memory/row_pieces.h"
#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "arguments.h"
#include "chunk_sums.h"
#include "kernel_operator.h"
#include "row_norm.h"
#include "scale_rows.h"
#include "stash_rows.h"

namespace norm {

using namespace memory;

// T: type of x, the residual and the sum; ScaleT: type of scale and out.
template <typename T, typename ScaleT, bool adds>
class LongRmsNormKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                               const RmsNormArguments& arguments) {
        tiles_.Init(&tiling->common, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
        Tile row{};
        if (!tiles_.Next(&row)) return;
        Init(pipe, tiling, arguments);
        do {
            NormalizeRow(row);
        } while (tiles_.Next(&row));
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(T));

    // The purpose of a pass over a row's chunks.
    enum class Pass { kSum, kLargest, kWrite };

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                                const RmsNormArguments& arguments) {
        tiling_ = tiling;
        arguments_ = arguments;
        chunks_ = RowChunks{tiling->n, tiling->chunk};
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(tiling->common.queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(tiling->common.queue_bytes));
        if constexpr (adds) {
            pipe->InitBuffer(residual_, 2, static_cast<uint32_t>(tiling->sum_queue_bytes));
            pipe->InitBuffer(sum_, 2, static_cast<uint32_t>(tiling->sum_queue_bytes));
        }
        pipe->InitBuffer(row_buffer_, static_cast<uint32_t>(tiling->row_bytes));
        pipe->InitBuffer(work_, static_cast<uint32_t>(tiling->common.work_bytes));
        pipe->InitBuffer(stats_, static_cast<uint32_t>(tiling->stats_bytes));
        row_ = row_buffer_.template Get<float>();
        FloatAllocator work(work_.template Get<float>());
        piece_ = work.Take(tiling->chunk);
        temp_ = work.Take(tiling->chunk);
        squares_.Init(work.Take(tiling->levels * kRepeatFloats));
        sums_ = work.Take(kRepeatFloats);
        largest_ = work.Take(kBlockFloats);
        pieces_.Init(work.Take(kOffsets).template ReinterpretCast<uint32_t>(), tiling->chunk);
        out_pieces_.Init(work.Take(kOffsets).template ReinterpretCast<uint32_t>(), tiling->chunk);
#if __CCE_AICORE__ == 200
        pieces_.BuildOffsets(temp_);
        out_pieces_.BuildOffsets(temp_);
#endif
        scale_rows_.Init(pipe, tiling->scale_bytes, tiling->scale_raw_bytes,
                         ScaleLayout{tiling->scale_kind, tiling->inner, tiling->inner_stride});
        stash_.Init(tiling->stash);
        norm_.Init(&tiling->norm, stats_.template Get<float>(), kRowNormSlots);
    }

    __aicore__ inline void NormalizeRow(const Tile& row) {
        x_offset_ = TileOffset(row, tiling_->common.side[0].x_stride);
        out_offset_ = TileOffset(row, tiling_->common.side[0].out_stride);
        residual_offset_ = TileOffset(row, tiling_->common.side[1].x_stride);
        sum_offset_ = TileOffset(row, tiling_->common.side[1].out_stride);
        scale_offset_ = TileOffset(row, tiling_->scale_stride);
        row_is_in_ub_ = false;
        factor_ = 1.0f;
        RunPass(Pass::kSum);
        bool out_of_range = norm_.FindInverseRmsFromSums(Total(), tiling_->norm.n_epsilon);
        if (out_of_range) {
            // Multiply the row by a power of two and add its squares again.
            AscendC::Duplicate(largest_, 0.0f, kBlockFloats);
            RunPass(Pass::kLargest);
            SyncPipes<AscendC::HardEvent::V_S>();
            // The next write of largest_ (for a later row) follows the SyncPipes<S_V>() in FindInverseRmsFromSums(), so
            // it waits for the reads of the scalar unit here.
            RowMultiplier multiplier = norm_.MultiplierFor(largest_);
            factor_ = multiplier.factor;
            RunPass(Pass::kSum);
            norm_.FindInverseRmsFromSums(Total(), multiplier.n_epsilon);
        }
        RunPass(Pass::kWrite);
        scale_rows_.EndRow(tiling_->keeps_scale != 0);
    }

    // ---- a row's chunks, one after another

    __aicore__ inline void RunPass(Pass pass) {
        if (!row_is_in_ub_) LoadChunk(0);
        for (int64_t k = 0; k < chunks_.Count(); ++k) {
            int32_t count = chunks_.ElementsOf(k);
            LocalTensor<float> chunk = tiling_->keeps_row != 0 ? row_[static_cast<uint32_t>(k * tiling_->chunk)] : row_;
            if (!row_is_in_ub_) WidenChunk(chunk, k, count);
            int32_t padded = RoundUp(count, kBlockItems);
            if (pass == Pass::kSum) {
                AddSquares(chunk, k, padded);
            } else if (pass == Pass::kLargest) {
                FindLargest(chunk, padded);
            } else {
                Write(chunk, k, count);
            }
        }
        row_is_in_ub_ = tiling_->keeps_row != 0;
    }

    __aicore__ inline void LoadChunk(int64_t k) {
        int64_t at = k * tiling_->chunk;
        LocalTensor<T> x = in_.template AllocTensor<T>();
        pieces_.Load(x, arguments_.x, x_offset_ + at, chunks_.ElementsOf(k));
        in_.EnQue(x);
        if constexpr (adds) {
            LocalTensor<T> residual = residual_.template AllocTensor<T>();
            pieces_.Load(residual, arguments_.residual, residual_offset_ + at, chunks_.ElementsOf(k));
            residual_.EnQue(residual);
        }
    }

    // Converts chunk k to float32, adds the residual and rounds the sum. The padding after the chunk becomes 0. Also
    // starts to load the next chunk.
    __aicore__ inline void WidenChunk(LocalTensor<float> chunk, int64_t k, int32_t count) {
        LocalTensor<T> x = in_.template DeQue<T>(), residual;
        if constexpr (adds) residual = residual_.template DeQue<T>();
        if (k + 1 < chunks_.Count()) LoadChunk(k + 1);
        int32_t padded = RoundUp(count, kBlockItems);
        pieces_.Widen(chunk, x, count, padded);
        in_.FreeTensor(x);
        if constexpr (adds) {
            pieces_.Widen(piece_, residual, count, padded);
            residual_.FreeTensor(residual);
            AscendC::Add(chunk, chunk, piece_, padded);
            VectorBarrier();
            if constexpr (!kIsFloat) RoundTo<T>(chunk, piece_, padded);
        }
    }

    // ---- the sum of squares

    __aicore__ inline void AddSquares(LocalTensor<float> chunk, int64_t k, int32_t padded) {
        LocalTensor<float> values = StashedChunk(chunk, padded);
        AscendC::Mul(temp_, values, values, padded);
        squares_.Add(temp_, k, padded);
    }

    __aicore__ inline LocalTensor<float> Total() {
        squares_.Total(sums_, chunks_.Count());
        return sums_;
    }

    // Returns the chunk, rounded to the stash type and multiplied by the factor of the row.
    __aicore__ inline LocalTensor<float> StashedChunk(LocalTensor<float> chunk, int32_t padded) {
        if (stash_.IsFloat32() && factor_ == 1.0f) return chunk;
        CopyRounded(chunk, padded);
        AscendC::Muls(piece_, piece_, factor_, padded);
        VectorBarrier();
        return piece_;
    }

    // Copies the chunk into piece_, rounded to the stash type.
    __aicore__ inline void CopyRounded(LocalTensor<float> chunk, int32_t padded) {
        AscendC::DataCopy(piece_, chunk, static_cast<uint32_t>(padded));
        VectorBarrier();
        stash_.Round(piece_, temp_, padded);
    }

    __aicore__ inline void FindLargest(LocalTensor<float> chunk, int32_t padded) {
        CopyRounded(chunk, padded);
        UpdateLargest(largest_, piece_, temp_, padded);
    }

    // ---- the result

    __aicore__ inline void Write(LocalTensor<float> chunk, int64_t k, int32_t count) {
        int64_t at = k * tiling_->chunk;
        int32_t padded = RoundUp(count, kBlockItems);
        if constexpr (adds) WriteSum(chunk, at, count);
        norm_.NormalizePiece(piece_, StashedChunk(chunk, padded), padded);
        stash_.template RoundToStashThenTo<T>(piece_, temp_, padded);
        LocalTensor<float> scale =
            scale_rows_.Piece(arguments_.scale, scale_offset_, at, count, tiling_->keeps_scale != 0);
        LocalTensor<ScaleT> y = out_.template AllocTensor<ScaleT>();
        int32_t lanes = RoundUp(count, kBlockFloats);
        if constexpr (sizeof(ScaleT) == sizeof(float)) {
            AscendC::Mul(y, piece_, scale, lanes);
        } else {
            AscendC::Mul(piece_, piece_, scale, lanes);
            VectorBarrier();
            AscendC::Cast(y, piece_, NarrowMode<ScaleT>(), static_cast<uint32_t>(lanes));
        }
        out_pieces_.CopyToTail(y, count);
        VectorBarrier();
        out_pieces_.StoreQueued(arguments_.out, &out_, y, out_offset_ + at, count);
    }

    __aicore__ inline void WriteSum(LocalTensor<float> chunk, int64_t at, int32_t count) {
        auto lanes = static_cast<uint32_t>(RoundUp(count, kBlockItems));
        LocalTensor<T> sum = sum_.template AllocTensor<T>();
        if constexpr (kIsFloat) {
            AscendC::DataCopy(sum, chunk, lanes);
        } else {
            AscendC::Cast(sum, chunk, NarrowMode<T>(), lanes);
        }
        pieces_.CopyToTail(sum, count);
        pieces_.StoreQueued(arguments_.sum, &sum_, sum, sum_offset_ + at, count);
    }

    static constexpr int32_t kOffsets = 16;  // Gather offsets of the elements of a 32-byte block

    const RmsNormTilingData* tiling_ = nullptr;
    RmsNormArguments arguments_{};
    Tiles tiles_;
    RowNorm norm_;
    StashRows stash_;
    ChunkSums squares_;
    ScaleRows<ScaleT> scale_rows_;
    RowPieces<T> pieces_;
    RowPieces<ScaleT> out_pieces_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_, residual_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_, sum_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> row_buffer_, work_, stats_;
    LocalTensor<float> row_, piece_, temp_, sums_, largest_;
    RowChunks chunks_{};
    int64_t x_offset_ = 0, out_offset_ = 0, residual_offset_ = 0, sum_offset_ = 0, scale_offset_ = 0;
    float factor_ = 1.0f;  // the power of two by which the row is multiplied
    bool row_is_in_ub_ = false;
};

}  // namespace norm
