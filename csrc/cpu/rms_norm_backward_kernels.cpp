// The kernels of rms_norm_backward for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. The results equal, bit for bit,
// those of the functions of RmsNormKernels on blocks of doubles.
#include "csrc/cpu/rms_norm_backward_kernels.h"

#include <type_traits>

#include "csrc/cpu/doubles.h"

namespace npu_rope {
namespace {

// Sums f(i, part, low, high) for each vector of W elements, which sets two vectors of terms, in the order of dot().
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

template <typename Element>
double sum_block_squares(const void* x, int64_t count) {
    auto* p = static_cast<const typename Element::T*>(x);
    auto squares = [p](int64_t i, DoubleVec* low, DoubleVec* high) {
        AsDoubles<Element>::load_doubles(p + i, low, high);
        *low *= *low, *high *= *high;
    };
    return sum_terms(count, squares, [p](int64_t i) {
        const double v = Element::to_float(p[i]);
        return v * v;
    });
}

template <typename XElement, typename ScaleElement>
double dot_gradient(const GradientJob& job) {
    auto* x = static_cast<const typename XElement::T*>(job.x);
    auto* grad = static_cast<const typename ScaleElement::T*>(job.grad);
    auto* scale = static_cast<const typename ScaleElement::T*>(job.scale);
    const double inverse = job.inverse;
    auto products = [=](int64_t i, DoubleVec* low, DoubleVec* high) {
        DoubleVec x_low, x_high, scale_low, scale_high;
        AsDoubles<XElement>::load_doubles(x + i, &x_low, &x_high);
        AsDoubles<ScaleElement>::load_doubles(grad + i, low, high);
        AsDoubles<ScaleElement>::load_doubles(scale + i, &scale_low, &scale_high);
        *low = *low * scale_low * (x_low * inverse);
        *high = *high * scale_high * (x_high * inverse);
    };
    return sum_terms(job.count, products, [=](int64_t i) {
        const double g = double{ScaleElement::to_float(grad[i])} * double{ScaleElement::to_float(scale[i])};
        return g * (double{XElement::to_float(x[i])} * inverse);
    });
}

// Rounds to float32, then to a type, and returns the result as doubles.
template <typename Element>
inline void round_doubles(DoubleVec* low, DoubleVec* high) {
    const FloatVec v = join(*low, *high);
    if constexpr (std::is_same<Element, F32>::value) {
        split(v, low, high);
    } else if constexpr (std::is_same<Element, Bf16>::value) {
        split(as_float(round_bf16(with_bf16_nan(v)) & 0xffff0000u), low, high);
    } else {
        typename Element::T narrow[W];
        Element::template store_vector<false>(narrow, with_bf16_nan(v));
        AsDoubles<Element>::load_doubles(narrow, low, high);
    }
}

template <typename XElement, typename ScaleElement>
inline void differentiate_vector(const GradientJob& job, const typename XElement::T* x,
                                 const typename ScaleElement::T* grad, const typename ScaleElement::T* scale,
                                 typename XElement::T* dx, double* sums) {
    DoubleVec n[2], grads[2], scales[2], to[2];
    AsDoubles<XElement>::load_doubles(x, &n[0], &n[1]);
    AsDoubles<ScaleElement>::load_doubles(grad, &grads[0], &grads[1]);
    AsDoubles<ScaleElement>::load_doubles(scale, &scales[0], &scales[1]);
    for (int k = 0; k < 2; ++k) {
        n[k] *= job.inverse;
        to[k] = job.inverse * (grads[k] * scales[k] - n[k] * job.mean);
    }
    AsDoubles<XElement>::store_doubles(dx, to[0], to[1]);
    round_doubles<XElement>(&n[0], &n[1]);
    for (int k = 0; k < 2; ++k) {
        double* sum = sums + k * kDoublesPerVector;
        store(sum, load<DoubleVec>(sum) + grads[k] * n[k]);
    }
}

template <typename XElement, typename ScaleElement>
void differentiate(const GradientJob& job) {
    using X = typename XElement::T;
    using Scale = typename ScaleElement::T;
    auto* x = static_cast<const X*>(job.x);
    auto *grad = static_cast<const Scale*>(job.grad), *scale = static_cast<const Scale*>(job.scale);
    auto* dx = static_cast<X*>(job.dx);
    int64_t i = 0;
    for (; i + W <= job.count; i += W)
        differentiate_vector<XElement, ScaleElement>(job, x + i, grad + i, scale + i, dx + i, job.sums + i);
    const int64_t count = job.count - i;
    if (count == 0) return;
    const Padded<X> x_rest(x + i, count);
    const Padded<Scale> grad_rest(grad + i, count), scale_rest(scale + i, count);
    Padded<X> dx_rest;
    Padded<double> sums(job.sums + i, count);
    differentiate_vector<XElement, ScaleElement>(job, x_rest.elements, grad_rest.elements, scale_rest.elements,
                                                 dx_rest.elements, sums.elements);
    dx_rest.copy_to(dx + i, count);
    sums.copy_to(job.sums + i, count);
}

}  // namespace

const RmsNormBackwardKernels& NPU_ROPE_OF_ISA(rms_norm_backward_kernels, NPU_ROPE_ISA)() {
    static const RmsNormBackwardKernels set = {
        {sum_block_squares<F32>, sum_block_squares<F16>, sum_block_squares<Bf16>},
        {{dot_gradient<F32, F32>, dot_gradient<F32, F16>, dot_gradient<F32, Bf16>},
         {dot_gradient<F16, F32>, dot_gradient<F16, F16>, dot_gradient<F16, Bf16>},
         {dot_gradient<Bf16, F32>, dot_gradient<Bf16, F16>, dot_gradient<Bf16, Bf16>}},
        {{differentiate<F32, F32>, differentiate<F32, F16>, differentiate<F32, Bf16>},
         {differentiate<F16, F32>, differentiate<F16, F16>, differentiate<F16, Bf16>},
         {differentiate<Bf16, F32>, differentiate<Bf16, F16>, differentiate<Bf16, Bf16>}},
    };
    return set;
}

}  // namespace npu_rope
