// The kernel of rms_norm and add_rms_norm, RMS normalization: divides each row [n] of x, or of the sum of x and a
// residual, by the root of its mean square, rounds it to x's type and multiplies it by a scale.
//
// Rows that fit UB are processed in tiles of many rows, as in rope_kernel.h; long rows one at a time
// (long_rms_norm_kernel.h).
#pragma once

#include "../memory/row_steps.h"
#include "../memory/tile_rows.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "../rope_tiling_data.h"
#include "arguments.h"
#include "kernel_operator.h"
#include "long_rms_norm_kernel.h"
#include "row_norm.h"
#include "scale_rows.h"
#include "stash_rows.h"

namespace norm {

using namespace memory;

// T: type of x, the residual and the sum; S: type of scale and out.
template <typename T, typename S, bool adds>
class RmsNormKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const RmsNormTilingData* td, const RmsNormArguments& arguments) {
        TileWindow window;
        if (!window.Begin(&td->head, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        Init(pipe, td, arguments);
        Prepare(window.tile);
        do {
            LocalTensor<T> x = in_.template DeQue<T>();
            if constexpr (adds) tile_residual_ = residual_.template DeQue<T>();
            window.FindNext();
            if (window.has_next) LoadTile(window.next);
            if (window.has_previous) StoreTile(window.previous);
            NormalizeTile(x, window.tile);
        } while (window.Advance());
        StoreTile(window.previous);
        out_rows_.Finish(arguments_.out);
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RmsNormTilingData* td, const RmsNormArguments& arguments) {
        td_ = td;
        head_ = &td->head;
        arguments_ = arguments;
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(head_->queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(head_->queue_bytes));
        if constexpr (adds) {
            pipe->InitBuffer(residual_, 2, static_cast<uint32_t>(td->sum_queue_bytes));
            pipe->InitBuffer(sum_, 2, static_cast<uint32_t>(td->sum_queue_bytes));
        }
        pipe->InitBuffer(work_, static_cast<uint32_t>(head_->work_bytes));
        pipe->InitBuffer(stats_, static_cast<uint32_t>(td->stats_bytes));
        rows_ = work_.template Get<float>();
        temp_ = rows_[static_cast<uint32_t>(head_->temp_offset_bytes) / sizeof(float)];
        scale_rows_.Init(pipe, td->scale_bytes, td->scale_raw_bytes,
                         ScaleLayout{td->scale_kind, td->inner, td->inner_stride});
        stash_.Init(td->stash);
        x_rows_.Init(head_, head_->row_pitch);
        out_rows_.Init(head_, head_->out_pitch);
#if __CCE_AICORE__ == 200
        offsets_.Init(pipe, head_, &x_rows_, &out_rows_);
#endif
    }

    // Called once per core: prepares constants while the first tile is loaded.
    __aicore__ inline void Prepare(const Tile& first) {
        LoadTile(first);
        norm_.Init(&td_->norm, stats_.template Get<float>(),
                   td_->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float))));
#if __CCE_AICORE__ == 200
        offsets_.Build(rows_, &x_rows_, &out_rows_);
