// Rows of float32 in UB divided by the root of their mean square.
//
// x / sqrt(mean(x^2) + epsilon) is taken as x (sqrt(n) / sqrt(sum(x^2) + n epsilon)). The error: with u = 2^-24, a
// square rounds once; n of them are added in a tree, each addition rounding once, in ceil(log2 n) levels (two more
// of long rows, whose chunks are added in such a tree, too): nothing in the sum is negative, so it is within
// (3 + log2 n + 1) u, relatively. n epsilon and the sum with it round once each; the root halves all that and rounds,
// and so do sqrt(n), the quotient and the product with x: (6 + log2 n) u / 2 + 4 u = (7 + log2(n) / 2) u. This holds
// while squares neither overflow nor vanish. Where they might (kMost, kLeast), rows are multiplied by powers of two
// first, so that the largest element comes near 2^16: exact for every element that is to become a normal number, since
// it is multiplied by sqrt(n) 2^-16 at most afterwards, and the same formula.
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

// A factor that brings a row's largest element near 2^16, and what is added to the squares then.
struct RowScale {
    float factor;
    float added;
};

class RowNorm {
public:
    // stats: kRowNormStats * slots floats, slots a multiple of kRowNormSlots, for up to so many rows.
    __aicore__ inline void Init(const RowNormTiling* td, LocalTensor<float> stats, int32_t slots) {
        td_ = td;
        Floats parts(stats);
        sum_ = parts.Take(slots);
        inverse_ = parts.Take(slots);
        root_n_ = parts.Take(slots);
        temp_ = parts.Take(slots);
        spread_ = parts.Take(slots * kBlockFloats);
        // Whole instructions go beyond the last row: let there be numbers.
        AscendC::Duplicate(stats, td->root_n, slots * kRowNormStats);
    }

    // A float for each slot, to hold the factors of rows that are multiplied by a power of two.
    __aicore__ inline void KeepFactors(LocalTensor<float> factors) {
        factors_ = factors;
        keeps_factors_ = true;
    }

    // Of each row [pitch], lanes from n on being 0: 1 / RMS. The rows themselves are multiplied by a power of two
    // where they must; returns whether they were: the inverses are the multiplied rows' then. squares: as many
    // floats as the rows.
    __aicore__ inline bool FindInverses(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                        int32_t count) {
        SumSquares(rows, squares, pitch, count);
        AscendC::Adds(sum_, sum_, td_->added, count);
        OrderV();
        bool leaves = Invert(count);
        if (leaves) FindScaledInverses(rows, squares, pitch, count);
        return leaves;
    }

    // The inverses, each in a block of its own.
    __aicore__ inline EvenRows Inverses() const { return EvenRows{spread_, kBlockFloats, true}; }

    // rows / RMS.
    __aicore__ inline void Normalize(LocalTensor<float> rows, int32_t pitch, int32_t count) {
        EvenRows all{rows, pitch, false};
        EachRow<RowOp::kMul>(all, all, Inverses(), count, pitch);
        OrderV();
    }

    // ---- the same of one row in pieces: each piece's 64 sums, then their sum, then the inverse

    // sums: 64 floats. Returns whether squares have left float32's range.
    __aicore__ inline bool FindInverse(LocalTensor<float> sums, float added) {
        SumRows(sum_, spread_, sums, kRepeatFloats, kRepeatFloats, 1);
        AscendC::Adds(sum_, sum_, added, 1);
        OrderV();
        return Invert(1);
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
        // Nor less than makes the largest factor there is.
        exponent = Most(Most(exponent, td_->epsilon_exponent), kPeak - kBias);
        float factor = FloatOf(static_cast<uint32_t>(kBias + kPeak - exponent) << kMantissaBits);
        return RowScale{factor, td_->added * factor * factor};
    }

private:
    static constexpr int32_t kMantissaBits = 23, kBias = 127, kPeak = 16;
    // Sums of squares that float32 holds without loss.
    static constexpr uint32_t kLeast = static_cast<uint32_t>(kBias - 100) << kMantissaBits;  // 2^-100
    static constexpr uint32_t kMost = static_cast<uint32_t>(kBias + 126) << kMantissaBits;   // 2^126

    // Into sum_, the sum of each row's squares.
    __aicore__ inline void SumSquares(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                      int32_t count) {
        AscendC::Mul(squares, rows, rows, count * pitch);
        OrderV();
        int32_t width = FoldRows<RowOp::kAdd>(squares, pitch, count, pitch, kRepeatFloats);
        SumRows(sum_, spread_, squares, pitch, width, count);
    }

    // The inverses of sum_, spread; by root and division, since the instructions for both at once are
    // approximations. Returns whether a sum has left the range, which the scalar unit looks up meanwhile.
    __aicore__ inline bool Invert(int32_t count) {
        int32_t repeats = (count + kRepeatFloats - 1) / kRepeatFloats;
        int32_t checked = FreeEvent<AscendC::HardEvent::V_S>();
        if (td_->checks != kSquaresStay) {
            // Of whole repeats: slots behind the last row hold an earlier row's, which at worst scales rows that
            // need not be.
            AscendC::WholeReduceSum(temp_, sum_, kRepeatFloats, repeats, 1, 1, kRepeatFloats / kBlockFloats);
            AscendC::SetFlag<AscendC::HardEvent::V_S>(checked);
        }
        AscendC::Sqrt(inverse_, sum_, count);
        OrderV();
        AscendC::Div(inverse_, root_n_, inverse_, count);
        OrderV();
        SpreadRows(spread_, inverse_, count);
        if (td_->checks == kSquaresStay) return false;
        AscendC::WaitFlag<AscendC::HardEvent::V_S>(checked);
        bool leaves = LeaveRange(count, repeats);
        HandOver<AscendC::HardEvent::S_V>();
        return leaves;
    }

    // Sums are not negative, so that their bits have their order; a NaN's are beyond.
    __aicore__ inline bool LeaveRange(int32_t count, int32_t repeats) const {
        LocalTensor<uint32_t> all = temp_.ReinterpretCast<uint32_t>(), each = sum_.ReinterpretCast<uint32_t>();
        for (int32_t i = 0; i < repeats; ++i)
            if (all.GetValue(static_cast<uint32_t>(i)) >= kMost) return true;
        for (int32_t i = 0; i < count && td_->checks == kSquaresVanish; ++i)
            if (each.GetValue(static_cast<uint32_t>(i)) < kLeast) return true;
        return false;
    }

    __aicore__ inline void FindScaledInverses(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                              int32_t count) {
        AscendC::Abs(squares, rows, count * pitch);
        OrderV();
        FoldRows<RowOp::kMax>(squares, pitch, count, pitch, kBlockFloats);
        HandOver<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < count; ++row) {
            RowScale scale = ScaleOf(squares[row * pitch]);
            temp_.SetValue(static_cast<uint32_t>(row), scale.added);
            if (keeps_factors_) factors_.SetValue(static_cast<uint32_t>(row), scale.factor);
            AscendC::Muls(rows[row * pitch], rows[row * pitch], scale.factor, pitch);
        }
        HandOver<AscendC::HardEvent::S_V>();
        OrderV();
        SumSquares(rows, squares, pitch, count);
        AscendC::Add(sum_, sum_, temp_, count);
        OrderV();
        Invert(count);
    }

    const RowNormTiling* td_ = nullptr;
    LocalTensor<float> sum_, inverse_, root_n_, temp_, spread_, factors_;
    bool keeps_factors_ = false;
};

}  // namespace rope_device
