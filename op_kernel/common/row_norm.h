// Rows of float32 in UB divided by the root of their mean square.
//
// The error. With u = 2^-24: a square rounds once; n of them are added in a tree, each addition rounding once, in
// ceil(log2 n) levels: nothing in the sum is negative, so it is within (1 + ceil(log2 n)) u, relatively. 1/n, the
// product with it and the sum with epsilon round once each: 3 u. The root halves that and rounds, and so do the
// inverse and the product with x: (1 + log2 n + 1 + 3) u / 2 + 3 u, less than (5.6 + log2(n) / 2) u. (Long rows add
// chunks' sums in the same way: at most two more levels, 1 u.) This holds while squares neither overflow nor get
// lost. Where they might, which the inverse shows (kLeast, kMost), the rows are multiplied by powers of two first:
// exact, and the same formula.
//
// npu_rope/testing/bounds.py judges by this. Included after row_steps.h.
#pragma once

#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

// A scalar's bits.
__aicore__ inline float FloatOf(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

// A factor that brings a row's largest element near 1, and epsilon with it.
struct RowScale {
    float factor;
    float epsilon;
};

class RowNorm {
public:
    // stats: kRowNormStats * slots floats, slots a multiple of kRowNormSlots, for up to so many rows.
    __aicore__ inline void Init(const RowNormTiling* td, LocalTensor<float> stats, int32_t slots) {
        td_ = td;
        Floats parts(stats);
        mean_ = parts.Take(slots);
        inverse_ = parts.Take(slots);
        ones_ = parts.Take(slots);
        clamped_ = parts.Take(slots);
        spread_ = parts.Take(slots * kBlockFloats);
        // Whole instructions go beyond the last row: let there be numbers.
        AscendC::Duplicate(stats, 1.0f, slots * kRowNormStats);
        OrderV();
    }

    // Of each row [pitch], lanes from n on being 0: 1 / RMS. The rows themselves are multiplied by a power of two
    // where they must. squares: as many floats as the rows.
    __aicore__ inline void FindInverses(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                        int32_t count) {
        SumSquares(rows, squares, pitch, count);
        AscendC::Muls(mean_, mean_, td_->inverse_n, count);
        OrderV();
        AscendC::Adds(mean_, mean_, td_->epsilon, count);
        OrderV();
        Invert(count);
        if (td_->checks != 0 && LeavesRange(count)) FindScaledInverses(rows, squares, pitch, count);
        Spread(count);
    }

    // rows / RMS.
    __aicore__ inline void Normalize(LocalTensor<float> rows, int32_t pitch, int32_t count) {
        EvenRows all{rows, pitch, false};
        EachRow<RowOp::kMul>(all, all, EvenRows{spread_, kBlockFloats, true}, count, pitch);
        OrderV();
    }

    // ---- the same of one row in pieces: each piece's 64 sums, then their sum, then the inverse

    // sums: 64 floats. Returns whether squares have left float32's range.
    __aicore__ inline bool FindInverse(LocalTensor<float> sums, float epsilon) {
        SumLanes(sums, kRepeatFloats, kRepeatFloats, 1);
        AscendC::Muls(mean_, mean_, td_->inverse_n, 1);
        OrderV();
        AscendC::Adds(mean_, mean_, epsilon, 1);
        OrderV();
        Invert(1);
        Spread(1);
        return td_->checks != 0 && LeavesRange(1);
    }

    // dst may be src.
    __aicore__ inline void NormalizePiece(LocalTensor<float> dst, LocalTensor<float> src, int32_t count) {
        EachRow<RowOp::kMul>(EvenRows{dst, 0, false}, EvenRows{src, 0, false}, EvenRows{spread_, 0, true}, 1, count);
        OrderV();
    }

    // largest: 8 floats, the largest magnitude of the row among them, which the scalar unit may read.
    __aicore__ inline RowScale ScaleOf(LocalTensor<float> largest) {
        LocalTensor<uint32_t> bits = largest.ReinterpretCast<uint32_t>();
        uint32_t most = 0;
        for (uint32_t i = 0; i < kBlockFloats; ++i) {
            uint32_t one = bits.GetValue(i);  // of numbers that are not negative the order of their bits
            if (one > most) most = one;
        }
        int32_t exponent = static_cast<int32_t>(most >> kMantissaBits) - kBias;
        if (exponent < td_->epsilon_exponent) exponent = td_->epsilon_exponent;
        if (exponent < -kMostExponent) exponent = -kMostExponent;
        if (exponent > kMostExponent) exponent = kMostExponent;
        float factor = FloatOf(static_cast<uint32_t>(kBias - exponent) << kMantissaBits);
        return RowScale{factor, td_->epsilon * factor * factor};
    }

private:
    static constexpr int32_t kMantissaBits = 23, kBias = 127, kMostExponent = 126;
    // 1 / RMS of what float32 squares without loss: mean squares between 2^-100 and 2^126.
    static constexpr float kLeast = 1.0f / 9223372036854775808.0f;  // 2^-63
    static constexpr float kMost = 1125899906842624.0f;             // 2^50

    // Into mean_, the sum of each row's squares.
    __aicore__ inline void SumSquares(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                      int32_t count) {
        AscendC::Mul(squares, rows, rows, count * pitch);
        OrderV();
        SumLanes(squares, pitch, FoldRows<RowOp::kAdd>(squares, pitch, count, pitch, kRepeatFloats), count);
    }

    // Into mean_, the sum of the first `width` lanes of each row, at most 64.
    __aicore__ inline void SumLanes(LocalTensor<float> rows, int32_t pitch, int32_t width, int32_t count) {
        int32_t blocks = pitch / kBlockFloats;
        bool whole = width == kRepeatFloats;
        for (int32_t row = 0; row < count; row += kMostRepeats) {
            int32_t repeats = Least(count - row, kMostRepeats);
            if (whole) {
                AscendC::BlockReduceSum(spread_[row * kBlockFloats], rows[row * pitch], repeats, kRepeatFloats, 1, 1,
                                        blocks);
            } else {
                AscendC::WholeReduceSum(mean_[row], rows[row * pitch], width, repeats, 1, 1, blocks);
            }
        }
        OrderV();
        if (!whole) return;
        AscendC::BlockReduceSum(mean_, spread_, (count + kBlockFloats - 1) / kBlockFloats, kRepeatFloats, 1, 1,
                                kRepeatFloats / kBlockFloats);
        OrderV();
    }

    // By root and division: the instructions for both at once are approximations.
    __aicore__ inline void Invert(int32_t count) {
        AscendC::Sqrt(inverse_, mean_, count);
        OrderV();
        AscendC::Div(inverse_, ones_, inverse_, count);
        OrderV();
    }

    __aicore__ inline void Spread(int32_t count) {
        AscendC::Brcb(spread_, inverse_, static_cast<uint8_t>((count + kBlockFloats - 1) / kBlockFloats),
                      AscendC::BrcbRepeatParams(1, kBlockFloats));
        OrderV();
    }

    // Whether any inverse is not between kLeast and kMost. Slots behind the last row hold an earlier row's, which
    // at worst scales rows that need not be.
    __aicore__ inline bool LeavesRange(int32_t count) {
        int32_t repeats = (count + kRepeatFloats - 1) / kRepeatFloats, slots = repeats * kRepeatFloats;
        AscendC::Maxs(clamped_, inverse_, kLeast, slots);
        OrderV();
        AscendC::Mins(clamped_, clamped_, kMost, slots);
        OrderV();
        AscendC::Sub(clamped_, inverse_, clamped_, slots);
        OrderV();
        AscendC::WholeReduceSum(mean_, clamped_, kRepeatFloats, repeats, 1, 1, kRepeatFloats / kBlockFloats);
        HandOver<AscendC::HardEvent::V_S>();
        bool leaves = false;
        for (int32_t i = 0; i < repeats; ++i)
            if (mean_.GetValue(static_cast<uint32_t>(i)) != 0.0f) leaves = true;
        HandOver<AscendC::HardEvent::S_V>();
        return leaves;
    }

    __aicore__ inline void FindScaledInverses(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                              int32_t count) {
        AscendC::Abs(squares, rows, count * pitch);
        OrderV();
        FoldRows<RowOp::kMax>(squares, pitch, count, pitch, kBlockFloats);
        HandOver<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < count; ++row) {
            RowScale scale = ScaleOf(squares[row * pitch]);
            clamped_.SetValue(static_cast<uint32_t>(row), scale.epsilon);
            AscendC::Muls(rows[row * pitch], rows[row * pitch], scale.factor, pitch);
        }
        HandOver<AscendC::HardEvent::S_V>();
        OrderV();
        SumSquares(rows, squares, pitch, count);
        AscendC::Muls(mean_, mean_, td_->inverse_n, count);
        OrderV();
        AscendC::Add(mean_, mean_, clamped_, count);
        OrderV();
        Invert(count);
    }

    const RowNormTiling* td_ = nullptr;
    LocalTensor<float> mean_, inverse_, ones_, clamped_, spread_;
};

}  // namespace rope_device
