// Gradients of normalized rows. With r = 1/RMS, N = x r, g = grad * scale and m = mean(g N),
//
//   dx     = r (g - N m)
//   dscale = sum over rows of grad * (N as the forward pass rounds it)
//
// The error of dx. Let u = 2^-24 and l = log2 n. N is within (7 + l/2) u and r within (6 + l/2) u (row_norm.h). g and
// its product with N round once each. A tree adds the n products in at most l + 3 levels; two of the levels exist only
// for long rows. Each addition is within u of its operands' magnitudes. 1/n and the product with it round once each.
// Hence m is within (7 + l/2 + 2 + l + 3 + 2) u = (14 + 3l/2) u of the mean M of |g N|. The product N m is within (14 +
// 3l/2 + 7 + l/2 + 1) u |N| M. The difference rounds once, within u (|g| + |N| M). Its product with r adds (6 + l/2 +
// 1) u. The total is less than (32 + 5l/2) u r (|g| + |N| M), second order terms included. On Ascend950, N and r have
// two roundings more (row_norm.h), and m has as many more as N. The total is less than (38 + 5l/2) u r (|g| + |N| M).
//
// For a long row, m is mean(g x) times r, which has no more roundings. For a long row that is multiplied by a power of
// two, m is mean(g N), as for other rows.
//
// The error of dscale. A product rounds once. With R rows, each product goes through at most R - 1 additions, in any
// order of tiles and cores. The error is R u times the sum of |grad * N|, plus the error that the error of N causes in
// the rounded N.
//
// If squares leave the range of float32, the row is first multiplied by a power of two f. The formulas then use r / f
// instead of r. N is unchanged. dx is multiplied by f at the end, which is exact except for subnormal numbers
// (ScaleUpInverses).
//
// npu_rope/testing/bounds.py uses these bounds.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"
#include "row_norm.h"

namespace norm {

using namespace memory;

class GradientRows {
public:
    // stats: kGradientStats * slots floats. slots: as in RowNorm::Init().
    __aicore__ inline void Init(RowNorm* norm, float inverse_n, LocalTensor<float> stats, int32_t slots) {
        norm_ = norm;
        inverse_n_ = inverse_n;
        FloatAllocator parts(stats);
        mean_ = parts.Take(slots);
        factor_ = parts.Take(slots);
        mean_blocks_ = parts.Take(slots * kBlockFloats);
        norm->KeepFactors(factor_);
        // Instructions process full repeats; initialise the slots past the last row.
        AscendC::Duplicate(stats, 0.0f, slots * kGradientStats);
    }

    // Computes the mean m of each row from the row's products of g and N, in its first `width` lanes. Destroys the
    // products.
    __aicore__ inline void FindMeans(LocalTensor<float> products, int32_t pitch, int32_t width, int32_t count) {
        width = FoldRows<RowOp::kAdd>(products, pitch, count, width, kRepeatFloats);
        SumRows(mean_, mean_blocks_, products, pitch, width, count);
        AscendC::Muls(mean_, mean_, inverse_n_, count);
        VectorBarrier();
        BroadcastRows(mean_blocks_, mean_, count);
    }

    // Computes the mean m of one row from 64 partial sums of its products of g and N.
    __aicore__ inline void FindMean(LocalTensor<float> sums) { FindMeans(sums, kRepeatFloats, kRepeatFloats, 1); }

    // Computes the mean m of one row from 64 partial sums of products of g and x, instead of g and N.
    __aicore__ inline void FindMeanFromProductsWithX(LocalTensor<float> sums) {
        FindMean(sums);
        AscendC::Mul(mean_blocks_, mean_blocks_, norm_->InverseRms().data, kBlockFloats);
    }

    // dx = (g - normalized * mean) * inverse RMS.
    __aicore__ inline void Differentiate(const PitchedRows& dx, const PitchedRows& g, const PitchedRows& normalized,
                                         int32_t count, int32_t width) {
        ApplyPerRow<RowOp::kMul>(dx, normalized, PitchedRows{mean_blocks_, kBlockFloats, true}, count, width);
        VectorBarrier();
        ApplyPerRow<RowOp::kSub>(dx, g, dx, count, width);
        VectorBarrier();
        ApplyPerRow<RowOp::kMul>(dx, dx, norm_->InverseRms(), count, width);
        VectorBarrier();
    }

    // For rows that RowNorm has multiplied by a factor: multiplies their inverse RMS by 2^15. Without this, the result
    // of Differentiate() for a small g could be subnormal and lose bits, although its product with the factor is
    // normal. The caller adds the vector barrier.
    __aicore__ inline void ScaleUpInverses(int32_t count) {
        LocalTensor<float> inverses = norm_->InverseRms().data;
        AscendC::Muls(inverses, inverses, kScaleUp, count * kBlockFloats);
    }

    // Call after ScaleUpInverses(). Multiplies dx by the factors, which are at least 2^-111, and by 2^-15.
    __aicore__ inline void Rescale(const PitchedRows& dx, int32_t count, int32_t width) {
        for (int32_t row = 0; row < count; ++row)
            RescaleRow(dx.data[row * dx.pitch], factor_.GetValue(static_cast<uint32_t>(row)), width);
        VectorBarrier();
    }

    // Multiplies one row of dx, or a piece of it, by its factor and by 2^-15.
    __aicore__ inline void RescaleRow(LocalTensor<float> dx, float factor, int32_t width) {
        AscendC::Muls(dx, dx, factor * kScaleDown, width);
    }

    // Call after ScaleUpInverses(). Divides a piece of one row by the RMS of the row, without the factor 2^15.
    __aicore__ inline void NormalizeWithScaledUpInverse(LocalTensor<float> rows, int32_t count) {
        norm_->NormalizePiece(rows, rows, count);
        AscendC::Muls(rows, rows, kScaleDown, count);
        VectorBarrier();
    }

private:
    static constexpr float kScaleUp = 32768.0f, kScaleDown = 1.0f / 32768.0f;  // 2^15, 2^-15

    RowNorm* norm_ = nullptr;
    float inverse_n_ = 0.0f;
    LocalTensor<float> mean_, factor_, mean_blocks_;
};

}  // namespace norm