#endif
        if (td_->scale_shared == 0) return;
        scale_rows_.Load(arguments_.scale, 0, 0, head_->head_size, 0);
        scale_rows_.Widen(0, 0, head_->head_size);
    }

    // ---- between GM and UB

    __aicore__ inline void LoadTile(const Tile& tile) {
        LocalTensor<T> x = in_.template AllocTensor<T>();
        x_rows_.Load(x, arguments_.x, tile);
        in_.EnQue(x);
        if constexpr (adds) {
            LocalTensor<T> residual = residual_.template AllocTensor<T>();
            x_rows_.Load(residual, arguments_.residual, OnSide1(tile));
            residual_.EnQue(residual);
        }
    }

    __aicore__ inline void StoreTile(const Tile& tile) {
        LocalTensor<S> y = out_.template DeQue<S>();
        out_rows_.Store(arguments_.out, y, tile);
        out_.FreeTensor(y);
        if constexpr (adds) {
            LocalTensor<T> sum = sum_.template DeQue<T>();
            x_rows_.Store(arguments_.sum, sum, OnSide1(tile));
            sum_.FreeTensor(sum);
        }
    }

    // ---- in UB

    __aicore__ inline void NormalizeTile(LocalTensor<T> x, const Tile& tile) {
        row_count_ = tile.tokens * tile.heads;
        count_ = row_count_ * head_->row_pitch;
        LocalTensor<float> rows = Widened(x, tile);
        stash_.Round(rows, temp_, count_);
        norm_.FindInverses(rows, temp_, head_->row_pitch, row_count_);
        norm_.Normalize(rows, head_->row_pitch, row_count_);
        stash_.template RoundBack<T>(rows, temp_, count_);
        if (td_->scale_shared == 0) LoadScales(tile);
        LocalTensor<S> y = out_.template AllocTensor<S>();
        TimesScale(y, rows, tile);
        OrderV();
        if (InPlace()) in_.FreeTensor(x);
        out_.EnQue(y);
    }

    // Whether float32 rows stay in the input buffer.
    __aicore__ inline bool InPlace() const { return kIsFloat && head_->io != kRopeIoPacked; }

    // Returns x, or its sum with the residual, as float32; lanes after a row's last are 0.
    __aicore__ inline LocalTensor<float> Widened(LocalTensor<T> x, const Tile& tile) {
        LocalTensor<float> rows = rows_;
        if constexpr (kIsFloat)
            if (InPlace()) rows = x;
        Widen(rows, x, tile);
        if (!InPlace()) in_.FreeTensor(x);
        if constexpr (adds) {
            LocalTensor<float> residual_rows = temp_;
            if constexpr (kIsFloat)
                if (InPlace()) residual_rows = tile_residual_;
            Widen(residual_rows, tile_residual_, OnSide1(tile));
            AscendC::Add(rows, rows, residual_rows, count_);
            OrderV();
            residual_.FreeTensor(tile_residual_);
            EmitSum(rows, OnSide1(tile));
        }
        return rows;
    }

    __aicore__ inline void Widen(LocalTensor<float> rows, LocalTensor<T> x, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (head_->io == kRopeIoPacked) {
            LocalTensor<T> narrow = NarrowMemory(rows);
            x_rows_.Packed().Unpack(narrow, x, tile);
            WidenFrom(rows, narrow);
            // Gather fills a row's padding with its last element.
            ClearLanes(rows, head_->row_pitch, row_count_, Lanes{head_->head_size, head_->row_pitch});
            return;
        }
#endif
        WidenFrom(rows, x);
    }

    __aicore__ inline void WidenFrom(LocalTensor<float> rows, LocalTensor<T> x) {
        if constexpr (!kIsFloat) {
            ToFloats(rows, x, count_);
        }
    }

    // Rounds the sum to its type and queues it for the store; rows then holds the rounded values.
    __aicore__ inline void EmitSum(LocalTensor<float> rows, const Tile& tile) {
        LocalTensor<T> sum = sum_.template AllocTensor<T>();
#if __CCE_AICORE__ == 200
        if (head_->io == kRopeIoPacked) {
            LocalTensor<T> narrow = NarrowMemory(rows);
            if constexpr (!kIsFloat) {
                AscendC::Cast(narrow, rows, NarrowMode<T>(), static_cast<uint32_t>(count_));
                OrderV();
                AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count_));
            }
            x_rows_.Packed().Pack(sum, narrow, tile);  // also orders the rows
            sum_.EnQue(sum);
            return;
        }
