// Vectors of W = NPU_ROPE_VECTOR_FLOATS floats, by the compiler's vector extension, and conversions of 16-bit types.
// Only files that are compiled once per instruction set include this file. All functions have internal linkage, so that
// the linker cannot merge functions of two instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#include "csrc/cpu/soft_fma.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef NPU_ROPE_VECTOR_FLOATS
#error "NPU_ROPE_VECTOR_FLOATS is not defined: only files compiled once per instruction set include this header"
#endif

namespace npu_rope {
namespace {

constexpr int W = NPU_ROPE_VECTOR_FLOATS;

typedef float FloatVec __attribute__((vector_size(4 * W)));
typedef uint32_t Uint32Vec __attribute__((vector_size(4 * W)));
typedef uint16_t Uint16Vec __attribute__((vector_size(2 * W)));
typedef double DoubleVec __attribute__((vector_size(4 * W)));    // W / 2 doubles
typedef int64_t Int64Vec __attribute__((vector_size(4 * W)));    // W / 2 integers, such as the bits of a DoubleVec
typedef float HalfFloatVec __attribute__((vector_size(2 * W)));  // W / 2 floats

template <typename V>
inline V load(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <typename V>
inline void store(void* p, V v) {
    std::memcpy(p, &v, sizeof v);
}

// Stores past the caches, for output that is too large for them. Without an instruction for that, it calls store().
// p must be aligned to the vector's size or to 32 bytes, whichever is smaller. A 64-byte vector is stored in two halves
// if p is not aligned to 64 bytes. The caller needs a fence before another thread reads.
template <typename V>
inline void stream(void* p, V v) {
#if defined(__AVX512F__)
    if constexpr (sizeof v == 64) {
        if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % 64 == 0, 1))  // as torch's memory is
            return _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)v);
        auto* halves = static_cast<__m256i*>(p);
        _mm256_stream_si256(halves, _mm512_castsi512_si256((__m512i)v));
        return _mm256_stream_si256(halves + 1, _mm512_extracti64x4_epi64((__m512i)v, 1));
    }
#endif
#if defined(__AVX__)
    if constexpr (sizeof v == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)v);
#endif
#if defined(__SSE2__)
    if constexpr (sizeof v == 16) return _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)v);
#endif
    store(p, v);
}
// Calls stream() if kStream, otherwise store().
template <bool kStream, typename V>
inline void put(void* p, V v) {
    if constexpr (kStream)
        stream(p, v);
    else
        store(p, v);
}

constexpr int64_t kCacheLineBytes = 64;

// Prefetches the cache lines of a range. Any address is valid.
inline void prefetch_bytes(const char* p, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(p + at);
}

// Copies bytes from x to y, which do not overlap. The last vector may overlap the vector before it.
template <bool kStream>
inline void copy_bytes(char* y, const char* x, int64_t bytes) {
    constexpr int64_t kVectorBytes = sizeof(FloatVec);
    int64_t at = 0;
    for (; at + kVectorBytes <= bytes; at += kVectorBytes) put<kStream>(y + at, load<FloatVec>(x + at));
    if (at == bytes) return;
    if (bytes >= kVectorBytes)
        store(y + bytes - kVectorBytes, load<FloatVec>(x + bytes - kVectorBytes));
    else
        std::memcpy(y, x, static_cast<size_t>(bytes));
}

