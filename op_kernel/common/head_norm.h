// What the rope kernel does with a tile's float32 rows before it rotates them: nothing, or rms_norm_rope's
// normalization of each head. Included after row_norm.h and scale_rows.h.
#pragma once

#include "../rms_norm_rope_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

// Rows are rotated as they come.
struct NoNorm {
    static constexpr bool kIsOn = false;
    struct Source {};

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RopeTilingHead* td, const Source& source) {}
    __aicore__ inline void Prepare() {}
    __aicore__ inline void Apply(LocalTensor<float> rows, LocalTensor<float> temp, const Tile& tile) {}
    __aicore__ inline bool Scatters(const Tile& tile) const { return false; }
};

struct HeadNormSource {
    GM_ADDR scale[2];  // of each side
    const HeadNormTiling* tiling;
};

// T: q's, k's and the scales' type.
template <typename T>
class HeadNorm {
public:
    static constexpr bool kIsOn = true;
    using Source = HeadNormSource;

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RopeTilingHead* td, const Source& source) {
        td_ = td;
        source_ = source;
        const HeadNormTiling* own = source.tiling;
        pipe->InitBuffer(stats_, static_cast<uint32_t>(own->stats_bytes));
        scales_.Init(pipe, own->scale_bytes, own->scale_raw_bytes, ScaleLayout{kScaleDense, nullptr, nullptr});
    }

    // Per core, before the first tile.
    __aicore__ inline void Prepare() {
        norm_.Init(&source_.tiling->norm, stats_.template Get<float>(),
                   source_.tiling->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float))));
        for (int32_t side = 0; side < 2; ++side)
            scales_.Load(source_.scale[side], 0, 0, td_->head_size, side * td_->row_pitch);
        for (int32_t side = 0; side < 2; ++side)
            scales_.Widen(side * td_->row_pitch, side * td_->row_pitch, td_->head_size);
    }

    // The tile's heads [row_pitch], whose padding is 0: divided by their RMS, times their side's scale. temp: as
    // many floats.
    __aicore__ inline void Apply(LocalTensor<float> rows, LocalTensor<float> temp, const Tile& tile) {
        int32_t pitch = td_->row_pitch, count = tile.tokens * tile.heads;
        norm_.FindInverses(rows, temp, pitch, count);
        norm_.Normalize(rows, pitch, count);
        Round(rows, temp, count * pitch);
        EvenRows all{rows, pitch, false};
        EachRow<RowOp::kMul>(all, all, EvenRows{scales_.Wide()[tile.side * pitch], 0, false}, count,
                             RoundUp(td_->head_size, kBlockFloats));
        OrderV();
        Round(rows, temp, count * pitch);
    }

    __aicore__ inline bool Scatters(const Tile& tile) const { return source_.tiling->scatters != 0 && tile.side == 1; }

private:
    // As rms_norm and rope one after the other would.
    __aicore__ inline void Round(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
        if constexpr (sizeof(T) != sizeof(float))
            if (source_.tiling->rounds != 0) RoundTo<T>(rows, temp, count);
    }

    const RopeTilingHead* td_ = nullptr;
    Source source_{};
    RowNorm norm_;
    ScaleRows<T> scales_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> stats_;
};

}  // namespace rope_device
