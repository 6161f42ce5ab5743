// Divide rows of float32 in UB by the root of their mean square.
//
// x / sqrt(mean(x^2) + epsilon) is computed as x (sqrt(n) / sqrt(sum(x^2) + n epsilon)).
//
// The error, with u = 2^-24: A square rounds once. A tree adds the n squares in ceil(log2 n) levels, and each addition
// rounds once. Long rows need two more levels, because a second tree adds their chunks. No term of the sum is negative,
// so its relative error is within (3 + log2 n + 1) u. n epsilon and the sum with it round once each. The root halves
// the error and rounds. sqrt(n), the quotient and the product with x round once each. The total is (6 + log2 n) u / 2 +
// 4 u = (7 + log2(n) / 2) u. On Ascend950, Sqrt and Div may be off by one unit in the last place, which is at most 2 u,
// instead of half of one (their pages in the vendor's API reference). The total is then (9 + log2(n) / 2) u.
//
// This holds if squares neither overflow nor underflow. If they might (kLargestSum, kSmallestSum), the row is first
// multiplied by a power of two that brings its largest element near 2^16. The formula stays the same. The result is at
// most sqrt(n) 2^-16 times the multiplied element. If the result is a normal number, the multiplied element is also
// normal, and the multiplication is exact.
//
// npu_rope/testing/bounds.py uses this bound.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