// Return a * b + c, rounded once on every instruction set. NpuRopeOp.cmake disables contraction, so plain expressions
// round each product. The product of floats must be exact, or negligible beside c: then two roundings equal one.
inline FloatVec mul_add(FloatVec a, FloatVec b, FloatVec c) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (FloatVec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (FloatVec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (FloatVec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}
inline DoubleVec mul_add(DoubleVec a, DoubleVec b, DoubleVec c) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (DoubleVec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (DoubleVec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    return (DoubleVec)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#elif defined(__x86_64__)
    return soft_fma<DoubleVec, Int64Vec>(a, b, c);
#else
    return DoubleVec{__builtin_fma(a[0], b[0], c[0]), __builtin_fma(a[1], b[1], c[1])};  // an instruction, or libm's
#endif
}

inline FloatVec as_float(Uint32Vec v) { return (FloatVec)v; }
inline Uint32Vec as_bits(FloatVec v) { return (Uint32Vec)v; }

// Conversions of floats to doubles and back. gcc 12 would convert vectors of 4 and 8 elements in two halves.
inline DoubleVec to_doubles(HalfFloatVec v) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (DoubleVec)_mm512_cvtps_pd((__m256)v);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (DoubleVec)_mm256_cvtps_pd((__m128)v);
#else
    return __builtin_convertvector(v, DoubleVec);
#endif
}
inline HalfFloatVec to_floats(DoubleVec v) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (HalfFloatVec)_mm512_cvtpd_ps((__m512d)v);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (HalfFloatVec)_mm256_cvtpd_ps((__m256d)v);
#else
    return __builtin_convertvector(v, HalfFloatVec);
#endif
}

// (v0 v1 v2 v3 ...) -> (v1 v0 v3 v2 ...)
inline FloatVec swap_pairs(FloatVec v) {
#if NPU_ROPE_VECTOR_FLOATS == 4
    return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#endif
}

inline DoubleVec square_root(DoubleVec v) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (DoubleVec)_mm512_sqrt_pd((__m512d)v);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (DoubleVec)_mm256_sqrt_pd((__m256d)v);
#elif defined(__aarch64__)
    return (DoubleVec)vsqrtq_f64((float64x2_t)v);
#elif defined(__SSE2__)
    return (DoubleVec)_mm_sqrt_pd((__m128d)v);
#else
    return DoubleVec{__builtin_sqrt(v[0]), __builtin_sqrt(v[1])};
#endif
}

// Rounds to the nearest integer, ties to even.
inline DoubleVec round_to_even(DoubleVec t) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (DoubleVec)_mm512_roundscale_pd((__m512d)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (DoubleVec)_mm256_round_pd((__m256d)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
    return (DoubleVec)vrndnq_f64((float64x2_t)t);
#else
    // magic is 2^52 or, if t is negative, -2^52. The last bit of the significand of t + magic has the value 1, so the
    // addition rounds t to an integer. If |t| >= 2^52, t itself is an integer.
    Int64Vec magic_bits = ((Int64Vec)t & INT64_MIN) | (Int64Vec)(DoubleVec{} + 0x1p52);
    DoubleVec magic = (DoubleVec)magic_bits;
    DoubleVec rounded = (t + magic) - magic;
    Int64Vec small = ((DoubleVec)((Int64Vec)t & INT64_MAX)) < (DoubleVec{} + 0x1p52);
    return (DoubleVec)(((Int64Vec)rounded & small) | ((Int64Vec)t & ~small));
#endif
}

// (a0 a1 ...), (b0 b1 ...) -> (a0 b0 a1 b1 ...), as two vectors: low, then high.
inline void interleave(FloatVec a, FloatVec b, FloatVec* low, FloatVec* high) {
#if NPU_ROPE_VECTOR_FLOATS == 4
    *low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    *high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    *low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    *low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#endif
}

// The inverse of interleave: a is the low vector, b the high one.
inline void deinterleave(FloatVec a, FloatVec b, FloatVec* even, FloatVec* odd) {
#if NPU_ROPE_VECTOR_FLOATS == 4
    *even = __builtin_shufflevector(a, b, 0, 2, 4, 6);
    *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#endif
}

// Bits of a float32: infinity, the sign, and the bit that is set in quiet NaNs.
constexpr uint32_t kFloatInfinity = 0x7f800000, kFloatSign = 0x80000000, kQuietNanBit = 0x00400000;

// ---- float16: IEEE binary16 held in uint16_t -------------------------------------------------

inline float f16_to_float(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#elif defined(__aarch64__)
    __fp16 f;
    std::memcpy(&f, &h, sizeof f);
    return f;
#else
    uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff, bits;
    if (exponent == 31) {
        bits = sign | kFloatInfinity | (mantissa << 13) | (mantissa ? kQuietNanBit : 0);
    } else if (exponent) {
        bits = sign | ((exponent + 127 - 15) << 23) | (mantissa << 13);  // 127 and 15: the types' exponent biases
    } else {
        float magnitude = float(mantissa) * 0x1p-24f;  // zero and subnormals: exact
        std::memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
#endif
}

inline uint16_t float_to_f16(float f) {
#if defined(__F16C__)
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
    __fp16 h = f;
    uint16_t bits;
    std::memcpy(&bits, &h, sizeof bits);
    return bits;
#else
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & ~kFloatSign;
    if (magnitude > kFloatInfinity) return uint16_t(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));  // a quiet NaN
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00);  // from 65520 on: rounds to infinity
    if (magnitude < 0x38800000u) {  // subnormal, below 2^-14: adding 0.5 rounds to a multiple of its last bit, 2^-24
        float shifted;
        std::memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        uint32_t shifted_bits;
        std::memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
        return uint16_t(sign | (shifted_bits - 0x3f000000u));  // minus the bits of 0.5
    }
    // Changes the exponent's bias from 127 to 15 and rounds the lower 13 bits away, ties to even.
    uint32_t is_odd = (magnitude >> 13) & 1;
    return uint16_t(sign | ((magnitude - ((127 - 15) << 23) + 0xfff + is_odd) >> 13));
#endif
}

