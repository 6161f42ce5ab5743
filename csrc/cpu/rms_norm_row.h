// Normalize one row, for the operators with a norm. The comment at the top of rms_norm.cpp gives the formula,
// defines Normalized, and derives its error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/cpu/rms_norm_kernels.h"

namespace npu_rope {

// Properties that all rows of a call share.
struct RowFormat {
    const RmsNormKernels& kernels;
    int64_t n;  // elements of a row
    int32_t x_dtype, scale_dtype, stash_dtype;
    double epsilon;                // rounded to the stash type
    int64_t x_bytes, scale_bytes;  // of an element
    bool rounds_last = false;      // y = Normalized * (scale + scale_offset) in float32, rounded to x's type
    float scale_offset = 0;
    int32_t y_dtype() const { return rounds_last ? x_dtype : scale_dtype; }
    int64_t y_bytes() const { return rounds_last ? x_bytes : scale_bytes; }
};

// Adds the sums of blocks pairwise, in order. If bit k of the number of blocks is set, parts_[k] is the sum of 2^k
// blocks.
class PairwiseSum {
public:
    void add(double block) {
        int k = 0;
        for (; count_ >> k & 1; ++k) block += parts_[k];
        parts_[k] = block;
        ++count_;
    }
    double total() const {
        double sum = 0;
        for (int k = 0; count_ >> k != 0; ++k)
            if (count_ >> k & 1) sum += parts_[k];
        return sum;
    }

private:
    uint64_t count_ = 0;
    double parts_[64];
};

// Calls f(first, count) for each block of a row.
template <int64_t kBlock = kSumBlock, typename F>
void for_each_block(int64_t n, F f) {
    for (int64_t at = 0; at < n; at += kBlock) f(at, std::min(kBlock, n - at));
}

// ---- a row in double, block by block, for every combination of types -------------------------------------

// Rounds doubles to a type, in place.
inline void round_to(const RmsNormKernels& kernels, int32_t dtype, double* values, int64_t count) {
    if (dtype == NPU_ROPE_FLOAT64) return;
    float narrow[kSumBlock];
    kernels.narrow[dtype](values, narrow, count);
    kernels.widen[dtype](narrow, values, count);
}

// Returns the format of a call's rows. Epsilon is rounded to the stash type, as x is.
inline RowFormat row_format(int64_t n, int32_t x_dtype, int32_t scale_dtype, int32_t stash_dtype, double epsilon) {
    const RmsNormKernels& kernels = active_rms_norm_kernels();
    round_to(kernels, stash_dtype, &epsilon, 1);
    return {kernels, n, x_dtype, scale_dtype, stash_dtype, epsilon, dtype_bytes(x_dtype), dtype_bytes(scale_dtype)};
}

// Returns the elements of a contiguous tensor of one dimension, rounded to Real.
template <typename Real>
std::vector<Real> widened(const npu_rope_tensor& t, const RmsNormKernels& kernels) {
    std::vector<double> doubles(static_cast<size_t>(t.shape[0]));
    kernels.widen[t.dtype](t.data, doubles.data(), t.shape[0]);
    return {doubles.begin(), doubles.end()};
}

// Normalized = x * power * inverse: `power` is a power of two, `inverse` the inverse root mean square of x * power.
struct RowFactors {
    double power = 1, inverse = 0;
};

// A row whose squares would leave float64's range is multiplied by a power of two, so that the exponent of its largest
// element becomes kPeakExponent. This element is then at least 2^16, so the root mean square is at least 2^16 /
// sqrt(n), which is at least 1 for n <= 2^32. A multiplied element is its result times the root mean square. Therefore
// the multiplied element is a normal number if its result is one.
constexpr int kPeakExponent = 16;

// The power of two by which such a row is multiplied. For the smallest exponent, -1074, the power would be infinite.
// The limit 2^1000 is sufficient.
inline double power_of_peak(double peak) { return std::ldexp(1.0, std::min(kPeakExponent - std::ilogb(peak), 1000)); }

// With epsilon 0, squares whose mean is smaller than this have lost relevant bits by underflow.
constexpr double kMinDoubleMeanSquare = 0x1p-900;

// Reads, normalizes and writes rows in double.
class DoubleRow {
public:
    explicit DoubleRow(const RowFormat& format) : format_(format), kernels_(format.kernels) {}