#endif
        if constexpr (kIsFloat) {
            AscendC::DataCopy(sum, rows, static_cast<uint32_t>(count_));
        } else {
            AscendC::Cast(sum, rows, NarrowMode<T>(), static_cast<uint32_t>(count_));
            OrderV();
            AscendC::Cast(rows, sum, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count_));
        }
        OrderV();
        sum_.EnQue(sum);
    }

    // y = rows * scale, rounded to its type.
    __aicore__ inline void TimesScale(LocalTensor<S> y, LocalTensor<float> rows, const Tile& tile) {
        EvenRows scales{scale_rows_.Wide(), td_->scale_shared != 0 ? 0 : td_->scale_pitch, false};
        EvenRows from{rows, head_->row_pitch, false};
        int32_t lanes = RoundUp(head_->head_size, kBlockFloats);
        if constexpr (sizeof(S) == sizeof(float)) {
#if __CCE_AICORE__ == 200
            if (head_->io == kRopeIoPacked) {
                EachRow<RowOp::kMul>(from, from, scales, row_count_, lanes);
                OrderV();
                out_rows_.Packed().Pack(y, rows, tile);
                return;
            }
#endif
            EachRow<RowOp::kMul>(EvenRows{y, head_->out_pitch, false}, from, scales, row_count_, lanes);
        } else {
            EachRow<RowOp::kMul>(from, from, scales, row_count_, lanes);
            OrderV();
#if __CCE_AICORE__ == 200
            if (head_->io == kRopeIoPacked) {
                LocalTensor<S> narrow = temp_.template ReinterpretCast<S>();
                NarrowRows(narrow, head_->row_pitch, rows, head_->row_pitch, row_count_, head_->row_pitch);
                OrderV();
                out_rows_.Packed().Pack(y, narrow, tile);
                return;
            }
#endif
            bool same_pitch = head_->out_pitch == head_->row_pitch;
            NarrowRows(y, head_->out_pitch, rows, head_->row_pitch, row_count_, same_pitch ? head_->row_pitch : lanes);
        }
    }

    // Loads the tile's part of a scale that differs between rows.
    __aicore__ inline void LoadScales(const Tile& tile) {
        int32_t inner = head_->tokens_inner != 0 ? tile.tokens : tile.heads;
        for (int32_t row = 0; row < row_count_; ++row) {
            int32_t token = head_->tokens_inner != 0 ? row % inner : row / inner;
            int32_t head = head_->tokens_inner != 0 ? row / inner : row % inner;
            int64_t offset =
                TileOffset(tile, td_->scale_stride) + token * td_->scale_stride[1] + head * td_->scale_stride[2];
            scale_rows_.Load(arguments_.scale, offset, 0, head_->head_size, row * td_->scale_pitch);
        }
        for (int32_t row = 0; row < row_count_; ++row) {
            int32_t at = row * td_->scale_pitch;
            scale_rows_.Widen(at, at, head_->head_size);
        }
    }

#if __CCE_AICORE__ == 200
    // Returns memory for the rows in their own type; for float32, the rows themselves.
    __aicore__ inline LocalTensor<T> NarrowMemory(LocalTensor<float> rows) {
        if constexpr (kIsFloat) {
            return rows;
        } else {
            return temp_[static_cast<uint32_t>(count_)].template ReinterpretCast<T>();
        }
    }
#endif

    const RmsNormTilingData* td_ = nullptr;
    const RopeTilingHead* head_ = nullptr;
    RmsNormArguments arguments_{};
    RowNorm norm_;
    StashRows stash_;
    ScaleRows<S> scale_rows_;
    TileRows<T> x_rows_;  // of x, the residual and the sum
    TileRows<S> out_rows_;
#if __CCE_AICORE__ == 200
    PackedOffsets offsets_;
#endif
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_, residual_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_, sum_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, stats_;
    LocalTensor<float> rows_, temp_;
    LocalTensor<T> tile_residual_;       // the tile's residual
    int32_t row_count_ = 0, count_ = 0;  // of the tile: rows, and elements with their padding
};

template <typename T, typename S, bool adds>
__aicore__ inline void RunRmsNorm(const RmsNormTilingData* td, const RmsNormArguments& arguments) {
    RunByKey<RmsNormKernel<T, S, adds>, LongRmsNormKernel<T, S, adds>>(td, arguments);
}

}  // namespace norm
