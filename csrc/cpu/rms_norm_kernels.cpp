// The kernels of rms_norm for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. Sums have the same bits for every W: they
// add in the order of vectors of kLanes floats, and round each product, except for products that are exact.
#include "csrc/cpu/rms_norm_kernels.h"

#include <cstring>
#include <type_traits>

#include "csrc/cpu/doubles.h"
#include "csrc/cpu/elements.h"

namespace npu_rope {
namespace {

// ---- floats as doubles and back ----------------------------------------------------------------------

template <typename Element>
void widen(const void* from, double* to, int64_t count) {
    using T = typename AsDoubles<Element>::T;
    auto* p = static_cast<const T*>(from);
    DoubleVec low, high;
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        AsDoubles<Element>::load_doubles(p + i, &low, &high);
        store(to + i, low), store(to + i + kDoublesPerVector, high);
    }
    if (i == count) return;
    const Padded<T> rest(p + i, count - i);
    Padded<double> wide;
    AsDoubles<Element>::load_doubles(rest.elements, &low, &high);
    store(wide.elements, low), store(wide.elements + kDoublesPerVector, high);
    wide.copy_to(to + i, count - i);
}

template <typename Element>
void narrow(const double* from, void* to, int64_t count) {
    using T = typename AsDoubles<Element>::T;
    auto* p = static_cast<T*>(to);
    int64_t i = 0;
    for (; i + W <= count; i += W)
        AsDoubles<Element>::store_doubles(p + i, load<DoubleVec>(from + i),
                                          load<DoubleVec>(from + i + kDoublesPerVector));
    if (i == count) return;
    const Padded<double> rest(from + i, count - i);
    Padded<T> padded;
    AsDoubles<Element>::store_doubles(padded.elements, load<DoubleVec>(rest.elements),
                                      load<DoubleVec>(rest.elements + kDoublesPerVector));
    padded.copy_to(p + i, count - i);
}

// ---- the residual --------------------------------------------------------------------------------------

template <typename Element, bool kStream>
void add_row(const AddJob& job) {
    using T = typename Element::T;
    auto *a = static_cast<const T*>(job.a), *b = static_cast<const T*>(job.b);
    auto *sum = static_cast<T*>(job.sum), *streamed = static_cast<T*>(job.streamed);
    int64_t i = 0;
    for (; i + W <= job.count; i += W) {
        const FloatVec v = Element::load_vector(a + i) + Element::load_vector(b + i);
        Element::template store_vector<false>(sum + i, v);
        if (kStream) Element::template store_vector<true>(streamed + i, v);
    }
    if (i == job.count) return;
    Padded<T> rest(a + i, job.count - i);
    const Padded<T> other(b + i, job.count - i);
    Element::template store_vector<false>(rest.elements,
                                          Element::load_vector(rest.elements) + Element::load_vector(other.elements));
    rest.copy_to(sum + i, job.count - i);
    if (kStream) rest.copy_to(streamed + i, job.count - i);
}

// bfloat16: each 32-bit word of a vector holds two elements.
inline Uint32Vec add_bf16(const uint16_t* a, const uint16_t* b) {
    const Uint32Vec a_words = load<Uint32Vec>(a), b_words = load<Uint32Vec>(b);
    return pack_bf16(as_float(a_words << 16) + as_float(b_words << 16),
                     as_float(a_words & 0xffff0000u) + as_float(b_words & 0xffff0000u));
}
template <bool kStream>
void add_row_bf16(const AddJob& job) {
    auto *a = static_cast<const uint16_t*>(job.a), *b = static_cast<const uint16_t*>(job.b);
    auto *sum = static_cast<uint16_t*>(job.sum), *streamed = static_cast<uint16_t*>(job.streamed);
    int64_t i = 0;
    for (; i + 2 * W <= job.count; i += 2 * W) {
        const Uint32Vec v = add_bf16(a + i, b + i);
        store(sum + i, v);
        if (kStream) put<true>(streamed + i, v);
    }
    if (i == job.count) return;
    uint16_t rest[2 * W] = {}, other[2 * W] = {};
    const size_t bytes = static_cast<size_t>(job.count - i) * sizeof *rest;
    std::memcpy(rest, a + i, bytes);
    std::memcpy(other, b + i, bytes);
    store(rest, add_bf16(rest, other));
    std::memcpy(sum + i, rest, bytes);
    if (kStream) std::memcpy(streamed + i, rest, bytes);
}

template <typename Element>
void add(const AddJob& job) {
    if constexpr (std::is_same<Element, Bf16>::value)
        job.streamed ? add_row_bf16<true>(job) : add_row_bf16<false>(job);
    else if constexpr (std::is_same<Element, F16>::value)
        job.streamed ? add_row<Element, true>(job) : add_row<Element, false>(job);
    else
        add_row<Element, false>(job);
}

void add_doubles(const AddJob& job) {
    auto *a = static_cast<const double*>(job.a), *b = static_cast<const double*>(job.b);
    auto* sum = static_cast<double*>(job.sum);
    for (int64_t i = 0; i < job.count; ++i) sum[i] = a[i] + b[i];
}

// ---- sums --------------------------------------------------------------------------------------------

// Returns a^2 + b^2 with one rounding for each square and one for the sum. A float16 square is exact.
template <typename Element>
inline FloatVec add_squares(FloatVec a, FloatVec b) {
    if constexpr (std::is_same<Element, F16>::value) return mul_add(a, a, b * b);
    return a * a + b * b;
}

template <typename Element>
int64_t sum_groups(const typename Element::T* p, int64_t count, GroupSums* sums) {
    int64_t i = 0;
    for (; i + 8 * kLanes <= count; i += 8 * kLanes) {
        for (int part = 0; part < kParts; ++part) {
            auto* from = p + i + part * W;
            FloatVec accumulators[4];
            for (int k = 0; k < 4; ++k) {
                FloatVec first = Element::load_vector(from + k * kLanes);
                FloatVec second = Element::load_vector(from + (k + 4) * kLanes);
                accumulators[k] = add_squares<Element>(first, second);
            }
            sums->add(part, accumulators);
        }
    }
    return i;
}

// Adds a group of kVectors vectors of kLanes words. Each 32-bit word holds two elements, whose squares are exact.
template <int kVectors>
inline void add_bf16_group(const uint16_t* p, GroupSums* sums) {
    for (int part = 0; part < kParts; ++part) {
        FloatVec accumulators[4] = {};
        for (int k = 0; k < kVectors; ++k) {
            Uint32Vec words = load<Uint32Vec>(p + 2 * (k * kLanes + part * W));
#if NPU_ROPE_VECTOR_FLOATS == 16 && defined(__AVX512BF16__)
            // The instruction treats subnormals as zero. Their squares are negligible, because callers use the sum only
            // if the mean square is at least kMinMeanSquare.
            accumulators[k % 4] =
                (FloatVec)_mm512_dpbf16_ps((__m512)accumulators[k % 4], (__m512bh)words, (__m512bh)words);
#else
            FloatVec even = as_float(words << 16), odd = as_float(words & 0xffff0000u);
            accumulators[k % 4] = mul_add(odd, odd, mul_add(even, even, accumulators[k % 4]));
#endif
        }
        sums->add(part, accumulators);
    }
}

template <>
int64_t sum_groups<Bf16>(const uint16_t* p, int64_t count, GroupSums* sums) {
    int64_t i = 0;
    for (; i + 16 * kLanes <= count; i += 16 * kLanes) add_bf16_group<8>(p + i, sums);
    for (; i + 8 * kLanes <= count; i += 8 * kLanes) add_bf16_group<4>(p + i, sums);  // for example, a head of 128
    return i;
}

template <typename Element>
inline double sum_row(const typename Element::T* p, int64_t count) {
    GroupSums sums;
    int64_t i = sum_groups<Element>(p, count, &sums);
    if (i == count) return sums.total();
    for (; i + kLanes <= count; i += kLanes) {
        for (int part = 0; part < kParts; ++part) {
            FloatVec v = Element::load_vector(p + i + part * W);
            sums.add(part, v * v);
        }
    }
    double tail = 0;
    for (; i < count; ++i) tail += double{Element::to_float(p[i])} * double{Element::to_float(p[i])};
    return sums.total() + tail;
}

template <typename Element>
void sum_squares(const void* x, int64_t count, int64_t rows, int64_t row_bytes, double* sums) {
    auto* row = static_cast<const char*>(x);
    for (int64_t r = 0; r < rows; ++r, row += row_bytes)
        sums[r] = sum_row<Element>(reinterpret_cast<const typename Element::T*>(row), count);
}

double dot(const double* a, const double* b, int64_t count) {
    constexpr int kStep = 2 * kLanes, kVectors = kStep / kDoublesPerVector;
    DoubleVec sums[kVectors] = {};
    int64_t i = 0;
    for (; i + kStep <= count; i += kStep)
        for (int k = 0; k < kVectors; ++k)
            sums[k] += load<DoubleVec>(a + i + k * kDoublesPerVector) * load<DoubleVec>(b + i + k * kDoublesPerVector);
    double tail = 0;
    for (; i < count; ++i) tail += a[i] * b[i];
    return sum_vectors(sums) + tail;
}

// ---- a row in float32 ----------------------------------------------------------------------------------
//
// round_bf16() needs NaNs with a zero lower half. The elements of the row are finite, so a NaN comes from the scale or
// is the machine's default NaN, which has one. So has a NaN of a bfloat16 scale.

// The product of rms_norm: Normalized rounded to x's type, times scale. y has scale's type, or another that the scale
// was widened from.
template <typename XElement, typename ScaleElement, typename YElement = ScaleElement>
struct RoundedFirst {
    using X = XElement;
    using Scale = ScaleElement;
    using Y = YElement;
    explicit RoundedFirst(const NormalizeJob&) {}
    FloatVec product(FloatVec normalized, FloatVec scale) const { return rounded<X>(normalized) * scale; }
};

// The product of rms_norm_rounded_last: Normalized times the sum of scale and its offset. y has x's type.
template <typename XElement, typename ScaleElement>
struct RoundedLast {
    using X = XElement;
    using Scale = ScaleElement;
    using Y = XElement;
    explicit RoundedLast(const NormalizeJob& job) : scale_offset(FloatVec{} + job.scale_offset) {}
    FloatVec product(FloatVec normalized, FloatVec scale) const {
        const FloatVec v = normalized * (scale + scale_offset);
        return std::is_same<Y, Bf16>::value && !std::is_same<Scale, Bf16>::value ? with_bf16_nan(v) : v;
    }
    FloatVec scale_offset;
};

template <typename Product>
inline void normalize_tail(const NormalizeJob& job, const Product& product, int64_t first) {
    using X = typename Product::X;
    using Scale = typename Product::Scale;
    using Y = typename Product::Y;
    const int64_t count = job.count - first;
    if (count == 0) return;
    const Padded<typename X::T> x(static_cast<const typename X::T*>(job.x) + first, count);
    const Padded<typename Scale::T> scale(static_cast<const typename Scale::T*>(job.scale) + first, count);
    Padded<typename Y::T> y;
    Y::template store_vector<false>(
        y.elements, product.product(X::load_vector(x.elements) * job.inverse, Scale::load_vector(scale.elements)));
    y.copy_to(static_cast<typename Y::T*>(job.y) + first, count);
}

// Prefetches cache lines while elements are normalized: the ranges NormalizeJob::prefetch, and with kPrefetched also
// the lines of y that are written next, kAheadBytes after the current elements.
template <StoreMode storing>
class Prefetcher {
public:
    explicit Prefetcher(const NormalizeJob& job)
        : next_x_(static_cast<const char*>(job.prefetch[0])),
          next_residual_(static_cast<const char*>(job.prefetch[1])) {}
    template <typename X, typename Y>
    void at(int64_t i, const X*, const Y* y) const {
        __builtin_prefetch(next_x_ + i * sizeof(X));
        if (next_residual_ != next_x_) __builtin_prefetch(next_residual_ + i * sizeof(X));
        if (storing == StoreMode::kPrefetched)
            __builtin_prefetch(reinterpret_cast<const char*>(y + i) + kAheadBytes, 1);
    }

private:
    static constexpr int64_t kAheadBytes = 4096;
    const char *next_x_, *next_residual_;
};

#if defined(__AVX512FP16__)
// Normalizes W elements as RoundedFirst<F16, F16> does, with the same bits: the float32 product of two float16 numbers
// is exact, so it is rounded once there too.
template <bool kStream>
inline void normalize_f16(const uint16_t* x, FloatVec inverse, const uint16_t* scale, uint16_t* y) {
    const __m256i normalized = _mm512_cvtps_ph((__m512)(load_f16(x) * inverse), _MM_FROUND_TO_NEAREST_INT);
    const __m256i factors = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scale));
    put<kStream>(y, (__m256i)_mm256_mul_ph((__m256h)normalized, (__m256h)factors));
}
#endif

