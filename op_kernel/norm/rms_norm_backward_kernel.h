// The kernel of rms_norm_backward: the gradients of RMS normalization for x and for a scale that all rows share. The
// formulas are in gradient_rows.h. This kernel processes tiles of rows that fit UB. long_rms_norm_backward_kernel.h
// processes longer rows.
#pragma once

#include "../memory/packed_rows.h"
#include "../memory/row_steps.h"
#include "../memory/tile_rows.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "../rope_tiling_data.h"
#include "arguments.h"
#include "dscale_rows.h"
#include "gradient_rows.h"
#include "kernel_operator.h"
#include "long_rms_norm_backward_kernel.h"
#include "row_norm.h"
#include "scale_rows.h"
#include "stash_rows.h"

namespace norm {

using namespace memory;

// T: type of x and dx; ScaleT: type of scale and grad.
template <typename T, typename ScaleT>
class RmsNormBackwardKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                               const RmsNormBackwardArguments& arguments) {
        TileWindow window;
        if (!window.Begin(&tiling->common, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        Init(pipe, tiling, arguments);
        Prepare(window.current);
        do {
            LocalTensor<T> x = in_.template DeQue<T>();
            LocalTensor<ScaleT> grad = grad_.template DeQue<ScaleT>();
            window.FindNext();
            if (window.has_next) LoadTile(window.next);
            if (window.has_previous) StoreTile(window.previous);
            DifferentiateTile(x, grad, window.current);
        } while (window.Advance());
        StoreTile(window.previous);
        x_rows_.Finish(arguments_.dx);
        dscale_.FinishRows(common_->head_size, rows_);
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);
    static constexpr bool kGradIsFloat = sizeof(ScaleT) == sizeof(float);

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RmsNormTilingData* tiling,
                                const RmsNormBackwardArguments& arguments) {
        tiling_ = tiling;
        common_ = &tiling->common;
        arguments_ = arguments;
        lanes_ = RoundUp(common_->head_size, kBlockFloats);
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(common_->queue_bytes));
        pipe->InitBuffer(grad_, 2, static_cast<uint32_t>(tiling->grad_queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(common_->queue_bytes));
        pipe->InitBuffer(work_, static_cast<uint32_t>(common_->work_bytes));
        pipe->InitBuffer(stats_, static_cast<uint32_t>(tiling->stats_bytes));
        pipe->InitBuffer(dscale_buffer_, static_cast<uint32_t>(tiling->dscale_bytes));
        rows_ = work_.template Get<float>();
        g_ = rows_[static_cast<uint32_t>(tiling->g_offset_bytes) / sizeof(float)];
        temp_ = rows_[static_cast<uint32_t>(common_->temp_offset_bytes) / sizeof(float)];
        scale_rows_.Init(pipe, tiling->scale_bytes, tiling->scale_raw_bytes,
                         ScaleLayout{kScaleDense, nullptr, nullptr});
        stash_.Init(tiling->stash);
        dscale_.Init(dscale_buffer_.template Get<float>(), common_->row_pitch, arguments_.dscale);
        dscale_.Prepare(arguments_.workspace, tiling, stats_.template Get<float>());
        x_rows_.Init(common_, common_->row_pitch);
        grad_rows_.Init(common_, common_->out_pitch);
#if __CCE_AICORE__ == 200
        offsets_.Init(pipe, common_, &x_rows_, &grad_rows_);
#endif
    }

    // Call once per core: computes constants while the first tile is loaded.
    __aicore__ inline void Prepare(const Tile& first) {
        LoadTile(first);
        constexpr int32_t kStats = kRowNormStats + kGradientStats;
        int32_t slots = tiling_->stats_bytes / (kStats * static_cast<int32_t>(sizeof(float)));
        LocalTensor<float> stats = stats_.template Get<float>();
        norm_.Init(&tiling_->norm, stats, slots);
        gradient_.Init(&norm_, tiling_->inverse_n, stats[slots * kRowNormStats], slots);
#if __CCE_AICORE__ == 200
        offsets_.Build(rows_, &x_rows_, &grad_rows_);
#endif
        scale_rows_.Load(arguments_.scale, 0, 0, common_->head_size, 0);
        scale_rows_.Widen(0, 0, common_->head_size);
    }

    // ---- between GM and UB

    __aicore__ inline void LoadTile(const Tile& tile) {
        LocalTensor<T> x = in_.template AllocTensor<T>();
        LocalTensor<ScaleT> grad = grad_.template AllocTensor<ScaleT>();
        x_rows_.Load(x, arguments_.x, tile);
        grad_rows_.Load(grad, arguments_.grad, OnSide1(tile));
        in_.EnQue(x);
        grad_.EnQue(grad);
    }

