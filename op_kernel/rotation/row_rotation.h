// The rotation of rows of float32 in UB: (x1, x2) becomes (x1 c - x2 s, x1 s + x2 c).
// An instruction covers up to 64 lanes of up to 255 rows. All heads of a token share one table row. Masks exclude the
// lanes outside the window.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

// Rows with two indices. The element [outer, inner, lane] is at outer * outer_step + inner * inner_step + lane.
struct NestedRows {
    LocalTensor<float> data;
    int32_t outer_step;
    int32_t inner_step;
};

class RowRotation {
public:
    __aicore__ inline void Init(const CommonTiling* tiling) { tiling_ = tiling; }

    __aicore__ inline void Begin(const Tile& tile, LocalTensor<float> sin, LocalTensor<float> cos) {
        tokens_ = tile.tokens;
        heads_ = tile.heads;
        bool by_tokens = tiling_->tokens_inner != 0;
        token_step_ = (by_tokens ? 1 : heads_) * tiling_->row_pitch;
        head_step_ = (by_tokens ? tokens_ : 1) * tiling_->row_pitch;
        sin_ = sin;
        cos_ = cos;
    }

    // First stage of kRopeHalves: temp = (x1 s, x2 s), dst = (x1 c, x2 c). With one table entry for each lane:
    // temp = (x1 s2, x2 s1), dst = (x1 c1, x2 c2). in_place: dst is src.
    __aicore__ inline void MultiplyHalves(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp,
                                          bool in_place) {
        int32_t half = tiling_->n_dims / 2;
        LaneRange lanes{0, tiling_->table_width};
        // A table row covers both halves of a head or one half. If it covers one half and the head has no other lanes,
        // one instruction processes the halves as two rows.
        bool covers_both = tiling_->table_width != half;
        bool halves_as_rows = !covers_both && tiling_->n_dims == tiling_->row_pitch && tiling_->tokens_inner == 0;
        int32_t instructions = covers_both || halves_as_rows ? 1 : 2, heads = halves_as_rows ? 2 * heads_ : heads_;
        int32_t step = halves_as_rows ? half : head_step_;
        for (int32_t k = 0; k < instructions; ++k)
            MultiplyByTable(temp[HalfOffset(k)], src[HalfOffset(k)], sin_, heads, step, lanes);
        if (in_place) VectorBarrier();  // the products with cos overwrite src
        for (int32_t k = 0; k < instructions; ++k)
            MultiplyByTable(dst[HalfOffset(k)], src[HalfOffset(k)], cos_, heads, step, lanes);
        VectorBarrier();
    }

    // Last stage of kRopeHalves: dst = (dst1 - temp2, dst2 + temp1), where 1 and 2 are the halves.
    __aicore__ inline void AddHalves(LocalTensor<float> dst, LocalTensor<float> temp) {
        LaneRange lanes{0, tiling_->n_dims / 2};
        AccumulateRows<RowOp::kSub>(dst[HalfOffset(0)], temp[HalfOffset(1)], lanes);
        AccumulateRows<RowOp::kAdd>(dst[HalfOffset(1)], temp[HalfOffset(0)], lanes);
        VectorBarrier();
    }

    // First stage of the other keys: dst = src c, temp = temp s. Before the call, temp contains the partner of each
    // lane. The sines have the signs of the rotation.
    __aicore__ inline void MultiplySwapped(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp) {
        int32_t lane = tiling_->lane_first;
        MultiplyByTable(dst[lane], src[lane], cos_, heads_, head_step_, Window());
        MultiplyByTable(temp[lane], temp[lane], sin_, heads_, head_step_, Window());
        VectorBarrier();
    }

