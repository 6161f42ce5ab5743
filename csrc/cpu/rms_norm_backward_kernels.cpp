// The kernels of rms_norm_backward for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. The results equal, bit for bit,
// those of the functions of RmsNormKernels on blocks of doubles, except for the rounding of the mean of g N.
#include "csrc/cpu/rms_norm_backward_kernels.h"

#include <algorithm>
#include <type_traits>

#include "csrc/cpu/doubles.h"

namespace npu_rope {
namespace {

// Sums the squares and the products of a row in dot's order. Each pass over the row adds into a part of the
// accumulators, which stays in registers.
inline void sum_row(const GradientRow& row, const double* scale, int64_t count, double* sum_of_squares,
                    double* sum_of_products) {
    constexpr int kStep = 2 * kLanes, kPart = 2 * W, kVectors = kPart / kDoublesPerVector;
    const float *x = row.x, *grad = row.grad;
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
        sum_row(block.row[r], block.scale, block.count, &sums->squares[r], &sums->products[r]);
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

// Differentiates W columns of some rows, from column i.
template <typename Element, int kRows, bool kSums, bool kStream>
inline void differentiate_vector(const GradientRow* rows, int64_t i, const double* scale, double* sums) {
    DoubleVec scales[2], sum[2];
    AsDoubles<F64>::load_doubles(scale + i, &scales[0], &scales[1]);
    if constexpr (kSums) AsDoubles<F64>::load_doubles(sums + i, &sum[0], &sum[1]);
    for (int r = 0; r < kRows; ++r) {
        const GradientRow& row = rows[r];
        DoubleVec n[2], grads[2], to[2];
        AsDoubles<F32>::load_doubles(row.x + i, &n[0], &n[1]);
        AsDoubles<F32>::load_doubles(row.grad + i, &grads[0], &grads[1]);
        for (int k = 0; k < 2; ++k) {
            n[k] *= row.inverse;
            to[k] = row.inverse * (grads[k] * scales[k] - n[k] * row.mean);
        }
        AsDoubles<Element>::template store_doubles<kStream>(static_cast<typename Element::T*>(row.dx) + i, to[0],
                                                            to[1]);
        if constexpr (kSums) {
            round_doubles<Element>(&n[0], &n[1]);
            for (int k = 0; k < 2; ++k) sum[k] += grads[k] * n[k];
        }
    }
    if constexpr (kSums) AsDoubles<F64>::store_doubles(sums + i, sum[0], sum[1]);
}

// Differentiates the last columns of a row, fewer than W, in padded copies.
template <typename Element, bool kSums>
void differentiate_rest(const GradientRow& row, int64_t i, int64_t count, const double* scale, double* sums) {
    using T = typename Element::T;
    const Padded<float> x(row.x + i, count), grad(row.grad + i, count);
    const Padded<double> scales(scale + i, count);
    Padded<T> dx;
    Padded<double> sum;
    if constexpr (kSums) sum = Padded<double>(sums + i, count);
    const GradientRow padded{x.elements, grad.elements, dx.elements, row.inverse, row.mean, nullptr, nullptr, nullptr};
    differentiate_vector<Element, 1, kSums, false>(&padded, 0, scales.elements, sum.elements);
    dx.copy_to(static_cast<T*>(row.dx) + i, count);
    if constexpr (kSums) sum.copy_to(sums + i, count);
}

// The rows that are differentiated at a time. The scale and the sums are then loaded once for all of them.
constexpr int kRowsAtATime = 4;

template <typename Element, int kRows, bool kSums, StoreMode kStoring>
void differentiate_rows(const GradientBlock& block, int first) {
    constexpr int64_t kBytes = sizeof(typename Element::T);
    const double* const scale = block.scale;
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
        differentiate_vector<Element, kRows, kSums, kStoring == StoreMode::kStreamed>(rows, i, scale, sums);
    }
    if (i == count) return;
    for (const GradientRow& row : rows) differentiate_rest<Element, kSums>(row, i, count - i, scale, sums);
}

template <typename Element, StoreMode kStoring, bool kSums>
void differentiate(const GradientBlock& block) {
    int r = 0;
    for (; r + kRowsAtATime <= block.rows; r += kRowsAtATime)
        differentiate_rows<Element, kRowsAtATime, kSums, kStoring>(block, r);
    for (; r < block.rows; ++r) differentiate_rows<Element, 1, kSums, kStoring>(block, r);
}

template <typename Element>
constexpr DifferentiateFn kDifferentiate[3][2] = {
    {differentiate<Element, StoreMode::kPlain, false>, differentiate<Element, StoreMode::kPlain, true>},
    {differentiate<Element, StoreMode::kPrefetched, false>, differentiate<Element, StoreMode::kPrefetched, true>},
    {differentiate<Element, StoreMode::kStreamed, false>, differentiate<Element, StoreMode::kStreamed, true>},
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
        {kDifferentiate<F32>, kDifferentiate<F16>, kDifferentiate<Bf16>},
        {nullptr, widen<F16>, widen<Bf16>},
    };
    return set;
}

}  // namespace npu_rope
