// The kernels of rms_norm_backward for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. The results of those in double
// equal, bit for bit, those of the functions of RmsNormKernels on blocks of doubles, except for the rounding of the
// mean of g N.
#include "csrc/cpu/rms_norm_backward_kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "csrc/cpu/doubles.h"

namespace npu_rope {
namespace {

// Sums the squares and the products of a row in dot's order. Each pass over the row adds into a part of the
// accumulators, which stays in registers.
inline void sum_row(const GradientRow& row, const double* scale, int64_t count, double* sum_of_squares,
                    double* sum_of_products) {
    constexpr int kStep = 2 * kLanes, kPart = 2 * W, kVectors = kPart / kDoublesPerVector;
    auto *x = static_cast<const float*>(row.x), *grad = static_cast<const float*>(row.grad);
    DoubleVec squares[kStep / kDoublesPerVector], products[kStep / kDoublesPerVector];
    const int64_t whole = count - count % kStep;
    for (int part = 0; part < kStep / kPart; ++part) {
        DoubleVec square[kVectors] = {}, product[kVectors] = {};
        for (int64_t first = part * kPart; first < whole; first += kStep) {
            for (int k = 0; k < kVectors; ++k) {
                const int64_t i = first + k * kDoublesPerVector;
                const DoubleVec v = to_doubles(load<HalfFloatVec>(x + i));
                square[k] += v * v;
                product[k] += to_doubles(load<HalfFloatVec>(grad + i)) * load<DoubleVec>(scale + i) * v;
            }
        }
        std::copy_n(square, kVectors, squares + part * kVectors);
        std::copy_n(product, kVectors, products + part * kVectors);
    }
    double rest_of_squares = 0, rest_of_products = 0;
    for (int64_t i = whole; i < count; ++i) {
        const double v = x[i];
        rest_of_squares += v * v;
        rest_of_products += double{grad[i]} * scale[i] * v;
    }
    *sum_of_squares = sum_vectors(squares) + rest_of_squares;
    *sum_of_products = sum_vectors(products) + rest_of_products;
}

void sum_rows(const GradientBlock& block, RowSums* sums) {
    for (int r = 0; r < block.rows; ++r)
        sum_row(block.row[r], static_cast<const double*>(block.scale), block.count, &sums->squares[r],
                &sums->products[r]);
}

// Sums the squares and the products of a row in float32, in the groups of sum_squares (rms_norm_kernels.cpp).
template <typename Element>
inline void sum_row_in_floats(const typename Element::T* x, const typename Element::T* grad, const float* scale,
                              int64_t count, double* sum_of_squares, double* sum_of_products) {
    GroupSums squares, products;
    int64_t i = 0;
    for (; i + 8 * kLanes <= count; i += 8 * kLanes) {
        for (int part = 0; part < kParts; ++part) {
            FloatVec square[4], product[4];
            for (int k = 0; k < 4; ++k) {
                const int64_t first = i + part * W + k * kLanes, second = first + 4 * kLanes;
                const FloatVec v = Element::load_vector(x + first), w = Element::load_vector(x + second);
                square[k] = v * v + w * w;
                product[k] = Element::load_vector(grad + first) * load<FloatVec>(scale + first) * v +
                             Element::load_vector(grad + second) * load<FloatVec>(scale + second) * w;
            }
            squares.add(part, square);
            products.add(part, product);
        }
    }
    for (; i + kLanes <= count; i += kLanes) {
        for (int part = 0; part < kParts; ++part) {
            const int64_t at = i + part * W;
            const FloatVec v = Element::load_vector(x + at);
            squares.add(part, v * v);
            products.add(part, Element::load_vector(grad + at) * load<FloatVec>(scale + at) * v);
        }
    }
    double rest_of_squares = 0, rest_of_products = 0;
    for (; i < count; ++i) {
        const double v = Element::to_float(x[i]);
        rest_of_squares += v * v;
        const float g = Element::to_float(grad[i]) * scale[i];  // as a float, so that an overflow reaches the sum
        rest_of_products += double{g} * v;
    }
    *sum_of_squares = squares.total() + rest_of_squares;
    *sum_of_products = products.total() + rest_of_products;
}

template <typename Element>
void sum_rows_in_floats(const GradientBlock& block, RowSums* sums) {
    using T = typename Element::T;
    for (int r = 0; r < block.rows; ++r)
        sum_row_in_floats<Element>(static_cast<const T*>(block.row[r].x), static_cast<const T*>(block.row[r].grad),
                                   static_cast<const float*>(block.scale), block.count, &sums->squares[r],
                                   &sums->products[r]);
}

void set_factors(const RowSums& sums, int64_t n, double epsilon, GradientRow* row, int rows) {
    const auto elements = static_cast<double>(n);
    for (int first = 0; first < rows; first += kDoublesPerVector) {
        const DoubleVec inverse = 1.0 / square_root(load<DoubleVec>(sums.squares + first) / elements + epsilon);
        const DoubleVec mean = load<DoubleVec>(sums.products + first) * inverse / elements;
        for (int k = 0; k < kDoublesPerVector && first + k < rows; ++k)
            row[first + k].inverse = inverse[k], row[first + k].mean = mean[k];
    }
}

// Rounds to float32, then to a type, and returns the result as doubles. A NaN of bfloat16 comes from an element of this
// type, so round_bf16() needs no with_bf16_nan().
template <typename Element>
inline void round_doubles(DoubleVec* low, DoubleVec* high) {
    if constexpr (std::is_same<Element, F32>::value) {
        *low = to_doubles(to_floats(*low)), *high = to_doubles(to_floats(*high));
        return;
    }
    const FloatVec v = join(*low, *high);
    if constexpr (std::is_same<Element, Bf16>::value) {
        split(as_float(round_bf16(v) & 0xffff0000u), low, high);
    } else {
        typename Element::T narrow[W];
        Element::template store_vector<false>(narrow, v);
        AsDoubles<Element>::load_doubles(narrow, low, high);
    }
}

// The rows that are differentiated at a time. The scale and the sums are then loaded once for all of them.
constexpr int kRowsAtATime = 4;

// Differentiates W columns of some rows, from column i, in double.
template <typename Element>
struct InDoubles {
    using Source = float;  // of x and grad
    using Dx = typename Element::T;
    using Scale = double;
    template <int kRows, bool kSums, bool kStream>
    static void differentiate(const GradientRow* rows, int64_t i, const Scale* scale, double* sums) {
        DoubleVec scales[2], sum[2];
        AsDoubles<F64>::load_doubles(scale + i, &scales[0], &scales[1]);
        if constexpr (kSums) AsDoubles<F64>::load_doubles(sums + i, &sum[0], &sum[1]);
        for (int r = 0; r < kRows; ++r) {
            const GradientRow& row = rows[r];
            DoubleVec n[2], grads[2], to[2];
            AsDoubles<F32>::load_doubles(static_cast<const Source*>(row.x) + i, &n[0], &n[1]);
            AsDoubles<F32>::load_doubles(static_cast<const Source*>(row.grad) + i, &grads[0], &grads[1]);
            for (int k = 0; k < 2; ++k) {
                n[k] *= row.inverse;
                to[k] = row.inverse * (grads[k] * scales[k] - n[k] * row.mean);
            }
            AsDoubles<Element>::template store_doubles<kStream>(static_cast<Dx*>(row.dx) + i, to[0], to[1]);
            if constexpr (kSums) {
                round_doubles<Element>(&n[0], &n[1]);
                for (int k = 0; k < 2; ++k) sum[k] += grads[k] * n[k];
            }
        }
        if constexpr (kSums) AsDoubles<F64>::store_doubles(sums + i, sum[0], sum[1]);
    }
};

// Differentiates 16-bit tensors in float32. The products of grad with the scale and with the rounded N are exact. The
// terms of dscale of the rows that are differentiated at a time are added in float32, with two roundings, and their sum
// in double.
template <typename Element>
struct InFloats {
    using Source = typename Element::T;
    using Dx = typename Element::T;
    using Scale = float;
    template <int kRows, bool kSums, bool kStream>
    static void differentiate(const GradientRow* rows, int64_t i, const Scale* scale, double* sums) {
        const FloatVec scales = load<FloatVec>(scale + i);
        FloatVec grads[kRows], n[kRows];  // n: rounded for dscale
        for (int r = 0; r < kRows; ++r) {
            const GradientRow& row = rows[r];
            const auto inverse = static_cast<float>(row.inverse), mean = static_cast<float>(row.mean);
            const FloatVec normalized = Element::load_vector(static_cast<const Source*>(row.x) + i) * inverse;
            grads[r] = Element::load_vector(static_cast<const Source*>(row.grad) + i);
            Element::template store_vector<kStream>(static_cast<Dx*>(row.dx) + i,
                                                    inverse * (grads[r] * scales - normalized * mean));
            if constexpr (kSums) n[r] = rounded<Element>(normalized);
        }
        if constexpr (kSums) add_terms<kRows>(grads, n, sums + i);
    }

private:
    template <int kRows>
    static void add_terms(const FloatVec (&grads)[kRows], const FloatVec (&n)[kRows], double* sums) {
        FloatVec terms = grads[0] * n[0];
        if constexpr (kRows == 4) terms = (terms + grads[1] * n[1]) + (grads[2] * n[2] + grads[3] * n[3]);
        static_assert(kRows == 1 || kRows == 4);
        if (__builtin_expect(!all_finite(terms), 0)) return add_terms_by_lanes<kRows>(terms, grads, n, sums);
        DoubleVec sum[2], low, high;
        AsDoubles<F64>::load_doubles(sums, &sum[0], &sum[1]);
        split(terms, &low, &high);
        AsDoubles<F64>::store_doubles(sums, sum[0] + low, sum[1] + high);
    }

