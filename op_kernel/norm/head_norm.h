// The step of the rope kernel before it rotates the float32 rows of a tile: nothing, or the normalization of each head
// in rms_norm_rope.
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
    static constexpr bool kNormalizes = false;
    struct Source {};

    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, const Source& source) {}
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
    static constexpr bool kNormalizes = true;
    using Source = HeadNormSource;

    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, const Source& source) {
        tiling_ = tiling;
        source_ = source;
        const HeadNormTiling* norm_tiling = source.tiling;
        pipe->InitBuffer(stats_, static_cast<uint32_t>(norm_tiling->stats_bytes + norm_tiling->factor_bytes));
        scales_.Init(pipe, norm_tiling->scale_bytes, norm_tiling->scale_raw_bytes,
                     ScaleLayout{kScaleDense, nullptr, nullptr});
    }

    // Call once per core, before the first tile.
    __aicore__ inline void Prepare() {
        int32_t slots = source_.tiling->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float)));
        norm_.Init(&source_.tiling->norm, stats_.template Get<float>(), slots);
        for (int32_t side = 0; side < 2; ++side)
            scales_.Load(source_.scale[side], 0, 0, tiling_->head_size, side * tiling_->row_pitch);
        for (int32_t side = 0; side < 2; ++side)
            scales_.Widen(side * tiling_->row_pitch, side * tiling_->row_pitch, tiling_->head_size);
        if (source_.tiling->normalizes_partners == 0) return;
        factors_ = stats_.template Get<float>()[source_.tiling->stats_bytes / static_cast<int32_t>(sizeof(float))];
        norm_.KeepFactors(factors_);
        scales_.WidenSwapped(2 * tiling_->row_pitch, 2 * tiling_->row_pitch);
    }

    __aicore__ inline bool RoundsIntermediates() const { return source_.tiling->intermediate_rounding != 0; }

    // Divides each head [row_pitch] of the tile by its RMS and multiplies it by the scale of its side. The padding of
    // the heads must be 0. temp: scratch memory of the same size as rows.
    __aicore__ inline void Apply(LocalTensor<float> rows, LocalTensor<float> temp, const Tile& tile) {
        int32_t pitch = tiling_->row_pitch, count = tile.tokens * tile.heads;
        norm_.FindInverseRms(rows, temp, pitch, count);
        norm_.Normalize(rows, pitch, count);
        Round(rows, temp, count * pitch);
        MultiplyByScale(rows, count, tile.side * pitch);
        Round(rows, temp, count * pitch);
    }

    // As Apply(), and also sets temp to the resulting rows with neighbours exchanged. x: the rows in their own type;
    // they are overwritten.
    __aicore__ inline void ApplyWithPartners(LocalTensor<float> rows, LocalTensor<float> temp, LocalTensor<T> x,
                                             const Tile& tile) {
        int32_t pitch = tiling_->row_pitch, count = tile.tokens * tile.heads, all = count * pitch;
        LocalTensor<T> narrow = temp.template ReinterpretCast<T>();
        if (RoundsIntermediates()) {
            Apply(rows, temp, tile);
            // Round() has stored the rows as T in temp.
            SwapNeighbours(x, narrow, x, narrow[all], all);
            ToFloats(temp, x, all);
            return;
        }
        bool multiplied = norm_.FindInverseRms(rows, temp, pitch, count);
        SwapNeighbours(x, x, narrow, narrow[all], all);
        ToFloats(temp, x, all);
        for (int32_t row = 0; row < count && multiplied; ++row)
            AscendC::Muls(temp[row * pitch], temp[row * pitch], factors_.GetValue(static_cast<uint32_t>(row)), pitch);
        norm_.Normalize(rows, pitch, count);  // the barrier in it also covers the Muls of temp
        norm_.Normalize(temp, pitch, count);
        MultiplyByScale(rows, count, tile.side * pitch);
        MultiplyByScale(temp, count, (2 + tile.side) * pitch);
    }

    __aicore__ inline bool Scatters(const Tile& tile) const { return source_.tiling->scatters != 0 && tile.side == 1; }

private:
    // scale_offset: offset of the scale in scales_, in elements.
    __aicore__ inline void MultiplyByScale(LocalTensor<float> rows, int32_t count, int32_t scale_offset) {
        PitchedRows all{rows, tiling_->row_pitch, false};
        ApplyPerRow<RowOp::kMul>(all, all, OneRow(scales_.Wide()[scale_offset]), count,
                                 RoundUp(tiling_->head_size, kBlockFloats));
        VectorBarrier();
    }

    // Rounds to T if the call rounds intermediates: rms_norm rounds its result in the same way before rope reads it.
    __aicore__ inline void Round(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
        if constexpr (sizeof(T) != sizeof(float))
            if (RoundsIntermediates()) RoundTo<T>(rows, temp, count);
    }

    const CommonTiling* tiling_ = nullptr;
    Source source_{};
    RowNorm norm_;
    ScaleRows<T> scales_;
    LocalTensor<float> factors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> stats_;
};

}  // namespace norm