    __aicore__ inline void StoreTile(const Tile& tile) {
        LocalTensor<T> dx = out_.template DeQue<T>();
        x_rows_.Store(arguments_.dx, dx, tile);
        out_.FreeTensor(dx);
    }

    // ---- in UB

    __aicore__ inline void DifferentiateTile(LocalTensor<T> x, LocalTensor<ScaleT> grad, const Tile& tile) {
        row_count_ = tile.tokens * tile.heads;
        element_count_ = row_count_ * common_->row_pitch;
        LocalTensor<float> rows = Widened(x, tile);
        stash_.Round(rows, temp_, element_count_);
        bool multiplied = norm_.FindInverseRms(rows, temp_, common_->row_pitch, row_count_);
        norm_.Normalize(rows, common_->row_pitch, row_count_);
        PitchedRows normalized{rows, common_->row_pitch, false}, g{g_, common_->out_pitch, false};
        PitchedRows wide_grad{WidenedGrad(grad, OnSide1(tile)), common_->out_pitch, false};
        LocalTensor<T> dx = out_.template AllocTensor<T>();
        AddToDscale(normalized, wide_grad, dx);
        ApplyPerRow<RowOp::kMul>(g, wide_grad, OneRow(scale_rows_.Wide()), row_count_, lanes_);
        VectorBarrier();
        ApplyPerRow<RowOp::kMul>(PitchedRows{temp_, common_->row_pitch, false}, normalized, g, row_count_, lanes_);
        VectorBarrier();
        gradient_.FindMeans(temp_, common_->row_pitch, lanes_, row_count_);
        grad_.FreeTensor(grad);
        QueueDx(dx, normalized, g, multiplied, tile);
        if (IsInPlace()) in_.FreeTensor(x);
    }

    // Whether float32 rows stay in the input buffer.
    __aicore__ inline bool IsInPlace() const { return kIsFloat && common_->copy_mode != kCopyPacked; }
    __aicore__ inline bool IsGradInPlace() const { return kGradIsFloat && common_->copy_mode != kCopyPacked; }

    // Returns x as float32. The padding of the rows is 0.
    __aicore__ inline LocalTensor<float> Widened(LocalTensor<T> x, const Tile& tile) {
        if constexpr (kIsFloat)
            if (IsInPlace()) return x;
#if __CCE_AICORE__ == 200
        if (common_->copy_mode == kCopyPacked) {
            Unpack(x_rows_.Packed(), rows_, x, tile);
            in_.FreeTensor(x);
            return rows_;
        }
#endif
        if constexpr (!kIsFloat) {
            ToFloats(rows_, x, element_count_);
        }
        in_.FreeTensor(x);
        return rows_;
    }

    // Returns grad as float32, in the input buffer or in g_.
    __aicore__ inline LocalTensor<float> WidenedGrad(LocalTensor<ScaleT> grad, const Tile& grad_tile) {
        if constexpr (kGradIsFloat)
            if (IsGradInPlace()) return grad;
#if __CCE_AICORE__ == 200
        if (common_->copy_mode == kCopyPacked) {
            Unpack(grad_rows_.Packed(), g_, grad, grad_tile);
            return g_;
        }
#endif
        if constexpr (!kGradIsFloat) {
            ToFloats(g_, grad, row_count_ * common_->out_pitch);
        }
        return g_;
    }

    // Adds the products of grad and the rounded normalized rows to the sums of dscale. scratch: memory for
    // the rows as T.
    __aicore__ inline void AddToDscale(const PitchedRows& normalized, const PitchedRows& wide_grad,
                                       LocalTensor<T> scratch) {
        PitchedRows product{temp_, common_->row_pitch, false};
        bool exact = kIsFloat && stash_.IsFloat32();
        if (!exact) Round(temp_, normalized.data, scratch);
        // AddRows() adds whole rows. The product therefore covers their padding, unless grad has a smaller pitch.
        int32_t width = MinOf(common_->row_pitch, common_->out_pitch);
        ApplyPerRow<RowOp::kMul>(product, exact ? normalized : product, wide_grad, row_count_, width);
        VectorBarrier();
        dscale_.AddRows(temp_, row_count_);
    }

