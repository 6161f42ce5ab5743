// The kernels of rms_norm_backward for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. The results equal, bit for bit,
// those of the functions of RmsNormKernels on blocks of doubles, except for the rounding of the mean of g N.
#include "csrc/cpu/rms_norm_backward_kernels.h"

#include <type_traits>

#include "csrc/cpu/doubles.h"

namespace npu_rope {
namespace {

// Sums terms in the order of dot(). terms(i, low, high) sets those of W elements, as two vectors.
template <typename Terms, typename Term>
inline double sum_terms(int64_t count, Terms terms, Term term) {
    constexpr int kStep = 2 * kLanes;
    DoubleVec sums[kStep / kDoublesPerVector] = {};
    int64_t i = 0;
    for (; i + kStep <= count; i += kStep) {
        for (int k = 0; k < kStep / W; ++k) {
            DoubleVec low, high;
            terms(i + k * W, &low, &high);
            sums[2 * k] += low, sums[2 * k + 1] += high;
        }
    }
    double tail = 0;
    for (; i < count; ++i) tail += term(i);
    return sum_vectors(sums) + tail;
}

// One loop for each sum is faster than one loop for both.
template <typename XElement, typename ScaleElement>
RowSums sum_block(const void* x_block, const void* grad_block, const void* scale_block, int64_t count) {
    auto* x = static_cast<const typename XElement::T*>(x_block);
    auto* grad = static_cast<const typename ScaleElement::T*>(grad_block);
    auto* scale = static_cast<const typename ScaleElement::T*>(scale_block);
    auto squares = [=](int64_t i, DoubleVec* low, DoubleVec* high) {
        AsDoubles<XElement>::load_doubles(x + i, low, high);
        *low *= *low, *high *= *high;
    };
    auto square = [=](int64_t i) {
        const double v = XElement::to_float(x[i]);
        return v * v;
    };
    auto products = [=](int64_t i, DoubleVec* low, DoubleVec* high) {
        DoubleVec x_low, x_high, scale_low, scale_high;
        AsDoubles<XElement>::load_doubles(x + i, &x_low, &x_high);
        AsDoubles<ScaleElement>::load_doubles(grad + i, low, high);
        AsDoubles<ScaleElement>::load_doubles(scale + i, &scale_low, &scale_high);
        *low = *low * scale_low * x_low;
        *high = *high * scale_high * x_high;
    };
    auto product = [=](int64_t i) {
        return double{ScaleElement::to_float(grad[i])} * double{ScaleElement::to_float(scale[i])} *
               double{XElement::to_float(x[i])};
    };
    return {sum_terms(count, squares, square), sum_terms(count, products, product)};
}

// Rounds to float32, then to a type, and returns the result as doubles. A NaN of bfloat16 comes from an element of this
// type, so round_bf16() needs no with_bf16_nan().
template <typename Element>
inline void round_doubles(DoubleVec* low, DoubleVec* high) {
    const FloatVec v = join(*low, *high);
    if constexpr (std::is_same<Element, F32>::value) {
        split(v, low, high);
    } else if constexpr (std::is_same<Element, Bf16>::value) {
        split(as_float(round_bf16(v) & 0xffff0000u), low, high);
    } else {
        typename Element::T narrow[W];
        Element::template store_vector<false>(narrow, with_bf16_nan(v));
        AsDoubles<Element>::load_doubles(narrow, low, high);
    }
}

// Differentiates W columns of some rows. Element i of a row is read at x + i, grad + i and dx + i.
template <typename XElement, typename ScaleElement, int kRows, bool kSums>
inline void differentiate_vector(const GradientRow* rows, int64_t i, const typename ScaleElement::T* scale,
                                 double* sums) {
    using X = typename XElement::T;
    using Scale = typename ScaleElement::T;
    DoubleVec scales[2], sum[2];
    AsDoubles<ScaleElement>::load_doubles(scale, &scales[0], &scales[1]);
    if constexpr (kSums) AsDoubles<F64>::load_doubles(sums, &sum[0], &sum[1]);
    for (int r = 0; r < kRows; ++r) {
        const GradientRow& row = rows[r];
        DoubleVec n[2], grads[2], to[2];
        AsDoubles<XElement>::load_doubles(static_cast<const X*>(row.x) + i, &n[0], &n[1]);
        AsDoubles<ScaleElement>::load_doubles(static_cast<const Scale*>(row.grad) + i, &grads[0], &grads[1]);
        for (int k = 0; k < 2; ++k) {
            n[k] *= row.inverse;
            to[k] = row.inverse * (grads[k] * scales[k] - n[k] * row.mean);
        }
        AsDoubles<XElement>::store_doubles(static_cast<X*>(row.dx) + i, to[0], to[1]);
        if constexpr (kSums) {
            round_doubles<XElement>(&n[0], &n[1]);
            for (int k = 0; k < 2; ++k) sum[k] += grads[k] * n[k];
        }
    }
    if constexpr (kSums) AsDoubles<F64>::store_doubles(sums, sum[0], sum[1]);
}

// Differentiates the last columns of a row, fewer than W, in padded copies.
template <typename XElement, typename ScaleElement, bool kSums>
void differentiate_rest(const GradientRow& row, int64_t i, int64_t count, const typename ScaleElement::T* scale,
                        double* sums) {
    using X = typename XElement::T;
    using Scale = typename ScaleElement::T;
    const Padded<X> x(static_cast<const X*>(row.x) + i, count);
    const Padded<Scale> grad(static_cast<const Scale*>(row.grad) + i, count), scales(scale, count);
    Padded<X> dx;
    Padded<double> sum;
    if constexpr (kSums) sum = Padded<double>(sums, count);
    const GradientRow padded{x.elements, grad.elements, dx.elements, row.inverse, row.mean};
    differentiate_vector<XElement, ScaleElement, 1, kSums>(&padded, 0, scales.elements, sum.elements);
    dx.copy_to(static_cast<X*>(row.dx) + i, count);
    if constexpr (kSums) sum.copy_to(sums, count);
}

template <typename XElement, typename ScaleElement, int kRows, bool kSums>
void differentiate_rows(const GradientBlock& block) {
    auto* scale = static_cast<const typename ScaleElement::T*>(block.scale);
    GradientRow rows[kRows];  // a local copy, which no store changes
    for (int r = 0; r < kRows; ++r) rows[r] = block.row[r];
    double* const sums = block.sums;
    int64_t i = 0;
    for (; i + W <= block.count; i += W)
        differentiate_vector<XElement, ScaleElement, kRows, kSums>(rows, i, scale + i, kSums ? sums + i : nullptr);
    if (i == block.count) return;
    for (const GradientRow& row : rows)
        differentiate_rest<XElement, ScaleElement, kSums>(row, i, block.count - i, scale + i,
                                                          kSums ? sums + i : nullptr);
}

template <typename XElement, typename ScaleElement>
void differentiate(const GradientBlock& block) {
    if (block.rows == kGradientRows)
        return block.sums ? differentiate_rows<XElement, ScaleElement, kGradientRows, true>(block)
                          : differentiate_rows<XElement, ScaleElement, kGradientRows, false>(block);
    return block.sums ? differentiate_rows<XElement, ScaleElement, 1, true>(block)
                      : differentiate_rows<XElement, ScaleElement, 1, false>(block);
}

}  // namespace

const RmsNormBackwardKernels& NPU_ROPE_OF_ISA(rms_norm_backward_kernels, NPU_ROPE_ISA)() {
    static const RmsNormBackwardKernels set = {
        {{sum_block<F32, F32>, sum_block<F32, F16>, sum_block<F32, Bf16>},
         {sum_block<F16, F32>, sum_block<F16, F16>, sum_block<F16, Bf16>},
         {sum_block<Bf16, F32>, sum_block<Bf16, F16>, sum_block<Bf16, Bf16>}},
        {{differentiate<F32, F32>, differentiate<F32, F16>, differentiate<F32, Bf16>},
         {differentiate<F16, F32>, differentiate<F16, F16>, differentiate<F16, Bf16>},
         {differentiate<Bf16, F32>, differentiate<Bf16, F16>, differentiate<Bf16, Bf16>}},
    };
    return set;
}

}  // namespace npu_rope
