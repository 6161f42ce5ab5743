// Elements as doubles, and sums of doubles with the same bits for every instruction set. Compiled for one instruction
// set, as vec.h is.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "csrc/cpu/elements.h"

namespace npu_rope {
namespace {

constexpr int kDoublesPerVector = W / 2;

// Converts W floats to two vectors of doubles, and back. The shuffles stay in registers: a load of two halves that were
// just stored would wait for the cache.
template <size_t... k>
inline void split_by_lanes(FloatVec v, DoubleVec* low, DoubleVec* high, std::index_sequence<k...>) {
    *low = to_doubles(__builtin_shufflevector(v, v, static_cast<int>(k)...));
    *high = to_doubles(__builtin_shufflevector(v, v, static_cast<int>(sizeof...(k) + k)...));
}
inline void split(FloatVec v, DoubleVec* low, DoubleVec* high) {
    split_by_lanes(v, low, high, std::make_index_sequence<kDoublesPerVector>());
}
template <size_t... k>
inline FloatVec join_by_lanes(HalfFloatVec low, HalfFloatVec high, std::index_sequence<k...>) {
    return __builtin_shufflevector(low, high, static_cast<int>(k)...);
}
inline FloatVec join(DoubleVec low, DoubleVec high) {
    return join_by_lanes(to_floats(low), to_floats(high), std::make_index_sequence<W>());
}

// Rounds to odd: keeps 16 significant bits and sets the last one if bits were lost. A further rounding to float16's 11
// or bfloat16's 8 bits then gives the result of a single rounding, because two more bits are enough (Boldo & Melquiond
// 2008). Float32 holds the result exactly from half of bfloat16's smallest subnormal to its largest number. A value
// outside that range becomes zero or infinite, with two roundings as with one.
inline DoubleVec round_to_odd(DoubleVec v) {
    constexpr int64_t kLastBit = int64_t{1} << (53 - 16), kLostBits = kLastBit - 1;  // a double has 53 bits
    Int64Vec bits = (Int64Vec)v, is_inexact = (bits & kLostBits) != 0;
    return (DoubleVec)((bits & ~kLostBits) | (is_inexact & kLastBit));
}

// Whether any element is a NaN, or has no bits of the mask.
inline bool any_nan_or_without(FloatVec v, uint32_t mask) {
#if NPU_ROPE_VECTOR_FLOATS == 16
    return (_mm512_testn_epi32_mask((__m512i)v, _mm512_set1_epi32(static_cast<int>(mask))) |
            _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q)) != 0;
#else
    const Uint32Vec found = (Uint32Vec)((as_bits(v) & mask) == 0) | (Uint32Vec)(v != v);
#if NPU_ROPE_VECTOR_FLOATS == 8
    return _mm256_movemask_ps((__m256)found) != 0;
#elif defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t)found) != 0;
#else
    return (found[0] | found[1] | found[2] | found[3]) != 0;
#endif
#endif
}

// Whether all elements are finite.
inline bool all_finite(FloatVec v) {
    constexpr uint32_t kExponent = 0x7f800000;
    return !any_nan_or_without(as_float(~as_bits(v) & kExponent), kExponent);
}

// Converts W elements of a type to two vectors of doubles, and back.
template <typename Element>
struct AsDoubles {
    using T = typename Element::T;
    // The bits of a float32 that are zero in every tie between two numbers of the type.
    static constexpr uint32_t kBelowTies = std::is_same<Element, F16>::value ? 0xfff : 0x7fff;
    static void load_doubles(const T* p, DoubleVec* low, DoubleVec* high) { split(Element::load_vector(p), low, high); }
    // Rounds once. float32 has all ties of the type, so a rounding to float32 first changes no result, unless it gives
    // a tie. round_to_odd() is slower.
    template <bool kStream = false>
    static void store_doubles(T* p, DoubleVec low, DoubleVec high) {
        FloatVec v = join(low, high);
        if (__builtin_expect(any_nan_or_without(v, kBelowTies), 0))
            v = with_bf16_nan(join(round_to_odd(low), round_to_odd(high)));
        Element::template store_vector<kStream>(p, v);
    }
};
template <>
struct AsDoubles<F32> {
    using T = float;
    static void load_doubles(const T* p, DoubleVec* low, DoubleVec* high) {
        *low = to_doubles(load<HalfFloatVec>(p));
        *high = to_doubles(load<HalfFloatVec>(p + kDoublesPerVector));
    }
    template <bool kStream = false>
    static void store_doubles(T* p, DoubleVec low, DoubleVec high) {
        if constexpr (kStream) return stream(p, join(low, high));
        store(p, to_floats(low));
        store(p + kDoublesPerVector, to_floats(high));
    }
};
struct F64 {};
template <>
struct AsDoubles<F64> {
    using T = double;
    static void load_doubles(const T* p, DoubleVec* low, DoubleVec* high) {
        *low = load<DoubleVec>(p), *high = load<DoubleVec>(p + kDoublesPerVector);
    }
    static void store_doubles(T* p, DoubleVec low, DoubleVec high) {
        store(p, low), store(p + kDoublesPerVector, high);
    }
};

template <int kSize>
struct DoublesOf {
    typedef double Vec __attribute__((vector_size(8 * kSize)));
};

// Adds the elements of a vector: the upper half to the lower half, until one number remains.
template <int kSize>
inline double sum_elements(typename DoublesOf<kSize>::Vec v) {
    if constexpr (kSize == 2) {
        return v[0] + v[1];
    } else {
        typename DoublesOf<kSize / 2>::Vec halves[2];
        std::memcpy(halves, &v, sizeof v);
        return sum_elements<kSize / 2>(halves[0] + halves[1]);
    }
}

// Adds the elements of several vectors in the same way. kVectors is a power of two.
template <int kVectors>
inline double sum_vectors(DoubleVec (&sums)[kVectors]) {
    for (int n = kVectors / 2; n > 0; n /= 2)
        for (int k = 0; k < n; ++k) sums[k] += sums[k + n];
    return sum_elements<kDoublesPerVector>(sums[0]);
}

// Floats that are added at a time, on every instruction set: one vector of AVX-512, or kParts narrower ones.
constexpr int kLanes = 16, kParts = kLanes / W;

// Adds the sums of groups in double. Four float32 accumulators of kLanes floats add the squares or products of a group,
// and float32 additions join them.
struct GroupSums {
    DoubleVec sums[2 * kParts] = {};
    double total() { return sum_vectors(sums); }
    // Adds a group's floats from lane part * W on.
    void add(int part, FloatVec group) {
        DoubleVec low, high;
        split(group, &low, &high);
        sums[2 * part] += low, sums[2 * part + 1] += high;
    }
    void add(int part, const FloatVec (&accumulators)[4]) {
        add(part, (accumulators[0] + accumulators[1]) + (accumulators[2] + accumulators[3]));
    }
};

}  // namespace
}  // namespace npu_rope