    // Adds terms of which some are not finite as floats. Those are added in double.
    template <int kRows>
    static void add_terms_by_lanes(FloatVec terms, const FloatVec (&grads)[kRows], const FloatVec (&n)[kRows],
                                   double* sums) {
        for (int lane = 0; lane < W; ++lane) {
            if (std::isfinite(terms[lane])) {
                sums[lane] += double{terms[lane]};
            } else {
                for (int r = 0; r < kRows; ++r) sums[lane] += double{grads[r][lane]} * double{n[r][lane]};
            }
        }
    }
};

// Differentiates the last columns of some rows, fewer than W, in padded copies.
template <typename Arithmetic, int kRows, bool kSums>
void differentiate_rest(const GradientRow* rows, int64_t i, int64_t count, const typename Arithmetic::Scale* scale,
                        double* sums) {
    using Source = typename Arithmetic::Source;
    using Dx = typename Arithmetic::Dx;
    const Padded<typename Arithmetic::Scale> scales(scale + i, count);
    Padded<Source> x[kRows], grad[kRows];
    Padded<Dx> dx[kRows];
    Padded<double> sum;
    GradientRow padded[kRows];
    if constexpr (kSums) sum = Padded<double>(sums + i, count);
    for (int r = 0; r < kRows; ++r) {
        x[r] = Padded<Source>(static_cast<const Source*>(rows[r].x) + i, count);
        grad[r] = Padded<Source>(static_cast<const Source*>(rows[r].grad) + i, count);
        padded[r] = {x[r].elements, grad[r].elements, dx[r].elements, rows[r].inverse,
                     rows[r].mean,  nullptr,          nullptr,        nullptr};
    }
    Arithmetic::template differentiate<kRows, kSums, false>(padded, 0, scales.elements, sum.elements);
    for (int r = 0; r < kRows; ++r) dx[r].copy_to(static_cast<Dx*>(rows[r].dx) + i, count);
    if constexpr (kSums) sum.copy_to(sums + i, count);
}

template <typename Arithmetic, int kRows, bool kSums, StoreMode kStoring>
void differentiate_rows(const GradientBlock& block, int first) {
    constexpr int64_t kBytes = sizeof(typename Arithmetic::Dx);
    auto* const scale = static_cast<const typename Arithmetic::Scale*>(block.scale);
    double* const sums = block.sums;
    const int64_t count = block.count, grad_bytes = block.grad_bytes;
    GradientRow rows[kRows];  // a local copy, which no store changes
    std::copy_n(block.row + first, kRows, rows);
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        for (int r = 0; r < kRows && kStoring != StoreMode::kPlain; ++r) {
            __builtin_prefetch(rows[r].x_ahead + i * kBytes);
            __builtin_prefetch(rows[r].grad_ahead + i * grad_bytes);
            if (kStoring == StoreMode::kPrefetched) __builtin_prefetch(rows[r].dx_ahead + i * kBytes, 1);
        }
        Arithmetic::template differentiate<kRows, kSums, kStoring == StoreMode::kStreamed>(rows, i, scale, sums);
    }
    if (i < count) differentiate_rest<Arithmetic, kRows, kSums>(rows, i, count - i, scale, sums);
}

template <typename Arithmetic, StoreMode kStoring, bool kSums>
void differentiate(const GradientBlock& block) {
    int r = 0;
    for (; r + kRowsAtATime <= block.rows; r += kRowsAtATime)
        differentiate_rows<Arithmetic, kRowsAtATime, kSums, kStoring>(block, r);
    for (; r < block.rows; ++r) differentiate_rows<Arithmetic, 1, kSums, kStoring>(block, r);
}

template <typename Arithmetic>
constexpr DifferentiateFn kDifferentiate[3][2] = {
    {differentiate<Arithmetic, StoreMode::kPlain, false>, differentiate<Arithmetic, StoreMode::kPlain, true>},
    {differentiate<Arithmetic, StoreMode::kPrefetched, false>, differentiate<Arithmetic, StoreMode::kPrefetched, true>},
    {differentiate<Arithmetic, StoreMode::kStreamed, false>, differentiate<Arithmetic, StoreMode::kStreamed, true>},
};

template <typename Element>
void widen(const void* from, float* to, int64_t count) {
    auto* p = static_cast<const typename Element::T*>(from);
    int64_t i = 0;
    for (; i + W <= count; i += W) store(to + i, Element::load_vector(p + i));
    for (; i < count; ++i) to[i] = Element::to_float(p[i]);
}

}  // namespace

const RmsNormBackwardKernels& NPU_ROPE_OF_ISA(rms_norm_backward_kernels, NPU_ROPE_ISA)() {
    static const RmsNormBackwardKernels set = {
        sum_rows,
        set_factors,
        {kDifferentiate<InDoubles<F32>>, kDifferentiate<InDoubles<F16>>, kDifferentiate<InDoubles<Bf16>>},
        {nullptr, kDifferentiate<InFloats<F16>>, kDifferentiate<InFloats<Bf16>>},
        {nullptr, sum_rows_in_floats<F16>, sum_rows_in_floats<Bf16>},
        {nullptr, widen<F16>, widen<Bf16>},
    };
    return set;
}

}  // namespace npu_rope
