// The CPU kernels for vectors of W = NPU_ROPE_LANES floats (VF), doubles (VD), uint32 (VU) and int64 (VL); see vec.h.
// Sums of products use fused instructions if the instruction set has them (each one rounds once less); the error bounds
// in rms_norm_kernels.h hold in both cases.
#include "csrc/cpu/rms_norm_kernels.h"

#include <cstring>
#include <type_traits>

#include "csrc/cpu/elements.h"

namespace npu_rope {
namespace {

constexpr int kDoublesPerVector = W / 2;

// ---- floats as doubles and back ----------------------------------------------------------------------

// W floats as two vectors of doubles.
inline void split(VF v, VD* low, VD* high) {
    VFhalf halves[2];
    std::memcpy(halves, &v, sizeof v);
    *low = __builtin_convertvector(halves[0], VD);
    *high = __builtin_convertvector(halves[1], VD);
}
inline VF join(VD low, VD high) {
    VFhalf halves[2] = {__builtin_convertvector(low, VFhalf), __builtin_convertvector(high, VFhalf)};
    VF v;
    std::memcpy(&v, halves, sizeof v);
    return v;
}

// Rounds to 16 significant bits and sets the last one if bits were lost ("to odd"). In the range of
// bfloat16, down to half of its smallest subnormal, float32 holds the result exactly; smaller values become zero and
// larger ones infinite, either way. A further rounding to 11 or 8 bits equals a single rounding
// (Boldo & Melquiond 2008: two more bits are enough).
inline VD to_odd(VD v) {
    constexpr int64_t kLast = int64_t{1} << 37, kLost = kLast - 1;
    VL bits = (VL)v, lost = (bits & kLost) != 0;
    return (VD)((bits & ~kLost) | (lost & kLast));
}

// Converts W elements of a type to two vectors of doubles, and back.
template <typename E>
struct AsDoubles {
    using T = typename E::T;
    static void load_d(const T* p, VD* low, VD* high) { split(E::load_v(p), low, high); }
    static void store_d(T* p, VD low, VD high) {
        E::template store_v<false>(p, tidy_nan(join(to_odd(low), to_odd(high))));
    }
};
template <>
struct AsDoubles<F32> {
    using T = float;
    static void load_d(const T* p, VD* low, VD* high) {
        *low = __builtin_convertvector(load<VFhalf>(p), VD);
        *high = __builtin_convertvector(load<VFhalf>(p + kDoublesPerVector), VD);
    }
    static void store_d(T* p, VD low, VD high) {
        store(p, __builtin_convertvector(low, VFhalf));
        store(p + kDoublesPerVector, __builtin_convertvector(high, VFhalf));
    }
};
struct F64 {};
template <>
struct AsDoubles<F64> {
    using T = double;
    static void load_d(const T* p, VD* low, VD* high) { *low = load<VD>(p), *high = load<VD>(p + kDoublesPerVector); }
    static void store_d(T* p, VD low, VD high) { store(p, low), store(p + kDoublesPerVector, high); }
};

template <typename E>
void widen(const void* from, double* to, int64_t count) {
    using T = typename AsDoubles<E>::T;
    auto* p = static_cast<const T*>(from);
    VD low, high;
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        AsDoubles<E>::load_d(p + i, &low, &high);
        store(to + i, low), store(to + i + kDoublesPerVector, high);
    }
    if (i == count) return;
    const Padded<T> rest(p + i, count - i);
    Padded<double> wide;
    AsDoubles<E>::load_d(rest.elements, &low, &high);
    store(wide.elements, low), store(wide.elements + kDoublesPerVector, high);
    wide.copy_to(to + i, count - i);
}

template <typename E>
void narrow(const double* from, void* to, int64_t count) {
    using T = typename AsDoubles<E>::T;
    auto* p = static_cast<T*>(to);
    int64_t i = 0;
    for (; i + W <= count; i += W)
        AsDoubles<E>::store_d(p + i, load<VD>(from + i), load<VD>(from + i + kDoublesPerVector));
    if (i == count) return;
    const Padded<double> rest(from + i, count - i);
    Padded<T> padded;
    AsDoubles<E>::store_d(padded.elements, load<VD>(rest.elements), load<VD>(rest.elements + kDoublesPerVector));
    padded.copy_to(p + i, count - i);
}

// ---- the residual --------------------------------------------------------------------------------------

template <typename E, bool kStream>
void add_row(const AddJob& j) {
    using T = typename E::T;
    auto *a = static_cast<const T*>(j.a), *b = static_cast<const T*>(j.b);
    auto *sum = static_cast<T*>(j.sum), *streamed = static_cast<T*>(j.streamed);
    int64_t i = 0;
    for (; i + W <= j.count; i += W) {
        const VF v = E::load_v(a + i) + E::load_v(b + i);
        E::template store_v<false>(sum + i, v);
        if (kStream) E::template store_v<true>(streamed + i, v);
    }
    if (i == j.count) return;
    Padded<T> rest(a + i, j.count - i);
    const Padded<T> other(b + i, j.count - i);
    E::template store_v<false>(rest.elements, E::load_v(rest.elements) + E::load_v(other.elements));
    rest.copy_to(sum + i, j.count - i);
    if (kStream) rest.copy_to(streamed + i, j.count - i);
}

// bfloat16: two elements in each 32-bit word of the vector.
inline VU add_bf16(const uint16_t* a, const uint16_t* b) {
    const VU u = load<VU>(a), v = load<VU>(b);
    return pack_bf16(as_float(u << 16) + as_float(v << 16), as_float(u & 0xffff0000u) + as_float(v & 0xffff0000u));
}
template <bool kStream>
void add_row_bf16(const AddJob& j) {
    auto *a = static_cast<const uint16_t*>(j.a), *b = static_cast<const uint16_t*>(j.b);
    auto *sum = static_cast<uint16_t*>(j.sum), *streamed = static_cast<uint16_t*>(j.streamed);
    int64_t i = 0;
    for (; i + 2 * W <= j.count; i += 2 * W) {
        const VU v = add_bf16(a + i, b + i);
        store(sum + i, v);
        if (kStream) put<true>(streamed + i, v);
    }
    if (i == j.count) return;
    uint16_t rest[2 * W] = {}, other[2 * W] = {};
    const size_t bytes = static_cast<size_t>(j.count - i) * sizeof *rest;
    std::memcpy(rest, a + i, bytes);
    std::memcpy(other, b + i, bytes);
    store(rest, add_bf16(rest, other));
    std::memcpy(sum + i, rest, bytes);
    if (kStream) std::memcpy(streamed + i, rest, bytes);
}

template <typename E>
void add(const AddJob& j) {
    if constexpr (std::is_same<E, Bf16>::value)
        j.streamed ? add_row_bf16<true>(j) : add_row_bf16<false>(j);
    else if constexpr (std::is_same<E, F16>::value)
        j.streamed ? add_row<E, true>(j) : add_row<E, false>(j);
    else
        add_row<E, false>(j);
}

void add_doubles(const AddJob& j) {
    auto *a = static_cast<const double*>(j.a), *b = static_cast<const double*>(j.b);
    auto* sum = static_cast<double*>(j.sum);
    for (int64_t i = 0; i < j.count; ++i) sum[i] = a[i] + b[i];
}

// ---- sums --------------------------------------------------------------------------------------------

template <int kLanes>
struct Doubles {
    typedef double V __attribute__((vector_size(8 * kLanes)));
};

// Adds the upper half to the lower until one number remains.
template <int kLanes>
inline double sum_lanes(typename Doubles<kLanes>::V v) {
    if constexpr (kLanes == 2) {
        return v[0] + v[1];
    } else {
        typename Doubles<kLanes / 2>::V halves[2];
        std::memcpy(halves, &v, sizeof v);
        return sum_lanes<kLanes / 2>(halves[0] + halves[1]);
    }
}

inline double sum_of(const VD (&sums)[4], double tail) {
    return sum_lanes<kDoublesPerVector>((sums[0] + sums[1]) + (sums[2] + sums[3])) + tail;
}

// Adds sums of groups in double. A group is the vectors whose squares four float32 accumulators add; these are joined
// in float32 first. kSquaresBlock's comment derives the error.
struct GroupSums {
    VD low{}, high{};
    void add(VF group) {
        VD a, b;
        split(group, &a, &b);
        low += a, high += b;
    }
    void add(const VF (&s)[4]) { add((s[0] + s[1]) + (s[2] + s[3])); }
};

template <typename E>
int64_t sum_groups(const typename E::T* p, int64_t count, GroupSums* sums) {
    int64_t i = 0;
    for (; i + 8 * W <= count; i += 8 * W) {
        VF s[4];
        for (int k = 0; k < 4; ++k) {
            VF first = E::load_v(p + i + k * W), second = E::load_v(p + i + (k + 4) * W);
            s[k] = mul_add(second, second, first * first);
        }
        sums->add(s);
    }
    return i;
}

// bfloat16: two elements per 32-bit lane.
template <int kVectors>
inline void add_pairs(const uint16_t* p, GroupSums* sums) {
    VF s[4] = {};
    for (int k = 0; k < kVectors; ++k) {
        VU v = load<VU>(p + k * 2 * W);
#if NPU_ROPE_LANES == 16 && defined(__AVX512BF16__)
        // The instruction treats subnormals as zero. That is negligible, because callers use the sum only if the mean
        // square is at least kMinMeanSquare.
        s[k % 4] = (VF)_mm512_dpbf16_ps((__m512)s[k % 4], (__m512bh)v, (__m512bh)v);
#else
        VF even = as_float(v << 16), odd = as_float(v & 0xffff0000u);
        s[k % 4] = mul_add(odd, odd, mul_add(even, even, s[k % 4]));
#endif
    }
    sums->add(s);
}

template <>
int64_t sum_groups<Bf16>(const uint16_t* p, int64_t count, GroupSums* sums) {
    int64_t i = 0;
    for (; i + 16 * W <= count; i += 16 * W) add_pairs<8>(p + i, sums);
    for (; i + 8 * W <= count; i += 8 * W) add_pairs<4>(p + i, sums);  // for example, a head of 128
    return i;
}

template <typename E>
double sum_squares(const void* x, int64_t count) {
    auto* p = static_cast<const typename E::T*>(x);
    GroupSums sums;
    int64_t i = sum_groups<E>(p, count, &sums);
    for (; i + W <= count; i += W) {
        VF v = E::load_v(p + i);
        sums.add(v * v);
    }
    double tail = 0;
    for (; i < count; ++i) tail += double{E::get(p[i])} * double{E::get(p[i])};
    return sum_of({sums.low, sums.high, VD{}, VD{}}, tail);
}

double dot(const double* a, const double* b, int64_t count) {
    VD sums[4] = {};
    int64_t i = 0;
    for (; i + 2 * W <= count; i += 2 * W)
        for (int k = 0; k < 4; ++k)
            sums[k] =
                mul_add(load<VD>(a + i + k * kDoublesPerVector), load<VD>(b + i + k * kDoublesPerVector), sums[k]);
    double tail = 0;
    for (; i < count; ++i) tail += a[i] * b[i];
    return sum_of(sums, tail);
}

// ---- a row in float32 ----------------------------------------------------------------------------------
//
// The elements of the row are finite, so a NaN that is rounded to bfloat16 comes from a bfloat16 scale, or is the
// machine's default NaN. Both have a zero lower half, so rounding cannot carry into the sign.

template <typename E>
inline VF rounded(VF v) {
    typename E::T narrow[W];
    E::template store_v<false>(narrow, v);
    return E::load_v(narrow);
}
template <>
inline VF rounded<F32>(VF v) {
    return v;
}
// Rounds to nearest, ties away from zero. A tie may go either way: the number was rounded before, so both
// neighbours are within the bound.
template <>
inline VF rounded<Bf16>(VF v) {
    return as_float((as_bits(v) + 0x8000) & 0xffff0000u);
}

template <typename X, typename S, bool kStream>
inline void put_product(typename S::T* y, VF normalized, VF scale) {
    S::template store_v<kStream>(y, rounded<X>(normalized) * scale);
}

template <typename X, typename S>
inline void normalize_tail(const NormalizeJob& j, int64_t from) {
    const int64_t count = j.count - from;
    if (count == 0) return;
    const Padded<typename X::T> x(static_cast<const typename X::T*>(j.x) + from, count);
    const Padded<typename S::T> scale(static_cast<const typename S::T*>(j.scale) + from, count);
    Padded<typename S::T> y;
    put_product<X, S, false>(y.elements, X::load_v(x.elements) * j.inverse, S::load_v(scale.elements));
    y.copy_to(static_cast<typename S::T*>(j.y) + from, count);
}

// Prefetches cache lines while elements are normalized: the job's lines, which later rows read, and, with kPrefetched,
// the lines kAhead bytes after the elements of y, which are written next.
template <Storing storing>
class Prefetcher {
public:
    explicit Prefetcher(const NormalizeJob& j)
        : next_x_(static_cast<const char*>(j.prefetch[0])), next_residual_(static_cast<const char*>(j.prefetch[1])) {}
    template <typename X, typename Y>
    void at(int64_t i, const X*, const Y* y) const {
        __builtin_prefetch(next_x_ + i * sizeof(X));
        if (next_residual_ != next_x_) __builtin_prefetch(next_residual_ + i * sizeof(X));
        if (storing == Storing::kPrefetched) __builtin_prefetch(reinterpret_cast<const char*>(y + i) + kAhead, 1);
    }

private:
    static constexpr int64_t kAhead = 4096;  // bytes
    const char *next_x_, *next_residual_;
};

template <typename X, typename S, Storing storing>
void normalize_row(const NormalizeJob& j) {
    constexpr bool kStream = storing == Storing::kStreamed;
    auto* x = static_cast<const typename X::T*>(j.x);
    auto* scale = static_cast<const typename S::T*>(j.scale);
    auto* y = static_cast<typename S::T*>(j.y);
    const Prefetcher<storing> prefetcher(j);
    const int64_t count = j.count;
    const VF inverse = VF{} + j.inverse;
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        prefetcher.at(i, x, y);
        put_product<X, S, kStream>(y + i, X::load_v(x + i) * inverse, S::load_v(scale + i));
    }
    normalize_tail<X, S>(j, i);
}

