// The kernels of rope for vectors of W = NPU_ROPE_VECTOR_FLOATS floats. Tables are computed with fused multiply-adds. A
// rotation rounds each product and their sum, as do the NPU's kernel and PyTorch's x * cos + rotate_half(x) * sin. All
// results therefore have the same bits on every instruction set.
#include "csrc/cpu/rope_kernels.h"

#include <cmath>
#include <cstring>

#include "csrc/cpu/elements.h"
#include "csrc/cpu/pairs.h"

namespace npu_rope {
namespace {

// ---- cos and sin of a fractional turn ---------------------------------------------------------
//
// cos_sin() computes cos and sin of m * (hi + lo) turns: m is TableJob's multiplier, hi and lo are its turns_hi and
// turns_lo. m * hi is exact (rope_angle.h), and so is its difference from the nearest integer. The code adds m * lo to
// this difference. The sum r in [-1/2, 1/2] is split as r = q/4 + z with |z| <= 1/8. Both series are evaluated for the
// angle 2 pi z in [-pi/4, pi/4], and q selects the series and its sign. Coefficients: Taylor's (2 pi)^k / k!.

struct Coefficients {
    static constexpr double sin[] = {0x1.921fb54442d18p+2,  -0x1.4abbce625be53p+5, 0x1.466bc6775aae2p+6,
                                     -0x1.32d2cce62bd86p+6, 0x1.50783487ee782p+5,  -0x1.e3074fde8871fp+3,
                                     0x1.e8f434d018d63p+1,  -0x1.6fadb9f155744p-1};
    static constexpr double cos[] = {0x1.0000000000000p+0,  -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5ac4p+6,
                                     -0x1.55d3c7e3cbffap+6, 0x1.e1f506891babbp+5,  -0x1.a6d1f2a204a8cp+4,
                                     0x1.f9d38a3763cc3p+2,  -0x1.b6e24f44b128fp+0, 0x1.20c62c2f2d7f5p-2};
};

// kTerms: 5 sine and 6 cosine terms give errors below 2^-29, for float tables; 8 and 9 give 2^-53, for double tables.
template <int kTerms>
inline DoubleVec sin_series(DoubleVec z, DoubleVec z_squared) {
    DoubleVec sum = DoubleVec{} + Coefficients::sin[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k) sum = mul_add(sum, z_squared, DoubleVec{} + Coefficients::sin[k]);
    return sum * z;
}
template <int kTerms>
inline DoubleVec cos_series(DoubleVec z_squared) {
    DoubleVec sum = DoubleVec{} + Coefficients::cos[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k) sum = mul_add(sum, z_squared, DoubleVec{} + Coefficients::cos[k]);
    return sum;
}

template <int kSinTerms, int kCosTerms>
inline void cos_sin(DoubleVec hi, DoubleVec lo, DoubleVec m, DoubleVec* c, DoubleVec* s) {
    constexpr double kRounder = 0x1.8p52;  // a sum with it is rounded to an integer, which is in the sum's low bits
    DoubleVec turns = m * hi;
    DoubleVec r = mul_add(m, lo, turns - round_to_even(turns));
    DoubleVec quarter = (r * 4.0 + kRounder);
    DoubleVec z = r - (quarter - kRounder) * 0.25;
    Int64Vec q = (Int64Vec)quarter;
    DoubleVec z_squared = z * z;
    DoubleVec sin_z = sin_series<kSinTerms>(z, z_squared), cos_z = cos_series<kCosTerms>(z_squared);
    Int64Vec odd_mask = -(q & 1);  // an odd q exchanges cos and sin
    // << 62 moves bit 1 to the sign bit: cos is negative if q mod 4 is 1 or 2, sin if it is 2 or 3.
    Int64Vec cos_sign = (((q + 1) & 2) << 62), sin_sign = ((q & 2) << 62);
    *c = (DoubleVec)((((Int64Vec)cos_z & ~odd_mask) | ((Int64Vec)sin_z & odd_mask)) ^ cos_sign);
    *s = (DoubleVec)((((Int64Vec)sin_z & ~odd_mask) | ((Int64Vec)cos_z & odd_mask)) ^ sin_sign);
}

inline void store_table(float* p, DoubleVec v) { store(p, to_floats(v)); }
inline void store_table(double* p, DoubleVec v) { store(p, v); }

template <int kSinTerms, int kCosTerms, typename T>
void fill_table(const TableJob& job, T* cos_table, T* sin_table) {
    for (int i = 0; i < job.count; i += W / 2) {
        DoubleVec m = job.pair_multipliers ? load<DoubleVec>(job.pair_multipliers + i) : DoubleVec{} + job.multiplier;
        DoubleVec c, s;
        cos_sin<kSinTerms, kCosTerms>(load<DoubleVec>(job.turns_hi + i), load<DoubleVec>(job.turns_lo + i), m, &c, &s);
        store_table(cos_table + i, c * job.cos_scale);
        store_table(sin_table + i, s * job.sin_scale);
    }
}

void table_f32(const TableJob& job, float* c, float* s) { fill_table<5, 6>(job, c, s); }
void table_f64(const TableJob& job, double* c, double* s) { fill_table<8, 9>(job, c, s); }

void step_table(const StepJob& step_job, float* cos_table, float* sin_table) {
    const StepJob job = step_job;  // in registers; for the compiler, the stores may change the caller's
    for (int i = 0; i < job.count; i += W / 2) {
        DoubleVec c = load<DoubleVec>(job.cos + i), s = load<DoubleVec>(job.sin + i);
        DoubleVec step_c = load<DoubleVec>(job.step_cos + i), step_s = load<DoubleVec>(job.step_sin + i);
        DoubleVec next_c = mul_add(c, step_c, -(s * step_s)), next_s = mul_add(s, step_c, c * step_s);
        store(job.cos + i, next_c);
        store(job.sin + i, next_s);
        store_table(cos_table + i, next_c * job.cos_scale);
        store_table(sin_table + i, next_s * job.sin_scale);
    }
}

// Converts tables from natural order to another order. The tables are padded to whole vectors. For kEvenOdd, the pairs
// after the last group of 2 W stay in natural order.
void reorder(TableOrder order, int pairs, const float* cos, const float* sin, float* cos_out, float* sin_out) {
    if (order == kPerLane) {
        for (int i = 0; i < pairs; i += W) {
            FloatVec cos_vector = load<FloatVec>(cos + i), sin_vector = load<FloatVec>(sin + i), low, high;
            interleave(cos_vector, cos_vector, &low, &high);
            store(cos_out + 2 * i, low), store(cos_out + 2 * i + W, high);
            interleave(-sin_vector, sin_vector, &low, &high);
            store(sin_out + 2 * i, low), store(sin_out + 2 * i + W, high);
        }
        return;
    }
    int i = 0;
    for (; i + 2 * W <= pairs; i += 2 * W) {
        FloatVec even, odd;
        deinterleave(load<FloatVec>(cos + i), load<FloatVec>(cos + i + W), &even, &odd);
        store(cos_out + i, even), store(cos_out + i + W, odd);
        deinterleave(load<FloatVec>(sin + i), load<FloatVec>(sin + i + W), &even, &odd);
        store(sin_out + i, even), store(sin_out + i + W, odd);
    }
    for (; i < pairs; ++i) cos_out[i] = cos[i], sin_out[i] = sin[i];
}

// ---- rotators -------------------------------------------------------------------------------------------
//
// A rotator rotates kPairs pairs (a, b), from pair i on, by cosines c and sines s. It keeps c and s in registers. The
// tables have one of the orders of TableOrder.

template <typename Element>
struct HalfApartRotator {
    using T = typename Element::T;
    static constexpr int kPairs = W;
    FloatVec c, s;
    void load_table(const float* cos_table, const float* sin_table, int i) {
        c = load<FloatVec>(cos_table + i), s = load<FloatVec>(sin_table + i);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int pairs) const {
        FloatVec a = Element::load_vector(x + i), b = Element::load_vector(x + pairs + i);
        Element::template store_vector<kStream>(y + i, a * c - b * s);
        Element::template store_vector<kStream>(y + pairs + i, a * s + b * c);
    }
};

// The tables have the order kPerLane.
template <typename Element>
struct InterleavedRotator {
    using T = typename Element::T;
    static constexpr int kPairs = W / 2;
    FloatVec c, s;
    void load_table(const float* cos_table, const float* sin_table, int i) {
        c = load<FloatVec>(cos_table + 2 * i), s = load<FloatVec>(sin_table + 2 * i);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int) const {
        const FloatVec v = Element::load_vector(x + 2 * i);
        Element::template store_vector<kStream>(y + 2 * i, v * c + swap_pairs(v) * s);
    }
};

// A 32-bit word of a vector holds two bfloat16 elements. As floats, the even element is the word shifted left, and the
// odd one is the word with its lower half cleared. No data move between words.
struct Bf16HalfApartRotator {
    using T = uint16_t;
    static constexpr int kPairs = 2 * W;
    FloatVec cos_even, cos_odd, sin_even, sin_odd;
    void load_table(const float* cos_table, const float* sin_table, int i) {
        cos_even = load<FloatVec>(cos_table + i), cos_odd = load<FloatVec>(cos_table + i + W),
        sin_even = load<FloatVec>(sin_table + i), sin_odd = load<FloatVec>(sin_table + i + W);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int pairs) const {
        Uint32Vec a = load<Uint32Vec>(x + i), b = load<Uint32Vec>(x + pairs + i);
        FloatVec a_even = as_float(a << 16), a_odd = as_float(a & 0xffff0000u), b_even = as_float(b << 16),
                 b_odd = as_float(b & 0xffff0000u);
        Uint32Vec first, second;
        pack_bf16_twice(a_even * cos_even - b_even * sin_even, a_odd * cos_odd - b_odd * sin_odd,
                        a_even * sin_even + b_even * cos_even, a_odd * sin_odd + b_odd * cos_odd, &first, &second);
        put<kStream>(y + i, first);
        put<kStream>(y + pairs + i, second);
    }
};

struct Bf16InterleavedRotator {
    using T = uint16_t;
    static constexpr int kPairs = W;
    FloatVec c, s;
    void load_table(const float* cos_table, const float* sin_table, int i) {
        c = load<FloatVec>(cos_table + i), s = load<FloatVec>(sin_table + i);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int) const {
        Uint32Vec v = load<Uint32Vec>(x + 2 * i);
        FloatVec a = as_float(v << 16), b = as_float(v & 0xffff0000u);
        put<kStream>(y + 2 * i, pack_bf16(a * c - b * s, a * s + b * c));
    }
};

// Copies the parts of a head before and after its window. The caller copies in order of addresses, while the head is in
// the cache.
struct OutsideWindow {
    int64_t bytes_before, bytes_after, window_bytes;
    template <typename T>
    explicit OutsideWindow(const HeadsJob& job, T)
        : bytes_before(job.bytes_before),
          bytes_after(job.bytes_after),
          window_bytes(2 * job.pairs * int64_t{sizeof(T)}) {}
    template <bool kStream, typename T>
    void copy_before(const T* x, T* y) const {
        if (bytes_before)
            copy_bytes<kStream>(reinterpret_cast<char*>(y) - bytes_before,
                                reinterpret_cast<const char*>(x) - bytes_before, bytes_before);
    }
    template <bool kStream, typename T>
    void copy_after(const T* x, T* y) const {
        if (bytes_after)
            copy_bytes<kStream>(reinterpret_cast<char*>(y) + window_bytes,
                                reinterpret_cast<const char*>(x) + window_bytes, bytes_after);
    }
};

// Rotates windows whose pairs exactly fill kRotators rotators. The rotators keep their table entries in registers, or
// at constant addresses, for all heads. With kExtraVector, the windows have W more pairs, which is half the number of a
// bfloat16 rotator.
template <typename Element, typename Rotator, int kRotators, bool kStream, bool kExtraVector = false>
void rotate_fixed(const HeadsJob& job) {
    using T = typename Element::T;
    auto* c = static_cast<const float*>(job.cos_table);
    auto* s = static_cast<const float*>(job.sin_table);
    Rotator rotators[kRotators + 1];
    for (int k = 0; k < kRotators; ++k) rotators[k].load_table(c, s, k * Rotator::kPairs);
    HalfApartRotator<Element> extra;
    if constexpr (kExtraVector) extra.load_table(c, s, kRotators * Rotator::kPairs);
    auto* x = static_cast<const T*>(job.x);
    auto* y = static_cast<T*>(job.y);
    const OutsideWindow outside(job, T{});
    const int64_t heads = job.heads, x_stride = job.x_stride, y_stride = job.y_stride;
    const int64_t prefetch_distance = job.prefetch_distance;
    constexpr int pairs = kRotators * Rotator::kPairs + (kExtraVector ? W : 0);
    for (int64_t h = 0; h < heads; ++h, x += x_stride, y += y_stride) {
        // rotate_any has the same lines. As a function for both, they made prefill in mode neox 20 % slower (gcc 12).
        if (prefetch_distance)
            prefetch_bytes(reinterpret_cast<const char*>(x) + prefetch_distance, 2 * pairs * int64_t{sizeof(T)});
        outside.template copy_before<kStream>(x, y);
#pragma GCC unroll 16
        for (int k = 0; k < kRotators; ++k) rotators[k].template run<kStream>(x, y, k * Rotator::kPairs, pairs);
        if constexpr (kExtraVector) extra.template run<kStream>(x, y, kRotators * Rotator::kPairs, pairs);
        outside.template copy_after<kStream>(x, y);
    }
}

template <typename Element, typename Rotator, Pairing kPairing, bool kPerLaneTable, bool kStream>
void rotate_any(const HeadsJob& job) {
    using T = typename Element::T;
    auto* c = static_cast<const float*>(job.cos_table);
    auto* s = static_cast<const float*>(job.sin_table);
    int whole_pairs = job.pairs / Rotator::kPairs * Rotator::kPairs, vector_pairs = whole_pairs;
    // After the last bfloat16 rotator, which rotates 2 W pairs, W pairs may remain. Their table is in natural order.
    constexpr bool kHasExtraVectors = kPairing == kHalfApart && Rotator::kPairs > W;
    if (kHasExtraVectors) vector_pairs = job.pairs / W * W;
    auto* x = static_cast<const T*>(job.x);
    auto* y = static_cast<T*>(job.y);
    const OutsideWindow outside(job, T{});
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        if (job.prefetch_distance)
            prefetch_bytes(reinterpret_cast<const char*>(x) + job.prefetch_distance,
                           2 * job.pairs * int64_t{sizeof(T)});
        outside.template copy_before<kStream>(x, y);
        for (int i = 0; i < whole_pairs; i += Rotator::kPairs) {
            Rotator rotator;
            rotator.load_table(c, s, i);
            rotator.template run<kStream>(x, y, i, job.pairs);
        }
        if constexpr (kHasExtraVectors)
            for (int i = whole_pairs; i < vector_pairs; i += W) {
                HalfApartRotator<Element> rotator;
                rotator.load_table(c, s, i);
                rotator.template run<kStream>(x, y, i, job.pairs);
            }
        rotate_pairs<Element, kPairing, kPerLaneTable>([x](int lane) { return Element::to_float(x[lane]); }, y,
                                                       vector_pairs, job.pairs, c, s);
        outside.template copy_after<kStream>(x, y);
    }
}

template <typename Element, typename Rotator, int kRotators, bool kExtraVector = false>
void rotate_fixed_or_stream(const HeadsJob& job) {
    job.stream ? rotate_fixed<Element, Rotator, kRotators, true, kExtraVector>(job)
               : rotate_fixed<Element, Rotator, kRotators, false, kExtraVector>(job);
}

template <typename Element, typename Rotator, Pairing kPairing, bool kPerLaneTable>
void rotate(const HeadsJob& job) {
    if (job.pairs % Rotator::kPairs == 0) switch (job.pairs / Rotator::kPairs) {
            case 1:
                return rotate_fixed_or_stream<Element, Rotator, 1>(job);
            case 2:
                return rotate_fixed_or_stream<Element, Rotator, 2>(job);
            case 3:
                return rotate_fixed_or_stream<Element, Rotator, 3>(job);
            case 4:
                return rotate_fixed_or_stream<Element, Rotator, 4>(job);
            case 5:
                return rotate_fixed_or_stream<Element, Rotator, 5>(job);
            case 6:
                return rotate_fixed_or_stream<Element, Rotator, 6>(job);
            case 7:
                return rotate_fixed_or_stream<Element, Rotator, 7>(job);
            case 8:
                return rotate_fixed_or_stream<Element, Rotator, 8>(job);
            case 10:
                return rotate_fixed_or_stream<Element, Rotator, 10>(job);
            case 12:
                return rotate_fixed_or_stream<Element, Rotator, 12>(job);
            case 16:
                return rotate_fixed_or_stream<Element, Rotator, 16>(job);
            default:
                break;
        }
    if constexpr (kPairing == kHalfApart && Rotator::kPairs > W)
        if (job.pairs % Rotator::kPairs == W) switch (job.pairs / Rotator::kPairs) {
                case 0:
                    return rotate_fixed_or_stream<Element, Rotator, 0, true>(job);
                case 1:
                    return rotate_fixed_or_stream<Element, Rotator, 1, true>(job);
                case 2:
                    return rotate_fixed_or_stream<Element, Rotator, 2, true>(job);
                default:
                    break;
            }
    job.stream ? rotate_any<Element, Rotator, kPairing, kPerLaneTable, true>(job)
               : rotate_any<Element, Rotator, kPairing, kPerLaneTable, false>(job);
}

template <Pairing kPairing>
void rotate_f64(const HeadsJob& job) {
    auto* c = static_cast<const double*>(job.cos_table);
    auto* s = static_cast<const double*>(job.sin_table);
    auto* x = static_cast<const double*>(job.x);
    auto* y = static_cast<double*>(job.y);
    int pair_stride = kPairing == kHalfApart ? 1 : 2, to_partner = kPairing == kHalfApart ? job.pairs : 1;
    const OutsideWindow outside(job, double{});
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        outside.copy_before<false>(x, y);
        for (int i = 0; i < job.pairs; ++i) {
            double a = x[i * pair_stride], b = x[i * pair_stride + to_partner];
            y[i * pair_stride] = a * c[i] - b * s[i];
            y[i * pair_stride + to_partner] = a * s[i] + b * c[i];
        }
        outside.copy_after<false>(x, y);
    }
}

