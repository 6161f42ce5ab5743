// The rotation of rows of float32 in UB: (x1, x2) becomes (x1 c - x2 s, x1 s + x2 c).
// An instruction covers up to 64 lanes of up to 255 rows; all heads of a token share one table row. Lanes outside the
// window are masked and do not change.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

// Rows in two levels: [outer, inner, lane] is at outer * outer_step + inner * inner_step + lane.
struct Rows {
    LocalTensor<float> data;
    int32_t outer_step;
    int32_t inner_step;
};

class RowRotation {
public:
    __aicore__ inline void Init(const RopeTilingHead* td) { td_ = td; }

    __aicore__ inline void Begin(const Tile& tile, LocalTensor<float> sin, LocalTensor<float> cos) {
        tokens_ = tile.tokens;
        heads_ = tile.heads;
        bool by_tokens = td_->tokens_inner != 0;
        token_step_ = (by_tokens ? 1 : heads_) * td_->row_pitch;
        head_step_ = (by_tokens ? tokens_ : 1) * td_->row_pitch;
        sin_ = sin;
        cos_ = cos;
    }

    // First stage, without moving the halves: temp = (x1 s, x2 s), dst = (x1 c, x2 c). in_place: dst is src. With one
    // table entry per lane: temp = (x1 s2, x2 s1), dst = (x1 c1, x2 c2).
    __aicore__ inline void ProductsOfHalves(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp,
                                            bool in_place) {
        int32_t half = td_->n_dims / 2;
        Lanes lanes{0, td_->table_width};
        // The table covers both halves or one. With one half, a row that consists of its two halves only is processed
        // as two rows by one instruction.
        bool covers_both = td_->table_width != half;
        bool halves_as_rows = !covers_both && td_->n_dims == td_->row_pitch && td_->tokens_inner == 0;
        int32_t instructions = covers_both || halves_as_rows ? 1 : 2, heads = halves_as_rows ? 2 * heads_ : heads_;
        int32_t step = halves_as_rows ? half : head_step_;
        for (int32_t k = 0; k < instructions; ++k) TimesTable(temp[Half(k)], src[Half(k)], sin_, heads, step, lanes);
        if (in_place) OrderV();
        for (int32_t k = 0; k < instructions; ++k) TimesTable(dst[Half(k)], src[Half(k)], cos_, heads, step, lanes);
        OrderV();
    }

    // Last stage: sums of the products.
    __aicore__ inline void SumsOfHalves(LocalTensor<float> dst, LocalTensor<float> temp) {
        Lanes lanes{0, td_->n_dims / 2};
        AccumulateRows<RowOp::kSub>(dst[Half(0)], temp[Half(1)], lanes);
        AccumulateRows<RowOp::kAdd>(dst[Half(1)], temp[Half(0)], lanes);
        OrderV();
    }

    // First stage with temp = swap(x), each lane's partner: dst = x c, temp = swap(x) s. The sine table has the signs.
    __aicore__ inline void ProductsOfSwapped(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp) {
        int32_t lane = td_->lane_first;
        TimesTable(dst[lane], src[lane], cos_, heads_, head_step_, Window());
        TimesTable(temp[lane], temp[lane], sin_, heads_, head_step_, Window());
        OrderV();
    }

    __aicore__ inline void SumsOfSwapped(LocalTensor<float> dst, LocalTensor<float> temp) {
        AccumulateRows<RowOp::kAdd>(dst[td_->lane_first], temp[td_->lane_first], Window());
        OrderV();
    }

private:
    __aicore__ inline int32_t Half(int32_t half) const { return td_->n_offs + half * (td_->n_dims / 2); }
    __aicore__ inline Lanes Window() const {
        int32_t first = td_->n_offs - td_->lane_first;
        return Lanes{first, first + td_->n_dims};
    }

    // dst = src * the token's table row, which all its heads share. An instruction repeats over tokens or over heads,
    // and a loop runs over the other. RepeatHeads() chooses the order with fewer instructions whose strides an
    // instruction can encode.
    __aicore__ inline void TimesTable(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> table,
                                      int32_t heads, int32_t head_step, const Lanes& lanes) {
        int32_t width = td_->table_width;
        if (RepeatHeads(heads, head_step)) {
            ApplyToRows<RowOp::kMul>(Rows{dst, token_step_, head_step}, Rows{src, token_step_, head_step},
                                     Rows{table, width, 0}, tokens_, heads, lanes);
        } else {
            ApplyToRows<RowOp::kMul>(Rows{dst, head_step, token_step_}, Rows{src, head_step, token_step_},
                                     Rows{table, 0, width}, heads, tokens_, lanes);
        }
    }

    __aicore__ inline bool RepeatHeads(int32_t heads, int32_t head_step) const {
        if (heads > 1 && !RepeatReaches(head_step)) return false;
        if (tokens_ > 1 && !RepeatReaches(token_step_)) return true;
        int32_t over_heads = tokens_ * ((heads + kMaxRepeats - 1) / kMaxRepeats);
        int32_t over_tokens = heads * ((tokens_ + kMaxRepeats - 1) / kMaxRepeats);
        return over_heads <= over_tokens;
    }

    // dst += src or dst -= src. The tokens do not matter, because no table row is read.
    template <RowOp op>
    __aicore__ inline void AccumulateRows(LocalTensor<float> dst, LocalTensor<float> src, const Lanes& lanes) {
        Rows sums{dst, 0, td_->row_pitch};
        ApplyToRows<op>(sums, sums, Rows{src, 0, td_->row_pitch}, 1, tokens_ * heads_, lanes);
    }

    template <RowOp op>
    __aicore__ inline void ApplyToRows(const Rows& dst, const Rows& a, const Rows& b, int32_t outer, int32_t inner,
                                       const Lanes& lanes) {
        AscendC::BinaryRepeatParams step(1, 1, 1, RepeatStep(dst.inner_step, inner), RepeatStep(a.inner_step, inner),
                                         RepeatStep(b.inner_step, inner));
        for (int32_t o = 0; o < outer; ++o) {
            for (int32_t i = 0; i < inner; i += kMaxRepeats) {
                int32_t repeats = MinOf(inner - i, kMaxRepeats);
                int32_t to = At(dst, o, i), from_a = At(a, o, i), from_b = At(b, o, i);
                for (int32_t chunk = 0; chunk < lanes.end; chunk += kRepeatFloats) {
                    uint64_t mask[2] = {MaskOf(lanes, chunk), 0};
                    ApplyRowOp<op>(dst.data[to + chunk], a.data[from_a + chunk], b.data[from_b + chunk], mask, repeats,
                                   step);
                }
            }
        }
    }

    __aicore__ inline int32_t At(const Rows& rows, int32_t outer, int32_t inner) const {
        return outer * rows.outer_step + inner * rows.inner_step;
    }

    const RopeTilingHead* td_ = nullptr;
    int32_t tokens_ = 0, heads_ = 0, token_step_ = 0, head_step_ = 0;
    LocalTensor<float> sin_, cos_;
};

}  // namespace rotation