// bfloat16 throughout: a 32-bit lane holds two elements, and no data move between lanes.
template <Storing storing>
void normalize_row_bf16(const NormalizeJob& j) {
    auto* x = static_cast<const uint16_t*>(j.x);
    auto* scale = static_cast<const uint16_t*>(j.scale);
    auto* y = static_cast<uint16_t*>(j.y);
    const Prefetcher<storing> prefetcher(j);
    const int64_t count = j.count;
    const VF inverse = VF{} + j.inverse;
    int64_t i = 0;
    for (; i + 2 * W <= count; i += 2 * W) {
        prefetcher.at(i, x, y);
        VU a = load<VU>(x + i), s = load<VU>(scale + i);
        VF even = rounded<Bf16>(as_float(a << 16) * inverse);
        VF odd = rounded<Bf16>(as_float(a & 0xffff0000u) * inverse);
        put<storing == Storing::kStreamed>(y + i, pack_bf16(even * as_float(s << 16), odd * as_float(s & 0xffff0000u)));
    }
    if (j.count - i >= W) {
        put_product<Bf16, Bf16, false>(y + i, load_bf16(x + i) * j.inverse, load_bf16(scale + i));
        i += W;
    }
    normalize_tail<Bf16, Bf16>(j, i);
}

template <typename X, typename S, Storing storing>
inline void normalize_by_types(const NormalizeJob& j) {
    if constexpr (std::is_same<X, Bf16>::value && std::is_same<S, Bf16>::value)
        normalize_row_bf16<storing>(j);
    else
        normalize_row<X, S, storing>(j);
}