// ---- tables with an entry for each lane -----------------------------------------------------------

template <typename Element>
void rotate_half_apart_by_lanes(const HeadsJob& job) {
    using T = typename Element::T;
    const int pairs = job.pairs;
    const float *c1 = static_cast<const float*>(job.cos_table), *c2 = c1 + pairs;
    const float *s1 = static_cast<const float*>(job.sin_table), *s2 = s1 + pairs;
    auto* x = static_cast<const T*>(job.x);
    auto* y = static_cast<T*>(job.y);
    const OutsideWindow outside(job, T{});
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        outside.template copy_before<false>(x, y);
        int i = 0;
        for (; i + W <= pairs; i += W) {
            FloatVec a = Element::load_vector(x + i), b = Element::load_vector(x + pairs + i);
            Element::template store_vector<false>(y + i, a * load<FloatVec>(c1 + i) - b * load<FloatVec>(s1 + i));
            Element::template store_vector<false>(y + pairs + i,
                                                  a * load<FloatVec>(s2 + i) + b * load<FloatVec>(c2 + i));
        }
        for (; i < pairs; ++i) {
            float a = Element::to_float(x[i]), b = Element::to_float(x[pairs + i]);
            y[i] = Element::from_float(a * c1[i] - b * s1[i]);
            y[pairs + i] = Element::from_float(a * s2[i] + b * c2[i]);
        }
        outside.template copy_after<false>(x, y);
    }
}