    // Reads `count` elements of the row x from element `at`. Writes them to `to`, rounded to the stash type and
    // multiplied by `power`, a power of two.
    void read(const char* x, double power, int64_t at, int64_t count, double* to) const {
        kernels_.widen[format_.x_dtype](x + at * format_.x_bytes, to, count);
        round_to(kernels_, format_.stash_dtype, to, count);
        if (power != 1) kernels_.scale_by(to, power, count);
    }

    // The sum of the squares of all elements that read() writes for the row.
    double sum_squares(const char* x, double power) const {
        PairwiseSum sum;
        double block[kSumBlock];
        for_each_block(format_.n, [&](int64_t at, int64_t count) {
            read(x, power, at, count, block);
            sum.add(kernels_.dot(block, block, count));
        });
        return sum.total();
    }

    // Returns the factors with which Normalized is computed from the row x, or from `rows` rows that are normalized
    // together.
    RowFactors factors_of(const char* x, int64_t rows = 1, int64_t row_bytes = 0) const {
        auto mean_square = [&](double power) {
            PairwiseSum sum;
            for (int64_t r = 0; r < rows; ++r) sum.add(sum_squares(x + r * row_bytes, power));
            return sum.total() / static_cast<double>(rows * format_.n);
        };
        const double epsilon = format_.epsilon, mean = mean_square(1);
        // Only float64 has elements whose squares overflow, or lose relevant bits by underflow.
        const bool overflows = std::isinf(mean), underflows = epsilon == 0 && mean < kMinDoubleMeanSquare;
        if (format_.stash_dtype == NPU_ROPE_FLOAT64 && (overflows || underflows)) {
            double peak = 0;
            for (int64_t r = 0; r < rows; ++r) peak = std::max(peak, peak_of(x + r * row_bytes));
            if (std::isfinite(peak) && peak > 0) {
                const double power = power_of_peak(peak);
                return {power, 1 / std::sqrt(mean_square(power) + epsilon * power * power)};
            }
        }
        return {1, 1 / std::sqrt(mean + epsilon)};
    }

    // Computes a block of Normalized in double. rounded: rounds it to the stash type.
    void normalize(const char* x, const RowFactors& factors, int64_t at, int64_t count, bool rounded,
                   double* to) const {
        read(x, factors.power, at, count, to);
        kernels_.scale_by(to, factors.inverse, count);
        if (rounded) round_to(kernels_, format_.stash_dtype, to, count);
    }

    void write(const char* x, const RowFactors& factors, const char* scale, char* y) const {
        double block[kSumBlock], scale_block[kSumBlock], product[kSumBlock];
        for_each_block(format_.n, [&](int64_t at, int64_t count) {
            normalize(x, factors, at, count, /*rounded=*/true, block);
            if (!format_.rounds_last) round_to(kernels_, format_.x_dtype, block, count);
            kernels_.widen[format_.scale_dtype](scale + at * format_.scale_bytes, scale_block, count);
            if (format_.rounds_last) {
                for (int64_t i = 0; i < count; ++i) scale_block[i] += double{format_.scale_offset};
                round_to(kernels_, NPU_ROPE_FLOAT32, scale_block, count);
            }
            kernels_.multiply(block, scale_block, product, count);
            if (format_.rounds_last) round_to(kernels_, NPU_ROPE_FLOAT32, product, count);
            kernels_.narrow[format_.y_dtype()](product, y + at * format_.y_bytes(), count);
        });
    }

