// The kernel of rms_norm and add_rms_norm. It divides each row [n] of x, or of the sum of x and a residual, by the root
// of the row's mean square. Then it rounds the row to x's type and multiplies it by a scale. This kernel processes
// tiles of rows that fit UB. long_rms_norm_kernel.h processes longer rows.
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

// T: type of x, the residual and the sum; ScaleT: type of scale and out.
template <typename T, typename ScaleT, bool adds>
class RmsNormKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                               const RmsNormArguments& arguments) {
        TileWindow window;
        if (!window.Begin(&tiling->common, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        Init(pipe, tiling, arguments);
        Prepare(pipe, window.current);
        do {
            LocalTensor<T> x = in_.template DeQue<T>();
            if constexpr (adds) tile_residual_ = residual_.template DeQue<T>();
            window.FindNext();
            if (window.has_next) LoadTile(window.next);
            if (window.has_previous) StoreTile(window.previous);
            NormalizeTile(x, window.current);
        } while (window.Advance());
        StoreTile(window.previous);
        out_rows_.Finish(arguments_.out);
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                                const RmsNormArguments& arguments) {
        tiling_ = tiling;
        common_ = &tiling->common;
        arguments_ = arguments;
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(common_->queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(common_->queue_bytes));
        if constexpr (adds) {
            pipe->InitBuffer(residual_, 2, static_cast<uint32_t>(tiling->sum_queue_bytes));
            pipe->InitBuffer(sum_, 2, static_cast<uint32_t>(tiling->sum_queue_bytes));
        }
        pipe->InitBuffer(work_, static_cast<uint32_t>(common_->work_bytes));
        pipe->InitBuffer(stats_, static_cast<uint32_t>(tiling->stats_bytes));
        rows_ = work_.template Get<float>();
        temp_ = rows_[static_cast<uint32_t>(common_->temp_offset_bytes) / sizeof(float)];
        scale_rows_.Init(pipe, tiling->scale_bytes, tiling->scale_raw_bytes,
                         ScaleLayout{tiling->scale_kind, tiling->inner, tiling->inner_stride});
        stash_.Init(tiling->stash);
        x_rows_.Init(common_, common_->row_pitch);
        out_rows_.Init(common_, common_->out_pitch);
#if __CCE_AICORE__ == 200
        offsets_.Init(pipe, common_, &x_rows_, &out_rows_);
#endif
    }

    // Call once per core: computes constants while the first tile is loaded.
    __aicore__ inline void Prepare(AscendC::TPipe* pipe, const Tile& first) {
        LoadTile(first);
        norm_.Init(&tiling_->norm, stats_.template Get<float>(),
                   tiling_->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float))));
#if __CCE_AICORE__ == 200
        offsets_.Build(rows_, &x_rows_, &out_rows_);
#endif
        if (tiling_->scale_shared == 0) return;
        scale_rows_.Load(arguments_.scale, 0, 0, common_->head_size, 0);
        scale_rows_.MarkLoads(pipe);
        scale_is_raw_ = true;
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
        LocalTensor<ScaleT> y = out_.template DeQue<ScaleT>();
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
        element_count_ = row_count_ * common_->row_pitch;
        LocalTensor<float> rows = Widened(x, tile);
        stash_.Round(rows, temp_, element_count_);
        norm_.FindInverseRms(rows, temp_, common_->row_pitch, row_count_);
        norm_.Normalize(rows, common_->row_pitch, row_count_);
        stash_.template RoundToStashThenTo<T>(rows, temp_, element_count_);
        PrepareScales(tile);
        LocalTensor<ScaleT> y = out_.template AllocTensor<ScaleT>();
        MultiplyByScale(y, rows, tile);
        VectorBarrier();
        if (IsInPlace()) in_.FreeTensor(x);
        out_.EnQue(y);
    }

    // Whether float32 rows stay in the input buffer.
    __aicore__ inline bool IsInPlace() const { return kIsFloat && common_->copy_mode != kCopyPacked; }

    // Returns x, or its sum with the residual, as float32. The padding of the rows is 0.
    __aicore__ inline LocalTensor<float> Widened(LocalTensor<T> x, const Tile& tile) {
        LocalTensor<float> rows = rows_;
        if constexpr (kIsFloat)
            if (IsInPlace()) rows = x;
        Widen(rows, x, tile);
        if (!IsInPlace()) in_.FreeTensor(x);
        if constexpr (adds) {
            LocalTensor<float> residual_rows = temp_;
            if constexpr (kIsFloat)
                if (IsInPlace()) residual_rows = tile_residual_;
            Widen(residual_rows, tile_residual_, OnSide1(tile));
            AscendC::Add(rows, rows, residual_rows, element_count_);
            VectorBarrier();
            residual_.FreeTensor(tile_residual_);
            QueueSum(rows, OnSide1(tile));
        }
        return rows;
    }

    __aicore__ inline void Widen(LocalTensor<float> rows, LocalTensor<T> x, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (common_->copy_mode == kCopyPacked) {
            LocalTensor<T> narrow = NarrowMemory(rows);
            x_rows_.Packed().Unpack(narrow, x, tile);
            WidenFrom(rows, narrow);
            // Gather has filled the padding of each row with its last element.
            ClearLanes(rows, common_->row_pitch, row_count_, LaneRange{common_->head_size, common_->row_pitch});
            return;
        }
#endif
        WidenFrom(rows, x);
    }

    __aicore__ inline void WidenFrom(LocalTensor<float> rows, LocalTensor<T> x) {
        if constexpr (!kIsFloat) {
            ToFloats(rows, x, element_count_);
        }
    }

    // Rounds the sum to its type and queues it for the store. Afterwards rows contains the rounded values as float32.
    __aicore__ inline void QueueSum(LocalTensor<float> rows, const Tile& tile) {
        LocalTensor<T> sum = sum_.template AllocTensor<T>();
#if __CCE_AICORE__ == 200
        if (common_->copy_mode == kCopyPacked) {
            LocalTensor<T> narrow = NarrowMemory(rows);
            if constexpr (!kIsFloat) {
                AscendC::Cast(narrow, rows, NarrowMode<T>(), static_cast<uint32_t>(element_count_));
                VectorBarrier();
                AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(element_count_));
            }
            x_rows_.Packed().Pack(sum, narrow, tile);  // the barrier in it also covers the Cast to rows
            sum_.EnQue(sum);
            return;
        }