// The tables have the order kPerLane.
template <typename Element>
void rotate_interleaved_by_lanes(const HeadsJob& job) {
    using T = typename Element::T;
    auto *c = static_cast<const float*>(job.cos_table), *s = static_cast<const float*>(job.sin_table);
    auto* x = static_cast<const T*>(job.x);
    auto* y = static_cast<T*>(job.y);
    const OutsideWindow outside(job, T{});
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        outside.template copy_before<false>(x, y);
        int i = 0;
        for (; i + W / 2 <= job.pairs; i += W / 2) {
            InterleavedRotator<Element> rotator;
            rotator.load_table(c, s, i);
            rotator.template run<false>(x, y, i, 0);
        }
        for (; i < job.pairs; ++i) {
            float a = Element::to_float(x[2 * i]), b = Element::to_float(x[2 * i + 1]);
            y[2 * i] = Element::from_float(a * c[2 * i] + b * s[2 * i]);
            y[2 * i + 1] = Element::from_float(b * c[2 * i + 1] + a * s[2 * i + 1]);
        }
        outside.template copy_after<false>(x, y);
    }
}

template <Pairing kPairing>
void rotate_f64_by_lanes(const HeadsJob& job) {
    auto* c = static_cast<const double*>(job.cos_table);
    auto* s = static_cast<const double*>(job.sin_table);
    auto* x = static_cast<const double*>(job.x);
    auto* y = static_cast<double*>(job.y);
    const OutsideWindow outside(job, double{});
    for (int64_t h = 0; h < job.heads; ++h, x += job.x_stride, y += job.y_stride) {
        outside.copy_before<false>(x, y);
        for (int i = 0; i < job.pairs; ++i) {
            if constexpr (kPairing == kHalfApart) {
                double a = x[i], b = x[i + job.pairs];
                y[i] = a * c[i] - b * s[i];
                y[i + job.pairs] = a * s[i + job.pairs] + b * c[i + job.pairs];
            } else {
                double a = x[2 * i], b = x[2 * i + 1];
                y[2 * i] = a * c[2 * i] + b * s[2 * i];
                y[2 * i + 1] = b * c[2 * i + 1] + a * s[2 * i + 1];
            }
        }
        outside.copy_after<false>(x, y);
    }
}