// Returns the float32 with these bits.
__aicore__ inline float FloatOf(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

// The factor that brings a row's largest element near 2^16, and the term to add to the squares of the multiplied row.
struct RowMultiplier {
    float factor;
    float n_epsilon;  // RowNormTiling::n_epsilon, multiplied by factor squared
};

class RowNorm {
public:
    // stats: kRowNormStats * slots floats. slots: the largest number of rows, a multiple of kRowNormSlots.
    __aicore__ inline void Init(const RowNormTiling* tiling, LocalTensor<float> stats, int32_t slots) {
        tiling_ = tiling;
        slots_ = slots;
        FloatAllocator parts(stats);
        sum_ = parts.Take(slots);
        inverse_rms_ = parts.Take(slots);
        root_n_ = parts.Take(slots);
        temp_ = parts.Take(slots);
        inverse_rms_blocks_ = parts.Take(slots * kBlockFloats);
        // Sets root_n_. Instructions process full repeats; this also initialises the slots past the last row.
        AscendC::Duplicate(stats, tiling->root_n, slots * kRowNormStats);
    }

    // Selects the parameters of the rows that follow.
    __aicore__ inline void Select(const RowNormTiling* tiling) {
        if (tiling == tiling_) return;
        const bool same_length = tiling->root_n == tiling_->root_n;
        tiling_ = tiling;
        if (same_length) return;
        AscendC::Duplicate(root_n_, tiling->root_n, slots_);  // a barrier follows in AddEpsilon()
    }

    // Sets the sum of a row's squares, which FindInverseRmsFromGiven() reads. The caller synchronizes the scalar unit
    // with the vector unit.
    __aicore__ inline void SetSum(int32_t row, float sum) { sum_.SetValue(static_cast<uint32_t>(row), sum); }

    // Computes 1 / RMS of each row from the sums of SetSum(). The tiling excludes that squares leave the range.
    __aicore__ inline void FindInverseRmsFromGiven(int32_t count) {
        AddEpsilon(tiling_->n_epsilon, count);
        InvertAndCheckRange(count);
    }

    // Keeps the factors of rows that are multiplied by a power of two. factors: memory of one float for each slot.
    __aicore__ inline void KeepFactors(LocalTensor<float> factors) {
        factors_ = factors;
        keeps_factors_ = true;
    }

    // Computes 1 / RMS of each row [pitch]. The padding of the rows must be 0. If squares leave the range of float32,
    // each row is multiplied by its own power of two. 1 / RMS is then that of the multiplied row. Returns whether rows
    // were multiplied. squares: scratch memory of the same size as rows.
    __aicore__ inline bool FindInverseRms(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                          int32_t count) {
        SumSquares(rows, squares, pitch, count);
        AddEpsilon(tiling_->n_epsilon, count);
        bool out_of_range = InvertAndCheckRange(count);
        if (out_of_range) FindMultipliedInverseRms(rows, squares, pitch, count);
        return out_of_range;
    }

    // 1 / RMS of each row, in all lanes of one block.
    __aicore__ inline PitchedRows InverseRms() const { return PitchedRows{inverse_rms_blocks_, kBlockFloats, true}; }

    // Divides the rows by their RMS.
    __aicore__ inline void Normalize(LocalTensor<float> rows, int32_t pitch, int32_t count) {
        PitchedRows all{rows, pitch, false};
        ApplyPerRow<RowOp::kMul>(all, all, InverseRms(), count, pitch);
        VectorBarrier();
    }

    // ---- one row in pieces

    // Computes 1 / RMS of one row from 64 partial sums of its squares. Returns whether squares have left the range of
    // float32. Ends with SyncPipes<S_V>() unless the tiling excludes this.
    __aicore__ inline bool FindInverseRmsFromSums(LocalTensor<float> sums, float n_epsilon) {
        SumRows(sum_, inverse_rms_blocks_, sums, kRepeatFloats, kRepeatFloats, 1);
        AddEpsilon(n_epsilon, 1);
        return InvertAndCheckRange(1);
    }

    // Divides a piece of one row by the RMS of the row. dst may be src.
    __aicore__ inline void NormalizePiece(LocalTensor<float> dst, LocalTensor<float> src, int32_t count) {
        ApplyPerRow<RowOp::kMul>(OneRow(dst), OneRow(src), PitchedRows{inverse_rms_blocks_, 0, true}, 1, count);
        VectorBarrier();
    }

    // Returns the multiplier of a row. largest: 8 floats; their maximum is the row's largest magnitude. The caller has
    // called SyncPipes<V_S>().
    __aicore__ inline RowMultiplier MultiplierFor(LocalTensor<float> largest) {
        LocalTensor<uint32_t> bits = largest.ReinterpretCast<uint32_t>();
        uint32_t largest_bits = 0;
        for (uint32_t i = 0; i < kBlockFloats; ++i) {
            uint32_t magnitude_bits = bits.GetValue(i);  // non-negative floats compare like their bits
            if (magnitude_bits > largest_bits) largest_bits = magnitude_bits;
        }
        int32_t exponent = static_cast<int32_t>(largest_bits >> kMantissaBits) - kBias;
        // A smaller exponent would need a factor above float32's largest power of two.
        exponent = MaxOf(MaxOf(exponent, tiling_->epsilon_exponent), kPeakExponent - kBias);
        float factor = FloatOf(static_cast<uint32_t>(kBias + kPeakExponent - exponent) << kMantissaBits);
        return RowMultiplier{factor, tiling_->n_epsilon * factor * factor};
    }

private:
    static constexpr int32_t kMantissaBits = 23, kBias = 127, kPeakExponent = 16;
    // The range in which a sum of squares has lost nothing by overflow or underflow.
    static constexpr uint32_t kSmallestSum = static_cast<uint32_t>(kBias - 100) << kMantissaBits;  // 2^-100
    static constexpr uint32_t kLargestSum = static_cast<uint32_t>(kBias + 126) << kMantissaBits;   // 2^126

    // Sets sum_ to the sums of each row's squares.
    __aicore__ inline void SumSquares(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                      int32_t count) {
        AscendC::Mul(squares, rows, rows, count * pitch);
        VectorBarrier();
        int32_t width = FoldRows<RowOp::kAdd>(squares, pitch, count, pitch, kRepeatFloats);
        SumRows(sum_, inverse_rms_blocks_, squares, pitch, width, count);
    }

    // Processes whole repeats, because an instruction takes longer if its count is no multiple of a repeat.
    __aicore__ inline void AddEpsilon(float n_epsilon, int32_t count) {
        AscendC::Adds(sum_, sum_, n_epsilon, RoundUp(count, kRepeatFloats));
        VectorBarrier();
    }

    // Computes sqrt(n) / sqrt(sum_) and copies each result to a block. It uses Sqrt and Div, because Rsqrt is only an
    // approximation. Returns whether a sum is outside the range; the scalar unit checks this while the vector unit
    // computes.
    __aicore__ inline bool InvertAndCheckRange(int32_t count) {
        int32_t repeats = (count + kRepeatFloats - 1) / kRepeatFloats;
        int32_t sums_ready = FetchEvent<AscendC::HardEvent::V_S>();
        if (tiling_->square_range != kSquaresInRange) {
            // Add whole repeats. Slots past the last row have sums of earlier rows. Because of these sums, rows may be
            // multiplied by a power of two although this is not necessary.
            AscendC::WholeReduceSum(temp_, sum_, kRepeatFloats, repeats, 1, 1, kRepeatFloats / kBlockFloats);
            AscendC::SetFlag<AscendC::HardEvent::V_S>(sums_ready);
        }
        // Whole repeats, as in AddEpsilon().
        AscendC::Sqrt(inverse_rms_, sum_, repeats * kRepeatFloats);
        VectorBarrier();
        AscendC::Div(inverse_rms_, root_n_, inverse_rms_, repeats * kRepeatFloats);
        VectorBarrier();
        BroadcastRows(inverse_rms_blocks_, inverse_rms_, count);
        if (tiling_->square_range == kSquaresInRange) return false;
        AscendC::WaitFlag<AscendC::HardEvent::V_S>(sums_ready);
        bool out_of_range = AnyOutOfRange(count, repeats);
        SyncPipes<AscendC::HardEvent::S_V>();
        return out_of_range;
    }

    // Sums are not negative, so their bits compare like the numbers. The bits of a NaN are larger than kLargestSum.
    __aicore__ inline bool AnyOutOfRange(int32_t count, int32_t repeats) const {
        LocalTensor<uint32_t> repeat_sums = temp_.ReinterpretCast<uint32_t>(),
                              row_sums = sum_.ReinterpretCast<uint32_t>();
        for (int32_t i = 0; i < repeats; ++i)
            if (repeat_sums.GetValue(static_cast<uint32_t>(i)) >= kLargestSum) return true;
        for (int32_t i = 0; i < count && tiling_->square_range == kSquaresMayUnderflow; ++i)
            if (row_sums.GetValue(static_cast<uint32_t>(i)) < kSmallestSum) return true;
        return false;
    }

    __aicore__ inline void FindMultipliedInverseRms(LocalTensor<float> rows, LocalTensor<float> squares, int32_t pitch,
                                                    int32_t count) {
        AscendC::Abs(squares, rows, count * pitch);
        VectorBarrier();
        FoldRows<RowOp::kMax>(squares, pitch, count, pitch, kBlockFloats);
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < count; ++row) {
            RowMultiplier multiplier = MultiplierFor(squares[row * pitch]);
            temp_.SetValue(static_cast<uint32_t>(row), multiplier.n_epsilon);
            if (keeps_factors_) factors_.SetValue(static_cast<uint32_t>(row), multiplier.factor);
            AscendC::Muls(rows[row * pitch], rows[row * pitch], multiplier.factor, pitch);
        }
        SyncPipes<AscendC::HardEvent::S_V>();
        VectorBarrier();
        SumSquares(rows, squares, pitch, count);
        AscendC::Add(sum_, sum_, temp_, count);
        VectorBarrier();
        InvertAndCheckRange(count);
    }

    const RowNormTiling* tiling_ = nullptr;
    int32_t slots_ = 0;
    LocalTensor<float> sum_, inverse_rms_, root_n_, temp_, inverse_rms_blocks_, factors_;
    bool keeps_factors_ = false;
};

}  // namespace norm