template <typename X, typename S>
void normalize(const NormalizeJob& j) {
    if (j.storing == Storing::kStreamed) return normalize_by_types<X, S, Storing::kStreamed>(j);
    if (j.storing == Storing::kPrefetched) return normalize_by_types<X, S, Storing::kPrefetched>(j);
    normalize_by_types<X, S, Storing::kPlain>(j);
}

// ---- a piece of a row in float64 -----------------------------------------------------------------------

void scale_by(double* a, double factor, int64_t count) {
    for (int64_t i = 0; i < count; ++i) a[i] *= factor;
}
void multiply(const double* __restrict a, const double* __restrict b, double* __restrict product, int64_t count) {
    for (int64_t i = 0; i < count; ++i) product[i] = a[i] * b[i];
}
void add_product(const double* __restrict a, const double* __restrict b, double* __restrict sum, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum[i] += a[i] * b[i];
}
void project(const double* __restrict a, const double* __restrict b, double mean, double factor, double* __restrict to,
             int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = factor * (a[i] - b[i] * mean);
}

}  // namespace

const RmsNormKernels& NPU_ROPE_OF_ISA(rms_norm_kernels, NPU_ROPE_ISA)() {
    static const RmsNormKernels set = {
        {sum_squares<F32>, sum_squares<F16>, sum_squares<Bf16>},
        {{normalize<F32, F32>, normalize<F32, F16>, normalize<F32, Bf16>},
         {normalize<F16, F32>, normalize<F16, F16>, normalize<F16, Bf16>},
         {normalize<Bf16, F32>, normalize<Bf16, F16>, normalize<Bf16, Bf16>}},
        {add<F32>, add<F16>, add<Bf16>, add_doubles},
        {widen<F32>, widen<F16>, widen<Bf16>, widen<F64>},
        {narrow<F32>, narrow<F16>, narrow<Bf16>, narrow<F64>},
        dot,
        scale_by,
        multiply,
        add_product,
        project,
    };
    return set;
}

}  // namespace npu_rope