inline FloatVec load_f16(const uint16_t* p) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (FloatVec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return (FloatVec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__aarch64__)
    return (FloatVec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    return FloatVec{f16_to_float(p[0]), f16_to_float(p[1]), f16_to_float(p[2]), f16_to_float(p[3])};
#endif
}

template <bool kStream>
inline void store_f16(uint16_t* p, FloatVec v) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    put<kStream>(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif NPU_ROPE_VECTOR_FLOATS == 8
    put<kStream>(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#else
    for (int i = 0; i < 4; ++i) p[i] = float_to_f16(v[i]);
#endif
}

// ---- bfloat16: the upper half of a float32 -----------------------------------------------------

inline float bf16_to_float(uint16_t h) {
    uint32_t bits = uint32_t(h) << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
}

// Rounds to nearest, ties to even. The upper half of each 32-bit word is the result, the lower half is undefined. The
// lower half of a NaN must be zero, else a carry could reach its sign. It is zero in NaNs that were converted from
// bfloat16, in the machine's default NaN and in results of with_bf16_nan().
inline Uint32Vec round_bf16(FloatVec v) {
    Uint32Vec bits = as_bits(v);
    return bits + ((bits >> 16) & 1) + 0x7fff;
}

#if NPU_ROPE_VECTOR_FLOATS >= 8
typedef uint16_t Halves __attribute__((vector_size(4 * W)));  // of 32-bit words

// Returns words with the lower halves of `low` and the upper halves of `high`.
inline Halves join_halves(Uint32Vec low, Uint32Vec high) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (Halves)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)low, (__m512i)high);
#else
    return (Halves)_mm256_blend_epi16((__m256i)low, (__m256i)high, 0xaa);
#endif
}

// Returns (a + b + 1) / 2, without overflow.
inline Halves average(Halves a, Halves b) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (Halves)_mm512_avg_epu16((__m512i)a, (__m512i)b);
#else
    return (Halves)_mm256_avg_epu16((__m256i)a, (__m256i)b);
#endif
}
#endif

// Rounds two vectors as round_bf16() does, and packs them into 32-bit words: `even` into the lower halves, `odd` into
// the upper halves.
inline Uint32Vec pack_bf16_portable(FloatVec even, FloatVec odd) {
#if NPU_ROPE_VECTOR_FLOATS >= 8
    // All halves are rounded at once. The carry of lower + (upper & 1) + 0x7fff is bit 15 of an average.
    const Halves upper = join_halves(as_bits(even) >> 16, as_bits(odd));
    const Halves lower = join_halves(as_bits(even), as_bits(odd) << 16);
    return (Uint32Vec)(upper + (average(lower, (upper & 1) | 0x7ffe) >> 15));
#else
    return (round_bf16(even) >> 16) | (round_bf16(odd) & 0xffff0000u);
#endif
}