    // Returns the largest magnitude of the row x.
    double peak_of(const char* x) const {
        double block[kSumBlock], peak = 0;
        for_each_block(format_.n, [&](int64_t at, int64_t count) {
            read(x, 1, at, count, block);
            for (int64_t i = 0; i < count; ++i) peak = std::max(peak, std::fabs(block[i]));
        });
        return peak;
    }

private:
    const RowFormat& format_;
    const RmsNormKernels& kernels_;
};

// ---- a row in float32 -------------------------------------------------------------------------------------

inline bool at_most_f32(int32_t dtype) { return dtype != NPU_ROPE_FLOAT64; }

// Whether no type is wider than float32, and the stash type is float32, so that Normalized needs no rounding to it.
inline bool computes_in_floats(const RowFormat& format) {
    return at_most_f32(format.x_dtype) && at_most_f32(format.scale_dtype) && format.stash_dtype == NPU_ROPE_FLOAT32;
}

// Returns the sum of a row's squares, from sums in float32. If these overflow or are too inaccurate, fits_floats() is
// false for the mean square plus epsilon.
inline double sum_squares_in_floats(const RowFormat& format, const char* x) {
    PairwiseSum sum;
    for_each_block<kSquaresBlock>(format.n, [&](int64_t at, int64_t count) {
        double block;
        format.kernels.sum_squares[format.x_dtype](x + at * format.x_bytes, count, /*rows=*/1, 0, &block);
        sum.add(block);
    });
    return sum.total();
}

// Computes the sum of squares of each of several rows in the same way.
inline void sum_squares_in_floats(const RowFormat& format, const char* x, int64_t rows, int64_t row_bytes,
                                  double* sums) {
    if (format.n <= kSquaresBlock)
        return format.kernels.sum_squares[format.x_dtype](x, format.n, rows, row_bytes, sums);
    for (int64_t r = 0; r < rows; ++r) sums[r] = sum_squares_in_floats(format, x + r * row_bytes);
}

inline double mean_square_plus_epsilon_in_floats(const RowFormat& format, const char* x) {
    return sum_squares_in_floats(format, x) / static_cast<double>(format.n) + format.epsilon;
}

// Whether a row with this mean(x^2) + epsilon can be normalized in float32.
inline bool fits_floats(double mean_square_plus_epsilon) {
    return mean_square_plus_epsilon >= kMinMeanSquare && mean_square_plus_epsilon <= kMaxMeanSquare;
}

// The scale of a row: its elements, and NULL or the same elements of float16 as floats.
struct Scale {
    const char* elements;
    const float* floats = nullptr;
};

// Normalizes rows. A caller with several rows computes all mean squares first, so that no sum waits for a square root.
class RowNormalizer {
public:
    explicit RowNormalizer(const RowFormat& format)
        : format_(format), double_row_(format), computes_in_floats_(computes_in_floats(format)) {}

    // Returns mean(x^2) + epsilon, or 0 if all rows of the call are computed in double.
    double mean_square_plus_epsilon(const char* x) const {
        return computes_in_floats_ ? mean_square_plus_epsilon_in_floats(format_, x) : 0;
    }

    // Addresses of later rows to prefetch (NormalizeJob::prefetch): in x, and in the residual of add_rms_norm. Without
    // a residual both are the same.
    struct Prefetch {
        const void *x, *residual;
    };

    void write(const char* x, double mean_square_plus_epsilon, const Scale& scale, char* y, StoreMode storing,
               const Prefetch& prefetch) const {
        if (!fits_floats(mean_square_plus_epsilon))
            return double_row_.write(x, double_row_.factors_of(x), scale.elements, y);
        write_by_inverse(x, static_cast<float>(1 / std::sqrt(mean_square_plus_epsilon)), scale, y, storing, prefetch);
    }

    // Does the same for a row that fits_floats(), from its inverse root mean square.
    void write_by_inverse(const char* x, float inverse, const Scale& scale, char* y, StoreMode storing,
                          const Prefetch& prefetch) const {
        const void* factors = scale.floats ? static_cast<const void*>(scale.floats) : scale.elements;
        kernel(scale.floats != nullptr)(
            {x, factors, y, format_.n, inverse, format_.scale_offset, storing, {prefetch.x, prefetch.residual}});
    }

private:
    using Kernel = void (*)(const NormalizeJob&);
    Kernel kernel(bool by_floats) const {
        const RmsNormKernels& kernels = format_.kernels;
        if (by_floats && !format_.rounds_last) return kernels.normalize_f16_by_floats;
        const auto& by_types = format_.rounds_last ? kernels.normalize_rounded_last : kernels.normalize;
        return by_types[format_.x_dtype][by_floats ? NPU_ROPE_FLOAT32 : format_.scale_dtype];
    }

    const RowFormat& format_;
    const DoubleRow double_row_;
    const bool computes_in_floats_;
};

}  // namespace npu_rope