    // Rounds the normalized rows as the forward pass does.
    __aicore__ inline void Round(LocalTensor<float> rounded, LocalTensor<float> rows, LocalTensor<T> scratch) {
        auto count = static_cast<uint32_t>(element_count_);
        if constexpr (!kIsFloat) {
            if (stash_.IsFloat32()) {
                AscendC::Cast(scratch, rows, NarrowMode<T>(), count);
                VectorBarrier();
                AscendC::Cast(rounded, scratch, AscendC::RoundMode::CAST_NONE, count);
                VectorBarrier();
                return;
            }
        }
        AscendC::DataCopy(rounded, rows, count);
        VectorBarrier();
        stash_.template RoundToStashThenTo<T>(rounded, scratch.template ReinterpretCast<float>(), element_count_);
    }

    __aicore__ inline void QueueDx(LocalTensor<T> dx, const PitchedRows& normalized, const PitchedRows& g,
                                   bool multiplied, const Tile& tile) {
        PitchedRows wide{temp_, common_->row_pitch, false};
        if constexpr (kIsFloat)
            if (IsInPlace()) wide.data = dx;
        // 2^15 times 1 / RMS, so that small results are not subnormal. Rescale() takes the factor out again.
        if (multiplied) gradient_.ScaleUpInverses(row_count_);
        gradient_.Differentiate(wide, g, normalized, row_count_, lanes_);
        if (multiplied) gradient_.Rescale(wide, row_count_, lanes_);
        Narrow(dx, tile);
        out_.EnQue(dx);
    }

    // Rounds temp_ to the type of dx, unless dx has been computed in place.
    __aicore__ inline void Narrow(LocalTensor<T> dx, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (common_->copy_mode == kCopyPacked) {
            if constexpr (kIsFloat) {
                x_rows_.Packed().Pack(dx, temp_, tile);
            } else {
                LocalTensor<T> narrow = g_.template ReinterpretCast<T>();
                NarrowRows(narrow, common_->row_pitch, temp_, common_->row_pitch, row_count_, lanes_);
                VectorBarrier();
                x_rows_.Packed().Pack(dx, narrow, tile);
            }
            return;
        }
#endif
        if constexpr (!kIsFloat) NarrowRows(dx, common_->row_pitch, temp_, common_->row_pitch, row_count_, lanes_);
    }

#if __CCE_AICORE__ == 200
    // Converts the runs of a tile to rows of float32.
    template <typename U>
    __aicore__ inline void Unpack(PackedRows<U>& packed, LocalTensor<float> rows, LocalTensor<U> runs,
                                  const Tile& tile) {
        if constexpr (sizeof(U) == sizeof(float)) {
            packed.Unpack(rows, runs, tile);
        } else {
            LocalTensor<U> narrow = temp_[static_cast<uint32_t>(element_count_)].template ReinterpretCast<U>();
            packed.Unpack(narrow, runs, tile);
            AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(element_count_));
            VectorBarrier();
        }
        // Gather has filled the padding of each row with its last element.
        ClearLanes(rows, common_->row_pitch, row_count_, LaneRange{common_->head_size, common_->row_pitch});
    }
#endif

    const RmsNormTilingData* tiling_ = nullptr;
    const CommonTiling* common_ = nullptr;
    RmsNormBackwardArguments arguments_{};
    RowNorm norm_;
    GradientRows gradient_;
    DscaleRows dscale_;
    StashRows stash_;
    ScaleRows<ScaleT> scale_rows_;
    TileRows<T> x_rows_;  // of x and dx
    TileRows<ScaleT> grad_rows_;
#if __CCE_AICORE__ == 200
    PackedOffsets offsets_;
#endif
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_, grad_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, stats_, dscale_buffer_;
    LocalTensor<float> rows_, g_, temp_;
    int32_t lanes_ = 0;                          // lanes of a row that instructions process
    int32_t row_count_ = 0, element_count_ = 0;  // rows of the tile, and elements of x in it with the rows' padding
};

template <typename T, typename ScaleT>
__aicore__ inline void RunRmsNormBackward(const RmsNormTilingData* tiling, const RmsNormBackwardArguments& arguments) {
    using Rows = RmsNormBackwardKernel<T, ScaleT>;
    using LongRows = LongRmsNormBackwardKernel<T, ScaleT>;
    if (TILING_KEY_IS(3)) {
        RunKernel<Rows>(tiling, arguments);
    } else if (TILING_KEY_IS(4)) {
        RunKernel<LongRows>(tiling, arguments);
    } else {
        RunByKey<Rows, LongRows>(tiling, arguments);
    }
}

static_assert(kRmsNormOrderedRows == 3 && kRmsNormOrderedLong == 4, "RunRmsNormBackward has them as literals");

}  // namespace norm
