// The step of the rope kernel before the rotation of a tile's float32 rows: none, or rms_norm_rope's
// normalization of each head.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_rope_tiling_data.h"
#include "../rms_norm_tiling_data.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "row_norm.h"
#include "scale_rows.h"

namespace norm {

using namespace memory;

// No normalization before the rotation.
struct NoNorm {
    static constexpr bool kIsOn = false;
    struct Source {};

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RopeTilingHead* td, const Source& source) {}
    __aicore__ inline void Prepare() {}
    __aicore__ inline void Apply(LocalTensor<float> rows, LocalTensor<float> temp, const Tile& tile) {}
    __aicore__ inline bool Scatters(const Tile& tile) const { return false; }
};

struct HeadNormSource {
    GM_ADDR scale[2];  // one for each side
    const HeadNormTiling* tiling;
};

// T: type of q, k and the scales.
template <typename T>
class HeadNorm {
public:
    static constexpr bool kIsOn = true;
    using Source = HeadNormSource;

    __aicore__ inline void Init(AscendC::TPipe* pipe, const RopeTilingHead* td, const Source& source) {
        td_ = td;
        source_ = source;
        const HeadNormTiling* tiling = source.tiling;
        pipe->InitBuffer(stats_, static_cast<uint32_t>(tiling->stats_bytes + tiling->factor_bytes));
        scales_.Init(pipe, tiling->scale_bytes, tiling->scale_raw_bytes, ScaleLayout{kScaleDense, nullptr, nullptr});
    }

    // Called once per core, before the first tile.
    __aicore__ inline void Prepare() {
        int32_t slots = source_.tiling->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float)));
        norm_.Init(&source_.tiling->norm, stats_.template Get<float>(), slots);
        for (int32_t side = 0; side < 2; ++side)
            scales_.Load(source_.scale[side], 0, 0, td_->head_size, side * td_->row_pitch);
        for (int32_t side = 0; side < 2; ++side)
            scales_.Widen(side * td_->row_pitch, side * td_->row_pitch, td_->head_size);
        if (source_.tiling->swaps == 0) return;
        factors_ = stats_.template Get<float>()[source_.tiling->stats_bytes / static_cast<int32_t>(sizeof(float))];
        norm_.KeepFactors(factors_);
        scales_.WidenSwapped(2 * td_->row_pitch, 2 * td_->row_pitch);
    }

    __aicore__ inline bool RoundsIntermediates() const { return source_.tiling->intermediate_rounding != 0; }

    // Divides each of the tile's heads [row_pitch] by its RMS and multiplies it by its side's scale. The heads'
    // padding is 0. temp: the same number of floats.
    __aicore__ inline void Apply(LocalTensor<float> rows, LocalTensor<float> temp, const Tile& tile) {
        int32_t pitch = td_->row_pitch, count = tile.tokens * tile.heads;
        norm_.FindInverses(rows, temp, pitch, count);
        norm_.Normalize(rows, pitch, count);
        Round(rows, temp, count * pitch);
        TimesScale(rows, count, tile.side * pitch);
        Round(rows, temp, count * pitch);
    }

    // Does what Apply() does and sets temp to the resulting rows with neighbours exchanged. x: the rows as they were
    // loaded; their memory serves as scratch.
    __aicore__ inline void ApplyWithPartners(LocalTensor<float> rows, LocalTensor<float> temp, LocalTensor<T> x,
                                             const Tile& tile) {
        int32_t pitch = td_->row_pitch, count = tile.tokens * tile.heads, all = count * pitch;
        LocalTensor<T> narrow = temp.template ReinterpretCast<T>();
        if (RoundsIntermediates()) {
            Apply(rows, temp, tile);
            // Round() has left the rows as T in temp.
            SwapNeighbours(x, narrow, x, narrow[all], all);
            ToFloats(temp, x, all);
            return;
        }
        bool multiplied = norm_.FindInverses(rows, temp, pitch, count);
        SwapNeighbours(x, x, narrow, narrow[all], all);
        ToFloats(temp, x, all);
        for (int32_t row = 0; row < count && multiplied; ++row)
            AscendC::Muls(temp[row * pitch], temp[row * pitch], factors_.GetValue(static_cast<uint32_t>(row)), pitch);
        norm_.Normalize(rows, pitch, count);  // also orders temp's multiplications before the next instructions
        norm_.Normalize(temp, pitch, count);
        TimesScale(rows, count, tile.side * pitch);
        TimesScale(temp, count, (2 + tile.side) * pitch);
    }

    __aicore__ inline bool Scatters(const Tile& tile) const { return source_.tiling->scatters != 0 && tile.side == 1; }

private:
    // scale_offset: the offset of the scale's first element.
    __aicore__ inline void TimesScale(LocalTensor<float> rows, int32_t count, int32_t scale_offset) {
        EvenRows all{rows, td_->row_pitch, false};
        EachRow<RowOp::kMul>(all, all, EvenRows{scales_.Wide()[scale_offset], 0, false}, count,
                             RoundUp(td_->head_size, kBlockFloats));
        OrderV();
    }

    // Rounds to T, as rms_norm rounds its result before rope reads it.
    __aicore__ inline void Round(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
        if constexpr (sizeof(T) != sizeof(float))
            if (RoundsIntermediates()) RoundTo<T>(rows, temp, count);
    }

    const RopeTilingHead* td_ = nullptr;
    Source source_{};
    RowNorm norm_;
    ScaleRows<T> scales_;
    LocalTensor<float> factors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> stats_;
};

}  // namespace norm