#endif
        if constexpr (kIsFloat) {
            AscendC::DataCopy(sum, rows, static_cast<uint32_t>(element_count_));
        } else {
            AscendC::Cast(sum, rows, NarrowMode<T>(), static_cast<uint32_t>(element_count_));
            VectorBarrier();
            AscendC::Cast(rows, sum, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(element_count_));
        }
        VectorBarrier();
        sum_.EnQue(sum);
    }

    // y = rows * scale, rounded to the type of y.
    __aicore__ inline void MultiplyByScale(LocalTensor<ScaleT> y, LocalTensor<float> rows, const Tile& tile) {
        PitchedRows scales{scale_rows_.Wide(), tiling_->scale_shared != 0 ? 0 : tiling_->scale_pitch, false};
        PitchedRows from{rows, common_->row_pitch, false};
        int32_t lanes = RoundUp(common_->head_size, kBlockFloats);
        if constexpr (sizeof(ScaleT) == sizeof(float)) {
#if __CCE_AICORE__ == 200
            if (common_->copy_mode == kCopyPacked) {
                ApplyPerRow<RowOp::kMul>(from, from, scales, row_count_, lanes);
                VectorBarrier();
                out_rows_.Packed().Pack(y, rows, tile);
                return;
            }
#endif
            ApplyPerRow<RowOp::kMul>(PitchedRows{y, common_->out_pitch, false}, from, scales, row_count_, lanes);
        } else {
            ApplyPerRow<RowOp::kMul>(from, from, scales, row_count_, lanes);
            VectorBarrier();
#if __CCE_AICORE__ == 200
            if (common_->copy_mode == kCopyPacked) {
                LocalTensor<ScaleT> narrow = temp_.template ReinterpretCast<ScaleT>();
                NarrowRows(narrow, common_->row_pitch, rows, common_->row_pitch, row_count_, common_->row_pitch);
                VectorBarrier();
                out_rows_.Packed().Pack(y, narrow, tile);
                return;
            }
#endif
            bool same_pitch = common_->out_pitch == common_->row_pitch;
            NarrowRows(y, common_->out_pitch, rows, common_->row_pitch, row_count_,
                       same_pitch ? common_->row_pitch : lanes);
        }
    }

    // A scale that all rows share is converted only here, in the first tile, after the tile's rows have been
    // normalized. Their normalization therefore does not wait for the load of the scale.
    __aicore__ inline void PrepareScales(const Tile& tile) {
        if (tiling_->scale_shared == 0) LoadScales(tile);
        if (scale_is_raw_) scale_rows_.WidenMarked(common_->head_size);
        scale_is_raw_ = false;
    }

    // Loads the scale of each row of the tile, for scales that differ between rows.
    __aicore__ inline void LoadScales(const Tile& tile) {
        int32_t inner = common_->tokens_inner != 0 ? tile.tokens : tile.heads;
        for (int32_t row = 0; row < row_count_; ++row) {
            int32_t token = common_->tokens_inner != 0 ? row % inner : row / inner;
            int32_t head = common_->tokens_inner != 0 ? row / inner : row % inner;
            int64_t offset = TileOffset(tile, tiling_->scale_stride) + token * tiling_->scale_stride[1] +
                             head * tiling_->scale_stride[2];
            scale_rows_.Load(arguments_.scale, offset, 0, common_->head_size, row * tiling_->scale_pitch);
        }
        for (int32_t row = 0; row < row_count_; ++row) {
            int32_t at = row * tiling_->scale_pitch;
            scale_rows_.Widen(at, at, common_->head_size);
        }
    }

#if __CCE_AICORE__ == 200
    // Returns memory for the rows in their own type; for float32, the rows themselves.
    __aicore__ inline LocalTensor<T> NarrowMemory(LocalTensor<float> rows) {
        if constexpr (kIsFloat) {
            return rows;
        } else {
            return temp_[static_cast<uint32_t>(element_count_)].template ReinterpretCast<T>();
        }
    }
#endif

    const RmsNormTilingData* tiling_ = nullptr;
    const CommonTiling* common_ = nullptr;
    RmsNormArguments arguments_{};
    RowNorm norm_;
    StashRows stash_;
    ScaleRows<ScaleT> scale_rows_;
    TileRows<T> x_rows_;  // of x, the residual and the sum
    TileRows<ScaleT> out_rows_;
#if __CCE_AICORE__ == 200
    PackedOffsets offsets_;
#endif
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_, residual_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_, sum_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, stats_;
    LocalTensor<float> rows_, temp_;
    LocalTensor<T> tile_residual_;
    bool scale_is_raw_ = false;                  // the shared scale is being loaded and not converted yet
    int32_t row_count_ = 0, element_count_ = 0;  // rows of the tile, and its elements with the rows' padding
};

template <typename T, typename ScaleT, bool adds>
__aicore__ inline void RunRmsNorm(const RmsNormTilingData* tiling, const RmsNormArguments& arguments) {
    RunByKey<RmsNormKernel<T, ScaleT, adds>, LongRmsNormKernel<T, ScaleT, adds>>(tiling, arguments);
}

}  // namespace norm