#if NPU_ROPE_VECTOR_FLOATS == 16 && defined(__AVX512BF16__)
// The instruction VCVTNE2PS2BF16 rounds in the same way at a third of the cost, but treats subnormals as zero. If a
// result is zero, its input may have been subnormal, so pack_bf16_portable() then computes all results.
struct FlushedBf16 {
    __m512i even_then_odd;
    __mmask32 zeros;
    FlushedBf16(FloatVec even, FloatVec odd)
        : even_then_odd((__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even)),
          zeros(_mm512_testn_epi16_mask(even_then_odd, _mm512_set1_epi16(0x7fff))) {}
    Uint32Vec interleaved() const {
        const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                               6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        return (Uint32Vec)_mm512_permutexvar_epi16(order, even_then_odd);
    }
};
inline Uint32Vec pack_bf16(FloatVec even, FloatVec odd) {
    const FlushedBf16 flushed(even, odd);
    return __builtin_expect(flushed.zeros != 0, 0) ? pack_bf16_portable(even, odd) : flushed.interleaved();
}
// Packs into two vectors, with one branch.
inline void pack_bf16_twice(FloatVec even0, FloatVec odd0, FloatVec even1, FloatVec odd1, Uint32Vec* packed0,
                            Uint32Vec* packed1) {
    const FlushedBf16 first(even0, odd0), second(even1, odd1);
    *packed0 = first.interleaved();
    *packed1 = second.interleaved();
    if (__builtin_expect(!_kortestz_mask32_u8(first.zeros, second.zeros), 0)) {
        *packed0 = pack_bf16_portable(even0, odd0);
        *packed1 = pack_bf16_portable(even1, odd1);
    }
}
#else
inline Uint32Vec pack_bf16(FloatVec even, FloatVec odd) { return pack_bf16_portable(even, odd); }
inline void pack_bf16_twice(FloatVec even0, FloatVec odd0, FloatVec even1, FloatVec odd1, Uint32Vec* packed0,
                            Uint32Vec* packed1) {
    *packed0 = pack_bf16(even0, odd0);
    *packed1 = pack_bf16(even1, odd1);
}
#endif

inline FloatVec load_bf16(const uint16_t* p) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    // gcc 12 would convert vectors of 8 and 16 elements in two halves.
    return as_float((Uint32Vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))) << 16);
#elif NPU_ROPE_VECTOR_FLOATS == 8
    return as_float((Uint32Vec)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))) << 16);
#else
    return as_float(__builtin_convertvector(load<Uint16Vec>(p), Uint32Vec) << 16);
#endif
}
template <bool kStream>
inline void store_bf16(uint16_t* p, FloatVec v) {
    put<kStream>(p, __builtin_convertvector(round_bf16(v) >> 16, Uint16Vec));
}

// Replaces each NaN by a quiet NaN that bfloat16 holds exactly, as round_bf16() requires. Other values do not change.
inline FloatVec with_bf16_nan(FloatVec v) {
    Uint32Vec bits = as_bits(v), is_nan = (Uint32Vec)(v != v);
    return as_float((bits & ~is_nan) | (((bits & 0xffff0000u) | kQuietNanBit) & is_nan));
}
inline float with_bf16_nan(float f) {
    FloatVec v = {};
    v[0] = f;
    return with_bf16_nan(v)[0];
}

// Rounds as round_bf16() does, with the same condition for NaNs.
inline uint16_t float_to_bf16(float f) {
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return uint16_t((bits + ((bits >> 16) & 1) + 0x7fff) >> 16);
}

}  // namespace
}  // namespace npu_rope