template <typename Product, StoreMode storing>
void normalize_row(const NormalizeJob& job) {
    using X = typename Product::X;
    using Scale = typename Product::Scale;
    using Y = typename Product::Y;
    auto* x = static_cast<const typename X::T*>(job.x);
    auto* scale = static_cast<const typename Scale::T*>(job.scale);
    auto* y = static_cast<typename Y::T*>(job.y);
    const Prefetcher<storing> prefetcher(job);
    const Product product(job);
    const int64_t count = job.count;
    const FloatVec inverse = FloatVec{} + job.inverse;
    auto normalize_vector = [&](int64_t at) {
        constexpr bool kStream = storing == StoreMode::kStreamed;
#if defined(__AVX512FP16__)
        if constexpr (std::is_same<Product, RoundedFirst<F16, F16>>::value)
            return normalize_f16<kStream>(x + at, inverse, scale + at, y + at);
#endif
        Y::template store_vector<kStream>(
            y + at, product.product(X::load_vector(x + at) * inverse, Scale::load_vector(scale + at)));
    };
    constexpr int64_t kLine = kCacheLineBytes / int64_t{sizeof *x};
    int64_t i = 0;
    for (; i + kLine <= count; i += kLine) {
        prefetcher.at(i, x, y);
#pragma GCC unroll 8
        for (int64_t v = 0; v < kLine; v += W) normalize_vector(i + v);
    }
    for (; i + W <= count; i += W) normalize_vector(i);
    normalize_tail(job, product, i);
}

