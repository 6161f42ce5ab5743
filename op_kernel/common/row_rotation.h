// The rotation itself, on rows of float32 in UB: (x1, x2) becomes (x1 c - x2 s, x1 s + x2 c).
// An instruction covers up to 64 lanes of up to 255 rows; the table row is the same for all heads
// of a token. Lanes outside the window are masked and stay as they are. Included after
// vector_steps.h and rope_schedule.h.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

enum class RowOp { kMul, kAdd, kSub };

// Rows of a tile, or of its table: element [token, head, lane] is at
// token * token_step + head * head_step + lane.
struct Rows {
    LocalTensor<float> data;
    int32_t token_step;
    int32_t head_step;
};

// Lanes [first, last) of a row.
struct Lanes {
    int32_t first;
    int32_t last;
};

// Those of the 64 lanes from `chunk` on that are in the window.
__aicore__ inline uint64_t MaskOf(const Lanes& lanes, int32_t chunk) {
    int32_t from = lanes.first > chunk ? lanes.first - chunk : 0;
    int32_t to = Least(lanes.last - chunk, kRepeatFloats);
    uint64_t below_to = to == kRepeatFloats ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
    return below_to & ~((uint64_t{1} << from) - 1);
}

class RowRotation {
public:
    __aicore__ inline void Init(const RopeTilingData* td) { td_ = td; }

    __aicore__ inline void Begin(const Tile& tile, LocalTensor<float> sin, LocalTensor<float> cos) {
        tokens_ = tile.tokens;
        heads_ = tile.heads;
        bool by_tokens = td_->tokens_inner != 0;
        token_step_ = (by_tokens ? 1 : heads_) * td_->row_pitch;
        head_step_ = (by_tokens ? tokens_ : 1) * td_->row_pitch;
        sin_ = Rows{sin, td_->table_width, 0};
        cos_ = Rows{cos, td_->table_width, 0};
        repeat_heads_ = RepeatHeads();
    }

    // First stages, halves where they are: temp = (x1 s, x2 s), dst = (x1 c, x2 c). dst may be src.
    __aicore__ inline void ProductsOfHalves(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp,
                                            bool in_place) {
        int32_t half = td_->n_dims / 2;
        Lanes lanes{0, half};
        for (int32_t k = 0; k < 2; ++k)
            ForRows<RowOp::kMul>(RowsOf(temp, First(k)), RowsOf(src, First(k)), sin_, lanes);
        if (in_place) OrderV();
        for (int32_t k = 0; k < 2; ++k) ForRows<RowOp::kMul>(RowsOf(dst, First(k)), RowsOf(src, First(k)), cos_, lanes);
        OrderV();
    }

    // Last stage.
    __aicore__ inline void SumsOfHalves(LocalTensor<float> dst, LocalTensor<float> temp) {
        Lanes lanes{0, td_->n_dims / 2};
        ForRows<RowOp::kSub>(RowsOf(dst, First(0)), RowsOf(dst, First(0)), RowsOf(temp, First(1)), lanes);
        ForRows<RowOp::kAdd>(RowsOf(dst, First(1)), RowsOf(dst, First(1)), RowsOf(temp, First(0)), lanes);
        OrderV();
    }

    // The same with temp = swap(x), each lane's partner: the sine's table has the signs.
    __aicore__ inline void ProductsOfSwapped(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp) {
        Rows partners = RowsOf(temp, td_->lane_first);
        ForRows<RowOp::kMul>(RowsOf(dst, td_->lane_first), RowsOf(src, td_->lane_first), cos_, Window());
        ForRows<RowOp::kMul>(partners, partners, sin_, Window());
        OrderV();
    }

    __aicore__ inline void SumsOfSwapped(LocalTensor<float> dst, LocalTensor<float> temp) {
        Rows sums = RowsOf(dst, td_->lane_first);
        ForRows<RowOp::kAdd>(sums, sums, RowsOf(temp, td_->lane_first), Window());
        OrderV();
    }

private:
    __aicore__ inline int32_t First(int32_t half) const { return td_->n_offs + half * (td_->n_dims / 2); }
    __aicore__ inline Lanes Window() const {
        int32_t first = td_->n_offs - td_->lane_first;
        return Lanes{first, first + td_->n_dims};
    }
    __aicore__ inline Rows RowsOf(LocalTensor<float> data, int32_t lane) const {
        return Rows{data[lane], token_step_, head_step_};
    }

    // Which of the two an instruction repeats over, the other being a loop: what needs fewer
    // instructions among those whose strides an instruction can hold.
    __aicore__ inline bool RepeatHeads() const {
        constexpr int32_t kLargestStride = 255 * kBlockFloats;
        if (heads_ > 1 && head_step_ > kLargestStride) return false;
        if (tokens_ > 1 && token_step_ > kLargestStride) return true;
        int32_t over_heads = tokens_ * ((heads_ + kMostRepeats - 1) / kMostRepeats);
        int32_t over_tokens = heads_ * ((tokens_ + kMostRepeats - 1) / kMostRepeats);
        return over_heads <= over_tokens;
    }

    template <RowOp op>
    __aicore__ inline void ForRows(const Rows& dst, const Rows& a, const Rows& b, const Lanes& lanes) {
        int32_t outer = repeat_heads_ ? tokens_ : heads_, inner = repeat_heads_ ? heads_ : tokens_;
        AscendC::BinaryRepeatParams step(1, 1, 1, Stride(dst, inner), Stride(a, inner), Stride(b, inner));
        for (int32_t o = 0; o < outer; ++o) {
            for (int32_t i = 0; i < inner; i += kMostRepeats) {
                auto repeats = static_cast<uint8_t>(Least(inner - i, kMostRepeats));
                int32_t to = At(dst, o, i), from_a = At(a, o, i), from_b = At(b, o, i);
                for (int32_t chunk = 0; chunk < lanes.last; chunk += kRepeatFloats) {
                    uint64_t mask[2] = {MaskOf(lanes, chunk), 0};
                    One<op>(dst.data[to + chunk], a.data[from_a + chunk], b.data[from_b + chunk], mask, repeats, step);
                }
            }
        }
    }

    __aicore__ inline int32_t At(const Rows& rows, int32_t outer, int32_t inner) const {
        return repeat_heads_ ? outer * rows.token_step + inner * rows.head_step
                             : outer * rows.head_step + inner * rows.token_step;
    }

    // In blocks; a single repeat has none.
    __aicore__ inline uint8_t Stride(const Rows& rows, int32_t repeats) const {
        int32_t step = repeat_heads_ ? rows.head_step : rows.token_step;
        return repeats == 1 ? 0 : static_cast<uint8_t>(step / kBlockFloats);
    }

    template <RowOp op>
    __aicore__ inline void One(LocalTensor<float> dst, LocalTensor<float> a, LocalTensor<float> b, uint64_t* mask,
                               uint8_t repeats, const AscendC::BinaryRepeatParams& step) {
        if constexpr (op == RowOp::kMul) {
            AscendC::Mul(dst, a, b, mask, repeats, step);
        } else if constexpr (op == RowOp::kAdd) {
            AscendC::Add(dst, a, b, mask, repeats, step);
        } else {
            AscendC::Sub(dst, a, b, mask, repeats, step);
        }
    }

    const RopeTilingData* td_ = nullptr;
    int32_t tokens_ = 0, heads_ = 0, token_step_ = 0, head_step_ = 0;
    bool repeat_heads_ = true;
    Rows sin_{}, cos_{};
};

}  // namespace rope_device