template <typename Element>
void widen(const void* src, float* dst, int64_t count) {
    auto* from = static_cast<const typename Element::T*>(src);
    int64_t i = 0;
    for (; i + W <= count; i += W) store(dst + i, with_bf16_nan(Element::load_vector(from + i)));
    for (; i < count; ++i) dst[i] = with_bf16_nan(Element::to_float(from[i]));
}

void narrow_f16(const float* src, void* dst, int64_t count) {
    auto* to = static_cast<uint16_t*>(dst);
    int64_t i = 0;
    for (; i + W <= count; i += W) store_f16<false>(to + i, load<FloatVec>(src + i));
    for (; i < count; ++i) to[i] = float_to_f16(src[i]);
}

void narrow_bf16(const float* src, void* dst, int64_t count) {
    auto* to = static_cast<uint16_t*>(dst);
    int64_t i = 0;
    for (; i + 2 * W <= count; i += 2 * W) {
        FloatVec even, odd;
        deinterleave(with_bf16_nan(load<FloatVec>(src + i)), with_bf16_nan(load<FloatVec>(src + i + W)), &even, &odd);
        store(to + i, pack_bf16(even, odd));
    }
    for (; i < count; ++i) to[i] = float_to_bf16(with_bf16_nan(src[i]));
}

}  // namespace

