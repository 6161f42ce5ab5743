// Divide rows of float32 in UB by the root of their mean square.
//
// x / sqrt(mean(x^2) + epsilon) is computed as x (sqrt(n) / sqrt(sum(x^2) + n epsilon)). The error, with u = 2^-24: a
// square rounds once. A tree adds the n squares in ceil(log2 n) levels, and each addition rounds once. Long rows need
// two more levels, because a second tree adds their chunks. No term of the sum is negative, so its relative error is
// within (3 + log2 n + 1) u. n epsilon and the sum with it round once each. The root halves the error and rounds;
// sqrt(n), the quotient and the product with x round once each: (6 + log2 n) u / 2 + 4 u = (7 + log2(n) / 2) u. This
// holds while squares neither overflow nor vanish. Where they might (kMost, kLeast), a row is first multiplied by a
// power of two that brings its largest element near 2^16; the formula stays the same. The multiplication is exact for
// every element whose result is a normal number, since the element is then multiplied by at most sqrt(n) 2^-16.
//
// npu_rope/testing/bounds.py uses this bound.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

// The float32 with these bits.
__aicore__ inline float FloatOf(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

// The factor that brings a row's largest element near 2^16, and the term to add to the squares of the multiplied row.
struct RowScale {
    float factor;
    float added;
};

class RowNorm {
public:
    // stats: kRowNormStats * slots floats, for up to `slots` rows; slots is a multiple of kRowNormSlots.
    __aicore__ inline void Init(const RowNormTiling* td, LocalTensor<float> stats, int32_t slots) {
        td_ = td;
        Floats parts(stats);
        sum_ = parts.Take(slots);
        inverse_ = parts.Take(slots);
        root_n_ = parts.Take(slots);
        temp_ = parts.Take(slots);
        spread_ = parts.Take(slots * kBlockFloats);
        // Instructions process full repeats; initialise the slots past the last row.
        AscendC::Duplicate(stats, td->root_n, slots * kRowNormStats);
    }

    // factors: one float per slot, for the factors of rows that are multiplied by a power of two.
    __aicore__ inline void KeepFactors(LocalTensor<float> factors) {
        factors_ = factors;
        keeps_factors_ = true;
    }

    // Finds 1 / RMS of each row [pitch], whose lanes from n on are 0. Multiplies rows by a power of two where their
    // squares leave float32's range. Returns whether it did; the inverses are then those of the multiplied rows.
    // squares: scratch memory of the rows' number of floats.
    __aicore__ inline bool FindInverses(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                        int32_t count) {
        SumSquares(rows, squares, pitch, count);
        AscendC::Adds(sum_, sum_, td_->added, count);
        OrderV();
        bool leaves = Invert(count);
        if (leaves) FindScaledInverses(rows, squares, pitch, count);
        return leaves;
    }

    // The inverses, one block per row.
    __aicore__ inline EvenRows Inverses() const { return EvenRows{spread_, kBlockFloats, true}; }

    // Divides the rows by their RMS.
    __aicore__ inline void Normalize(LocalTensor<float> rows, int32_t pitch, int32_t count) {
        EvenRows all{rows, pitch, false};
        EachRow<RowOp::kMul>(all, all, Inverses(), count, pitch);
        OrderV();
    }

    // ---- one row in pieces: each piece's 64 sums, then their sum, then the inverse

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
        // A smaller exponent would need a factor above float32's largest power of two.
        exponent = Most(Most(exponent, td_->epsilon_exponent), kPeak - kBias);
        float factor = FloatOf(static_cast<uint32_t>(kBias + kPeak - exponent) << kMantissaBits);
        return RowScale{factor, td_->added * factor * factor};
    }

private:
    static constexpr int32_t kMantissaBits = 23, kBias = 127, kPeak = 16;
    // The range of sums of squares that float32 holds without loss.
    static constexpr uint32_t kLeast = static_cast<uint32_t>(kBias - 100) << kMantissaBits;  // 2^-100
    static constexpr uint32_t kMost = static_cast<uint32_t>(kBias + 126) << kMantissaBits;   // 2^126

    // Sets sum_ to the sums of each row's squares.
    __aicore__ inline void SumSquares(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                      int32_t count) {
        AscendC::Mul(squares, rows, rows, count * pitch);
        OrderV();
        int32_t width = FoldRows<RowOp::kAdd>(squares, pitch, count, pitch, kRepeatFloats);
        SumRows(sum_, spread_, squares, pitch, width, count);
    }

    // Computes the inverse roots of sum_ and spreads them to blocks. It uses root and division, because the instruction
    // for the inverse root is an approximation. Returns whether a sum is outside the range; the scalar unit checks that
    // while the vector unit computes.
    __aicore__ inline bool Invert(int32_t count) {
        int32_t repeats = (count + kRepeatFloats - 1) / kRepeatFloats;
        int32_t checked = FreeEvent<AscendC::HardEvent::V_S>();
        if (td_->checks != kSquaresStay) {
            // Reduces whole repeats. Slots past the last row hold sums of earlier rows; at worst, rows are scaled that
            // do not need it.
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

    // Sums are not negative, so their bits order as the numbers do; the bits of a NaN are larger than kMost.
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

}  // namespace norm