// x and scale in bfloat16: each 32-bit word of a vector holds two elements, and no data move between words.
template <typename Product, StoreMode storing>
void normalize_row_bf16(const NormalizeJob& job) {
    auto* x = static_cast<const uint16_t*>(job.x);
    auto* scale = static_cast<const uint16_t*>(job.scale);
    auto* y = static_cast<uint16_t*>(job.y);
    const Prefetcher<storing> prefetcher(job);
    const Product product(job);
    const int64_t count = job.count;
    const FloatVec inverse = FloatVec{} + job.inverse;
    auto normalize_words = [&](int64_t at) {
        Uint32Vec x_words = load<Uint32Vec>(x + at), scale_words = load<Uint32Vec>(scale + at);
        FloatVec even = product.product(as_float(x_words << 16) * inverse, as_float(scale_words << 16));
        FloatVec odd = product.product(as_float(x_words & 0xffff0000u) * inverse, as_float(scale_words & 0xffff0000u));
        put<storing == StoreMode::kStreamed>(y + at, pack_bf16(even, odd));
    };
    constexpr int64_t kLine = kCacheLineBytes / int64_t{sizeof *x};
    int64_t i = 0;
    for (; i + kLine <= count; i += kLine) {
        prefetcher.at(i, x, y);
#pragma GCC unroll 8
        for (int64_t v = 0; v < kLine; v += 2 * W) normalize_words(i + v);
    }
    for (; i + 2 * W <= count; i += 2 * W) normalize_words(i);
    if (job.count - i >= W) {
        store_bf16<false>(y + i, product.product(load_bf16(x + i) * job.inverse, load_bf16(scale + i)));
        i += W;
    }
    normalize_tail(job, product, i);
}