const RopeKernels& NPU_ROPE_OF_ISA(rope_kernels, NPU_ROPE_ISA)() {
    // dtype order: float32, float16, bfloat16, float64
    static const RopeKernels set = {
        table_f32,
        table_f64,
        step_table,
        reorder,
        {{kNatural, kNatural, kEvenOdd, kNatural}, {kPerLane, kPerLane, kNatural, kNatural}},
        {{rotate<F32, HalfApartRotator<F32>, kHalfApart, false>, rotate<F16, HalfApartRotator<F16>, kHalfApart, false>,
          rotate<Bf16, Bf16HalfApartRotator, kHalfApart, false>, rotate_f64<kHalfApart>},
         {rotate<F32, InterleavedRotator<F32>, kInterleaved, true>,
          rotate<F16, InterleavedRotator<F16>, kInterleaved, true>,
          rotate<Bf16, Bf16InterleavedRotator, kInterleaved, false>, rotate_f64<kInterleaved>}},
        {{rotate_half_apart_by_lanes<F32>, rotate_half_apart_by_lanes<F16>, rotate_half_apart_by_lanes<Bf16>,
          rotate_f64_by_lanes<kHalfApart>},
         {rotate_interleaved_by_lanes<F32>, rotate_interleaved_by_lanes<F16>, rotate_interleaved_by_lanes<Bf16>,
          rotate_f64_by_lanes<kInterleaved>}},
        {nullptr, narrow_f16, narrow_bf16, nullptr},
        {widen<F32>, widen<F16>, widen<Bf16>, nullptr},
    };
    return set;
}

}  // namespace npu_rope
