// The kernels for vectors of NPU_ROPE_LANES floats. Tables are computed with fused multiply-adds if the instruction set
// has them. Heads are rotated by products and their sum, each rounded, as in PyTorch's x * cos + rotate_half(x) * sin
// and in the device's kernel. Equal tables therefore give equal bits on every instruction set.
#include "csrc/cpu/rope_kernels.h"

#include <cmath>
#include <cstring>

#include "csrc/cpu/elements.h"
#include "csrc/cpu/pairs.h"

namespace npu_rope {
namespace {

// ---- cos and sin of a fractional turn ---------------------------------------------------------
//
// t = m*hi is exact (rope_angle.h), and so is t - round(t); m*lo is added afterwards. The sum r in [-1/2, 1/2] is split
// as r = q/4 + z, |z| <= 1/8. Both series are evaluated in [-pi/4, pi/4], and q selects the series and its sign.
// Coefficients: Taylor's (2 pi)^k / k!.

struct Series {
    static constexpr double s[] = {0x1.921fb54442d18p+2,  -0x1.4abbce625be53p+5, 0x1.466bc6775aae2p+6,
                                   -0x1.32d2cce62bd86p+6, 0x1.50783487ee782p+5,  -0x1.e3074fde8871fp+3,
                                   0x1.e8f434d018d63p+1,  -0x1.6fadb9f155744p-1};
    static constexpr double c[] = {0x1.0000000000000p+0,  -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5ac4p+6,
                                   -0x1.55d3c7e3cbffap+6, 0x1.e1f506891babbp+5,  -0x1.a6d1f2a204a8cp+4,
                                   0x1.f9d38a3763cc3p+2,  -0x1.b6e24f44b128fp+0, 0x1.20c62c2f2d7f5p-2};
};

// kTerms: enough for an error below 2^-29 (float tables) or 2^-53 (double tables).
template <int kTerms>
inline VD sin_series(VD z, VD z2) {
    VD p = VD{} + Series::s[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k) p = mul_add(p, z2, VD{} + Series::s[k]);
    return p * z;
}
template <int kTerms>
inline VD cos_series(VD z2) {
    VD p = VD{} + Series::c[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k) p = mul_add(p, z2, VD{} + Series::c[k]);
    return p;
}

template <int kSinTerms, int kCosTerms>
inline void cos_sin(VD hi, VD lo, VD m, VD* c, VD* s) {
    VD t = m * hi;
    VD r = mul_add(m, lo, t - round_to_even(t));
    VD quarter = (r * 4.0 + 0x1.8p52);  // q is in the low bits
    VD z = r - (quarter - 0x1.8p52) * 0.25;
    VL q = (VL)quarter;
    VD z2 = z * z;
    VD sz = sin_series<kSinTerms>(z, z2), cz = cos_series<kCosTerms>(z2);
    VL odd = -(q & 1);
    VL cos_sign = (((q + 1) & 2) << 62), sin_sign = ((q & 2) << 62);
    *c = (VD)((((VL)cz & ~odd) | ((VL)sz & odd)) ^ cos_sign);
    *s = (VD)((((VL)sz & ~odd) | ((VL)cz & odd)) ^ sin_sign);
}

inline void store_table(float* p, VD v) { store(p, __builtin_convertvector(v, VFhalf)); }
inline void store_table(double* p, VD v) { store(p, v); }

template <int kSinTerms, int kCosTerms, typename T>
void fill_table(const TableJob& j, T* cos_table, T* sin_table) {
    constexpr int kStep = W / 2;
    for (int i = 0; i < j.count; i += kStep) {
        VD m = j.m_each ? load<VD>(j.m_each + i) : VD{} + j.m;
        VD c, s;
        cos_sin<kSinTerms, kCosTerms>(load<VD>(j.turns_hi + i), load<VD>(j.turns_lo + i), m, &c, &s);
        store_table(cos_table + i, c * j.cos_scale);
        store_table(sin_table + i, s * j.sin_scale);
    }
}

void table_f32(const TableJob& j, float* c, float* s) { fill_table<5, 6>(j, c, s); }
void table_f64(const TableJob& j, double* c, double* s) { fill_table<8, 9>(j, c, s); }

void step_table(const StepJob& j, float* cos_table, float* sin_table) {
    for (int i = 0; i < j.count; i += W / 2) {
        VD c = load<VD>(j.c + i), s = load<VD>(j.s + i), c1 = load<VD>(j.c1 + i), s1 = load<VD>(j.s1 + i);
        VD rotated_c = mul_add(c, c1, -(s * s1)), rotated_s = mul_add(s, c1, c * s1);
        store(j.c + i, rotated_c);
        store(j.s + i, rotated_s);
        store_table(cos_table + i, rotated_c * j.cos_scale);
        store_table(sin_table + i, rotated_s * j.sin_scale);
    }
}

// Tables are padded to whole vectors, so only kEvenOdd needs a tail: its last, partial block stays in natural order.
void reorder(TableOrder order, int pairs, const float* c, const float* s, float* c_out, float* s_out) {
    if (order == kCrossed) {
        for (int i = 0; i < pairs; i += W) {
            VF cv = load<VF>(c + i), sv = load<VF>(s + i), low, high;
            interleave(cv, sv, &low, &high);
            store(c_out + 2 * i, low), store(c_out + 2 * i + W, high);
            interleave(-sv, cv, &low, &high);
            store(s_out + 2 * i, low), store(s_out + 2 * i + W, high);
        }
        return;
    }
    int i = 0;
    for (; i + 2 * W <= pairs; i += 2 * W) {
        VF even, odd;
        deinterleave(load<VF>(c + i), load<VF>(c + i + W), &even, &odd);
        store(c_out + i, even), store(c_out + i + W, odd);
        deinterleave(load<VF>(s + i), load<VF>(s + i + W), &even, &odd);
        store(s_out + i, even), store(s_out + i + W, odd);
    }
    for (; i < pairs; ++i) c_out[i] = c[i], s_out[i] = s[i];
}

// ---- one step of the rotation: kPairs pairs, the first of which is pair i --------------------------------

// A step defines its number of pairs and the place of its table entries, which it keeps in registers.
template <typename E>
struct HalfStep {
    using T = typename E::T;
    static constexpr int kPairs = W;
    VF c, s;
    void load_table(const float* ct, const float* st, int i) { c = load<VF>(ct + i), s = load<VF>(st + i); }
    template <bool kStream>
    void run(const T* x, T* y, int i, int half) const {
        VF a = E::load_v(x + i), b = E::load_v(x + half + i);
        E::template store_v<kStream>(y + i, a * c - b * s);
        E::template store_v<kStream>(y + half + i, a * s + b * c);
    }
};

template <typename E>
struct InterleavedStep {
    using T = typename E::T;
    static constexpr int kPairs = W / 2;
    VF c, s;
    void load_table(const float* ct, const float* st, int i) { c = load<VF>(ct + 2 * i), s = load<VF>(st + 2 * i); }
    template <bool kStream>
    void run(const T* x, T* y, int i, int) const {
        VF first, second;
        duplicate_pairs(E::load_v(x + 2 * i), &first, &second);
        E::template store_v<kStream>(y + 2 * i, first * c + second * s);
    }
};

// A 32-bit lane holds two bfloat16. The even one as float is the lane shifted left; the odd one is the lane with its
// lower half cleared. No data move between lanes.
struct Bf16HalfStep {
    using T = uint16_t;
    static constexpr int kPairs = 2 * W;
    VF ce, co, se, so;
    void load_table(const float* ct, const float* st, int i) {
        ce = load<VF>(ct + i), co = load<VF>(ct + i + W), se = load<VF>(st + i), so = load<VF>(st + i + W);
    }
    template <bool kStream>
    void run(const T* x, T* y, int i, int half) const {
        VU a = load<VU>(x + i), b = load<VU>(x + half + i);
        VF ae = as_float(a << 16), ao = as_float(a & 0xffff0000u), be = as_float(b << 16),
           bo = as_float(b & 0xffff0000u);
        put<kStream>(y + i, pack_bf16(ae * ce - be * se, ao * co - bo * so));
        put<kStream>(y + half + i, pack_bf16(ae * se + be * ce, ao * so + bo * co));
    }
};

struct Bf16InterleavedStep {
    using T = uint16_t;
    static constexpr int kPairs = W;
    VF c, s;
    void load_table(const float* ct, const float* st, int i) { c = load<VF>(ct + i), s = load<VF>(st + i); }
    template <bool kStream>
    void run(const T* x, T* y, int i, int) const {
        VU v = load<VU>(x + 2 * i);
        VF a = as_float(v << 16), b = as_float(v & 0xffff0000u);
        put<kStream>(y + 2 * i, pack_bf16(a * c - b * s, a * s + b * c));
    }
};

// Copies bytes from x to y, which do not overlap. The last vector may overlap the vector before it.
template <bool kStream>
inline void copy_bytes(char* y, const char* x, int64_t bytes) {
    constexpr int64_t kVector = sizeof(VF);
    int64_t at = 0;
    for (; at + kVector <= bytes; at += kVector) put<kStream>(y + at, load<VF>(x + at));
    if (at == bytes) return;
    if (bytes >= kVector)
        store(y + bytes - kVector, load<VF>(x + bytes - kVector));
    else
        std::memcpy(y, x, static_cast<size_t>(bytes));
}

// Copies the parts of a head before and after its window. The caller copies in order of addresses, while the head is in
// the cache.
struct OutsideWindow {
    int64_t before, after, window;
    template <typename T>
    explicit OutsideWindow(const HeadsJob& j, T)
        : before(j.bytes_before), after(j.bytes_after), window(2 * j.pairs * int64_t{sizeof(T)}) {}
    template <bool kStream, typename T>
    void copy_before(const T* x, T* y) const {
        if (before)
            copy_bytes<kStream>(reinterpret_cast<char*>(y) - before, reinterpret_cast<const char*>(x) - before, before);
    }
    template <bool kStream, typename T>
    void copy_after(const T* x, T* y) const {
        if (after)
            copy_bytes<kStream>(reinterpret_cast<char*>(y) + window, reinterpret_cast<const char*>(x) + window, after);
    }
};

// Rotates windows of exactly kSteps steps, whose tables stay in registers for all heads. With kHalfStep the window has
// one more vector, half of bfloat16's step.
template <typename E, typename Step, int kSteps, bool kStream, bool kHalfStep = false>
void rotate_fixed(const HeadsJob& j) {
    using T = typename E::T;
    auto* c = static_cast<const float*>(j.cos_table);
    auto* s = static_cast<const float*>(j.sin_table);
    Step step[kSteps + 1];
    for (int k = 0; k < kSteps; ++k) step[k].load_table(c, s, k * Step::kPairs);
    HalfStep<E> half;
    if constexpr (kHalfStep) half.load_table(c, s, kSteps * Step::kPairs);
    auto* x = static_cast<const T*>(j.x);
    auto* y = static_cast<T*>(j.y);
    const OutsideWindow outside(j, T{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.template copy_before<kStream>(x, y);
#pragma GCC unroll 8
        for (int k = 0; k < kSteps; ++k) step[k].template run<kStream>(x, y, k * Step::kPairs, j.pairs);
        if constexpr (kHalfStep) half.template run<kStream>(x, y, kSteps * Step::kPairs, j.pairs);
        outside.template copy_after<kStream>(x, y);
    }
}

template <typename E, typename Step, Pairing kPairing, bool kCross>
void rotate_any(const HeadsJob& j) {
    using T = typename E::T;
    auto* c = static_cast<const float*>(j.cos_table);
    auto* s = static_cast<const float*>(j.sin_table);
    int step_pairs = j.pairs / Step::kPairs * Step::kPairs, vector_pairs = step_pairs;
    // The pairs after bfloat16's last double step may still fill a vector, whose table has natural order.
    constexpr bool kHalfSteps = kPairing == kHalf && Step::kPairs > W;
    if (kHalfSteps) vector_pairs = j.pairs / W * W;
    auto* x = static_cast<const T*>(j.x);
    auto* y = static_cast<T*>(j.y);
    const OutsideWindow outside(j, T{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.template copy_before<false>(x, y);
        for (int i = 0; i < step_pairs; i += Step::kPairs) {
            Step step;
            step.load_table(c, s, i);
            step.template run<false>(x, y, i, j.pairs);
        }
        if constexpr (kHalfSteps)
            for (int i = step_pairs; i < vector_pairs; i += W) {
                HalfStep<E> step;
                step.load_table(c, s, i);
                step.template run<false>(x, y, i, j.pairs);
            }
        rotate_pairs<E, kPairing, kCross>([x](int lane) { return E::get(x[lane]); }, y, vector_pairs, j.pairs, c, s);
        outside.template copy_after<false>(x, y);
    }
}

template <typename E, typename Step, int kSteps, bool kHalfStep = false>
void rotate_fixed_or_stream(const HeadsJob& j) {
    j.stream ? rotate_fixed<E, Step, kSteps, true, kHalfStep>(j) : rotate_fixed<E, Step, kSteps, false, kHalfStep>(j);
}

template <typename E, typename Step, Pairing kPairing, bool kCross>
void rotate(const HeadsJob& j) {
    // The number of steps whose tables fit the registers besides the data.
    constexpr int kMaxSteps = NPU_ROPE_LANES == 16 ? 8 : 4;
    int steps = j.pairs % Step::kPairs == 0 ? j.pairs / Step::kPairs : 0;
    if (steps <= kMaxSteps) switch (steps) {
            case 1:
                return rotate_fixed_or_stream<E, Step, 1>(j);
            case 2:
                return rotate_fixed_or_stream<E, Step, 2>(j);
            case 3:
                return rotate_fixed_or_stream<E, Step, 3>(j);
            case 4:
                return rotate_fixed_or_stream<E, Step, 4>(j);
            case 6:
                return rotate_fixed_or_stream<E, Step, 6>(j);
            case 8:
                return rotate_fixed_or_stream<E, Step, 8>(j);
            default:
                break;
        }
    if constexpr (kPairing == kHalf && Step::kPairs > W)
        if (j.pairs % Step::kPairs == W) switch (j.pairs / Step::kPairs) {
                case 0:
                    return rotate_fixed_or_stream<E, Step, 0, true>(j);
                case 1:
                    return rotate_fixed_or_stream<E, Step, 1, true>(j);
                case 2:
                    return rotate_fixed_or_stream<E, Step, 2, true>(j);
                default:
                    break;
            }
    rotate_any<E, Step, kPairing, kCross>(j);
}

template <Pairing kPairing>
void rotate_f64(const HeadsJob& j) {
    auto* c = static_cast<const double*>(j.cos_table);
    auto* s = static_cast<const double*>(j.sin_table);
    auto* x = static_cast<const double*>(j.x);
    auto* y = static_cast<double*>(j.y);
    int n1 = kPairing == kHalf ? 1 : 2, n2 = kPairing == kHalf ? j.pairs : 1;
    const OutsideWindow outside(j, double{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.copy_before<false>(x, y);
        for (int i = 0; i < j.pairs; ++i) {
            double a = x[i * n1], b = x[i * n1 + n2];
            y[i * n1] = a * c[i] - b * s[i];
            y[i * n1 + n2] = a * s[i] + b * c[i];
        }
        outside.copy_after<false>(x, y);
    }
}

// ---- tables with an entry for each lane -----------------------------------------------------------

template <typename E>
void rotate_half_by_lanes(const HeadsJob& j) {
    using T = typename E::T;
    const int pairs = j.pairs;
    const float *c1 = static_cast<const float*>(j.cos_table), *c2 = c1 + pairs;
    const float *s1 = static_cast<const float*>(j.sin_table), *s2 = s1 + pairs;
    auto* x = static_cast<const T*>(j.x);
    auto* y = static_cast<T*>(j.y);
    const OutsideWindow outside(j, T{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.template copy_before<false>(x, y);
        int i = 0;
        for (; i + W <= pairs; i += W) {
            VF a = E::load_v(x + i), b = E::load_v(x + pairs + i);
            E::template store_v<false>(y + i, a * load<VF>(c1 + i) - b * load<VF>(s1 + i));
            E::template store_v<false>(y + pairs + i, a * load<VF>(s2 + i) + b * load<VF>(c2 + i));
        }
        for (; i < pairs; ++i) {
            float a = E::get(x[i]), b = E::get(x[pairs + i]);
            y[i] = E::from_float(a * c1[i] - b * s1[i]);
            y[pairs + i] = E::from_float(a * s2[i] + b * c2[i]);
        }
        outside.template copy_after<false>(x, y);
    }
}

// A crossed table holds the factors of each of a pair's elements in both results.
template <typename E>
void rotate_interleaved_by_lanes(const HeadsJob& j) {
    using T = typename E::T;
    auto *from_first = static_cast<const float*>(j.cos_table), *from_second = static_cast<const float*>(j.sin_table);
    auto* x = static_cast<const T*>(j.x);
    auto* y = static_cast<T*>(j.y);
    const OutsideWindow outside(j, T{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.template copy_before<false>(x, y);
        int i = 0;
        for (; i + W / 2 <= j.pairs; i += W / 2) {
            InterleavedStep<E> step;
            step.load_table(from_first, from_second, i);
            step.template run<false>(x, y, i, 0);
        }
        for (; i < j.pairs; ++i) {
            float a = E::get(x[2 * i]), b = E::get(x[2 * i + 1]);
            y[2 * i] = E::from_float(a * from_first[2 * i] + b * from_second[2 * i]);
            y[2 * i + 1] = E::from_float(a * from_first[2 * i + 1] + b * from_second[2 * i + 1]);
        }
        outside.template copy_after<false>(x, y);
    }
}

template <Pairing kPairing>
void rotate_f64_by_lanes(const HeadsJob& j) {
    auto* c = static_cast<const double*>(j.cos_table);
    auto* s = static_cast<const double*>(j.sin_table);
    auto* x = static_cast<const double*>(j.x);
    auto* y = static_cast<double*>(j.y);
    const OutsideWindow outside(j, double{});
    for (int64_t h = 0; h < j.heads; ++h, x += j.x_stride, y += j.y_stride) {
        outside.copy_before<false>(x, y);
        for (int i = 0; i < j.pairs; ++i) {
            if constexpr (kPairing == kHalf) {
                double a = x[i], b = x[i + j.pairs];
                y[i] = a * c[i] - b * s[i];
                y[i + j.pairs] = a * s[i + j.pairs] + b * c[i + j.pairs];
            } else {
                double a = x[2 * i], b = x[2 * i + 1];
                y[2 * i] = a * c[2 * i] + b * s[2 * i];
                y[2 * i + 1] = a * c[2 * i + 1] + b * s[2 * i + 1];
            }
        }
        outside.copy_after<false>(x, y);
    }
}

template <typename E>
void widen(const void* src, float* dst, int64_t count) {
    auto* from = static_cast<const typename E::T*>(src);
    int64_t i = 0;
    for (; i + W <= count; i += W) store(dst + i, tidy_nan(E::load_v(from + i)));
    for (; i < count; ++i) dst[i] = tidy_nan(E::get(from[i]));
}

void narrow_f16(const float* src, void* dst, int64_t count) {
    auto* to = static_cast<uint16_t*>(dst);
    int64_t i = 0;
    for (; i + W <= count; i += W) store_f16<false>(to + i, load<VF>(src + i));
    for (; i < count; ++i) to[i] = float_to_f16(src[i]);
}

void narrow_bf16(const float* src, void* dst, int64_t count) {
    auto* to = static_cast<uint16_t*>(dst);
    int64_t i = 0;
    for (; i + 2 * W <= count; i += 2 * W) {
        VF even, odd;
        deinterleave(tidy_nan(load<VF>(src + i)), tidy_nan(load<VF>(src + i + W)), &even, &odd);
        store(to + i, pack_bf16(even, odd));
    }
    for (; i < count; ++i) to[i] = float_to_bf16(tidy_nan(src[i]));
}

}  // namespace

const RopeKernels& NPU_ROPE_OF_ISA(rope_kernels, NPU_ROPE_ISA)() {
    // dtype order: float32, float16, bfloat16, float64
    static const RopeKernels set = {
        table_f32,
        table_f64,
        step_table,
        reorder,
        {{kNatural, kNatural, kEvenOdd, kNatural}, {kCrossed, kCrossed, kNatural, kNatural}},
        {{rotate<F32, HalfStep<F32>, kHalf, false>, rotate<F16, HalfStep<F16>, kHalf, false>,
          rotate<Bf16, Bf16HalfStep, kHalf, false>, rotate_f64<kHalf>},
         {rotate<F32, InterleavedStep<F32>, kInterleaved, true>, rotate<F16, InterleavedStep<F16>, kInterleaved, true>,
          rotate<Bf16, Bf16InterleavedStep, kInterleaved, false>, rotate_f64<kInterleaved>}},
        {{rotate_half_by_lanes<F32>, rotate_half_by_lanes<F16>, rotate_half_by_lanes<Bf16>, rotate_f64_by_lanes<kHalf>},
         {rotate_interleaved_by_lanes<F32>, rotate_interleaved_by_lanes<F16>, rotate_interleaved_by_lanes<Bf16>,
          rotate_f64_by_lanes<kInterleaved>}},
        {nullptr, narrow_f16, narrow_bf16, nullptr},
        {widen<F32>, widen<F16>, widen<Bf16>, nullptr},
    };
    return set;
}

}  // namespace npu_rope