template <typename Product, StoreMode storing>
inline void normalize_by_types(const NormalizeJob& job) {
    if constexpr (std::is_same<typename Product::X, Bf16>::value && std::is_same<typename Product::Scale, Bf16>::value)
        normalize_row_bf16<Product, storing>(job);
    else
        normalize_row<Product, storing>(job);
}

template <typename Product>
void normalize(const NormalizeJob& job) {
    if (job.storing == StoreMode::kStreamed) return normalize_by_types<Product, StoreMode::kStreamed>(job);
    if (job.storing == StoreMode::kPrefetched) return normalize_by_types<Product, StoreMode::kPrefetched>(job);
    normalize_by_types<Product, StoreMode::kPlain>(job);
}

// ---- a block of a row in float64 -----------------------------------------------------------------------

void scale_by(double* a, double factor, int64_t count) {
    for (int64_t i = 0; i < count; ++i) a[i] *= factor;
}
void multiply(const double* __restrict a, const double* __restrict b, double* __restrict product, int64_t count) {
    for (int64_t i = 0; i < count; ++i) product[i] = a[i] * b[i];
}
void add_product(const double* __restrict a, const double* __restrict b, double* __restrict sum, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum[i] += a[i] * b[i];
}
void scale_difference(const double* __restrict a, const double* __restrict b, double mean, double factor,
                      double* __restrict to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = factor * (a[i] - b[i] * mean);
}

}  // namespace

#define NPU_ROPE_BY_TYPES(Product)                                                                      \
    {                                                                                                   \
        {normalize<Product<F32, F32>>, normalize<Product<F32, F16>>, normalize<Product<F32, Bf16>>},    \
        {normalize<Product<F16, F32>>, normalize<Product<F16, F16>>, normalize<Product<F16, Bf16>>},    \
        {normalize<Product<Bf16, F32>>, normalize<Product<Bf16, F16>>, normalize<Product<Bf16, Bf16>>}, \
    }

const RmsNormKernels& NPU_ROPE_OF_ISA(rms_norm_kernels, NPU_ROPE_ISA)() {
    static const RmsNormKernels set = {
        {sum_squares<F32>, sum_squares<F16>, sum_squares<Bf16>},
        NPU_ROPE_BY_TYPES(RoundedFirst),
        NPU_ROPE_BY_TYPES(RoundedLast),
#if defined(__AVX512FP16__)
        nullptr,
#else
        normalize<RoundedFirst<F16, F32, F16>>,
#endif
        {add<F32>, add<F16>, add<Bf16>, add_doubles},
        {widen<F32>, widen<F16>, widen<Bf16>, widen<F64>},
        {narrow<F32>, narrow<F16>, narrow<Bf16>, narrow<F64>},
        dot,
        scale_by,
        multiply,
        add_product,
        scale_difference,
    };
    return set;
}

}  // namespace npu_rope