    // Last stage of the other keys: dst += temp.
    __aicore__ inline void AddSwapped(LocalTensor<float> dst, LocalTensor<float> temp) {
        AccumulateRows<RowOp::kAdd>(dst[tiling_->lane_first], temp[tiling_->lane_first], Window());
        VectorBarrier();
    }

private:
    __aicore__ inline int32_t HalfOffset(int32_t half) const { return tiling_->n_offs + half * (tiling_->n_dims / 2); }
    __aicore__ inline LaneRange Window() const {
        int32_t first = tiling_->n_offs - tiling_->lane_first;
        return LaneRange{first, first + tiling_->n_dims};
    }

    // dst = src * the table row of the token. Either the repeats of an instruction go over heads and a loop over
    // tokens, or the repeats go over tokens and the loop over heads.
    __aicore__ inline void MultiplyByTable(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> table,
                                           int32_t heads, int32_t head_step, const LaneRange& lanes) {
        int32_t width = tiling_->table_width;
        if (RepeatsOverHeads(heads, head_step)) {
            ApplyToRows<RowOp::kMul>(NestedRows{dst, token_step_, head_step}, NestedRows{src, token_step_, head_step},
                                     NestedRows{table, width, 0}, tokens_, heads, lanes);
        } else {
            ApplyToRows<RowOp::kMul>(NestedRows{dst, head_step, token_step_}, NestedRows{src, head_step, token_step_},
                                     NestedRows{table, 0, width}, heads, tokens_, lanes);
        }
    }

    // Whether the repeats go over heads: true if only these strides fit an instruction, or if this way needs no more
    // instructions.
    __aicore__ inline bool RepeatsOverHeads(int32_t heads, int32_t head_step) const {
        if (heads > 1 && !FitsRepeatStride(head_step)) return false;
        if (tokens_ > 1 && !FitsRepeatStride(token_step_)) return true;
        int32_t over_heads = tokens_ * ((heads + kMaxRepeats - 1) / kMaxRepeats);
        int32_t over_tokens = heads * ((tokens_ + kMaxRepeats - 1) / kMaxRepeats);
        return over_heads <= over_tokens;
    }

    // dst += src or dst -= src, in all rows of the tile.
    template <RowOp op>
    __aicore__ inline void AccumulateRows(LocalTensor<float> dst, LocalTensor<float> src, const LaneRange& lanes) {
        NestedRows sums{dst, 0, tiling_->row_pitch};
        ApplyToRows<op>(sums, sums, NestedRows{src, 0, tiling_->row_pitch}, 1, tokens_ * heads_, lanes);
    }

    template <RowOp op>
    __aicore__ inline void ApplyToRows(const NestedRows& dst, const NestedRows& a, const NestedRows& b, int32_t outer,
                                       int32_t inner, const LaneRange& lanes) {
        AscendC::BinaryRepeatParams step(1, 1, 1, RepeatStride(dst.inner_step, inner),
                                         RepeatStride(a.inner_step, inner), RepeatStride(b.inner_step, inner));
        for (int32_t outer_row = 0; outer_row < outer; ++outer_row) {
            for (int32_t i = 0; i < inner; i += kMaxRepeats) {
                int32_t repeats = MinOf(inner - i, kMaxRepeats);
                int32_t to = OffsetOf(dst, outer_row, i), from_a = OffsetOf(a, outer_row, i),
                        from_b = OffsetOf(b, outer_row, i);
                for (int32_t first_lane = 0; first_lane < lanes.end; first_lane += kRepeatFloats) {
                    uint64_t mask[2] = {MaskOf(lanes, first_lane), 0};
                    ApplyRowOp<op>(dst.data[to + first_lane], a.data[from_a + first_lane], b.data[from_b + first_lane],
                                   mask, repeats, step);
                }
            }
        }
    }

    __aicore__ inline int32_t OffsetOf(const NestedRows& rows, int32_t outer, int32_t inner) const {
        return outer * rows.outer_step + inner * rows.inner_step;
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t tokens_ = 0, heads_ = 0, token_step_ = 0, head_step_ = 0;
    LocalTensor<float> sin_, cos_;
};

}  // namespace rotation
