// What the gradients of rows need besides their norm. With r = 1/RMS, N = x r, g = grad * scale and m = mean(g N),
//
//   dx     = r (g - N m)
//   dscale = sum over rows of grad * (N as the forward pass rounds it)
//
// The error of dx. With u = 2^-24 and l = log2 n, N is within (7 + l/2) u and r within (6 + l/2) u (row_norm.h). g
// rounds once, and so does its product with N; the n products are added in a tree, in l + 3 levels at most (two more of
// long rows, as of squares), each addition within u of what is added; 1/n and the product with it round once each: m is
// within (7 + l/2 + 2 + l + 3 + 2) u = (14 + 3l/2) u of the mean M of |g N|. The product N m: (14 + 3l/2 + 7 + l/2 + 1)
// u |N| M. The difference rounds once, within u (|g| + |N| M), and its product with r adds (6 + l/2 + 1) u: all in all
// less than (32 + 5l/2) u r (|g| + |N| M), second order terms included. Of long rows m is the mean of g x times r,
// which rounds no more often; where the row is multiplied, of g N as of others.
//
// The error of dscale: a product rounds once; of R rows' products each goes through R - 1 additions at most, in
// whatever order tiles and cores come: R u times the sum of |grad * N|, and what the roundings make of N's own error.
//
// Rows whose squares leave float32's range are multiplied by a power of two f first: then r stands for f r, N is the
// same, and dx is multiplied by f in the end, exactly but for subnormal numbers (MoveFactors).
//
// npu_rope/testing/bounds.py judges by this. Included after row_norm.h.
#pragma once

#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

class GradientRows {
public:
    // stats: kGradientStats * slots floats, as RowNorm's.
    __aicore__ inline void Init(RowNorm* norm, float inverse_n, LocalTensor<float> stats, int32_t slots) {
        norm_ = norm;
        inverse_n_ = inverse_n;
        Floats parts(stats);
        mean_ = parts.Take(slots);
        factor_ = parts.Take(slots);
        spread_ = parts.Take(slots * kBlockFloats);
        norm->KeepFactors(factor_);
        // Whole instructions go beyond the last row: let there be numbers.
        AscendC::Duplicate(stats, 0.0f, slots * kGradientStats);
    }

    // Of each row [pitch] the mean of its first `width` lanes' products, which are lost.
    __aicore__ inline void FindMeans(LocalTensor<float> products, int32_t pitch, int32_t width, int32_t count) {
        width = FoldRows<RowOp::kAdd>(products, pitch, count, width, kRepeatFloats);
        SumRows(mean_, spread_, products, pitch, width, count);
        AscendC::Muls(mean_, mean_, inverse_n_, count);
        OrderV();
        SpreadRows(spread_, mean_, count);
    }

    // The same of one row: 64 sums.
    __aicore__ inline void FindMean(LocalTensor<float> sums) { FindMeans(sums, kRepeatFloats, kRepeatFloats, 1); }

    // The same where the products are those of g and x, not N.
    __aicore__ inline void FindMeanOfUndivided(LocalTensor<float> sums) {
        FindMean(sums);
        AscendC::Mul(spread_, spread_, norm_->Inverses().data, kBlockFloats);
    }

    // dx = (g - normalized * mean) * inverse. g's rows have their own pitch.
    __aicore__ inline void Differentiate(const EvenRows& dx, const EvenRows& g, const EvenRows& normalized,
                                         int32_t count, int32_t width) {
        EachRow<RowOp::kMul>(dx, normalized, EvenRows{spread_, kBlockFloats, true}, count, width);
        OrderV();
        EachRow<RowOp::kSub>(dx, g, dx, count, width);
        OrderV();
        EachRow<RowOp::kMul>(dx, dx, norm_->Inverses(), count, width);
        OrderV();
    }

    // Of rows that the norm has multiplied: their inverses times 2^15, so that Differentiate() makes nothing of a small
    // g subnormal that is normal times the factors. Whatever reads them must be ordered behind this.
    __aicore__ inline void MoveFactors(int32_t count) {
        LocalTensor<float> inverses = norm_->Inverses().data;
        AscendC::Muls(inverses, inverses, kMoved, count * kBlockFloats);
    }

    // After MoveFactors(): times the factors, which are at least 2^-111.
    __aicore__ inline void Rescale(const EvenRows& dx, int32_t count, int32_t width) {
        for (int32_t row = 0; row < count; ++row)
            RescaleRow(dx.data[row * dx.pitch], factor_.GetValue(static_cast<uint32_t>(row)), width);
        OrderV();
    }

    // The same of one row, or of a piece of it.
    __aicore__ inline void RescaleRow(LocalTensor<float> dx, float factor, int32_t width) {
        AscendC::Muls(dx, dx, factor * kMovedBack, width);
    }

    // rows / RMS of one row in pieces, after MoveFactors().
    __aicore__ inline void NormalizeMovedPiece(LocalTensor<float> rows, int32_t count) {
        norm_->NormalizePiece(rows, rows, count);
        AscendC::Muls(rows, rows, kMovedBack, count);
        OrderV();
    }

private:
    static constexpr float kMoved = 32768.0f, kMovedBack = 1.0f / 32768.0f;

    RowNorm* norm_ = nullptr;
    float inverse_n_ = 0.0f;
    LocalTensor<float> mean_, factor_, spread_;
};

}  // namespace rope_device
