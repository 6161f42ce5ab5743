// Conversions of one value, in every round mode. The fast ones are branch-free code that compilers
// vectorise; the others work bit by bit.
#pragma once

#include <limits>

#include "ascendc/arithmetic.h"

namespace ascend_sim {

using AscendC::RoundMode;

// Rounds q units and a remainder (`half` is half a unit) to q or q + 1.
inline uint64_t round_units(uint64_t q, uint64_t remainder, uint64_t half, bool negative, RoundMode mode) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return q + (negative && remainder);
        case RoundMode::CAST_CEIL:
            return q + (!negative && remainder);
        case RoundMode::CAST_ROUND:
            return q + (remainder >= half);
        case RoundMode::CAST_TRUNC:
            return q;
        case RoundMode::CAST_ODD:
            return q | (remainder != 0);
        default:
            return q + (remainder > half || (remainder == half && (q & 1)));
    }
}

// float to binary16 bits. Overflow gives infinity or the largest value, depending on the mode.
inline uint16_t float_to_half(float f, RoundMode mode) {
    const uint32_t u = bits<uint32_t>(f), magnitude = u & 0x7fffffff;
    const bool negative = u >> 31;
    const uint16_t sign = negative ? 0x8000 : 0;
    if (magnitude > 0x7f800000) return sign | 0x7e00;
    if (magnitude == 0x7f800000) return sign | 0x7c00;
    if (magnitude >= 0x47800000)  // 65536 and more: above half a unit beyond the largest
        return sign | uint16_t(round_units(0x7bff, 3, 2, negative, mode));
    if (magnitude >= 0x38800000) {  // normal
        const uint32_t rebiased = magnitude - (112u << 23);
        return sign | uint16_t(round_units(rebiased >> 13, rebiased & 0x1fff, 0x1000, negative, mode));
    }
    const uint32_t exponent = magnitude >> 23;
    const uint64_t mantissa = (magnitude & 0x7fffff) | (exponent ? 0x800000u : 0u);
    const uint32_t shift = 126 - (exponent ? exponent : 1);  // the last bit has the value 2^-24
    if (shift > 40) return sign | uint16_t(round_units(0, mantissa != 0, 2, negative, mode));
    return sign | uint16_t(round_units(mantissa >> shift, mantissa & ((1ull << shift) - 1), 1ull << (shift - 1),
                                       negative, mode));
}

inline uint16_t float_to_bfloat16(float f, RoundMode mode) {
    const uint32_t u = bits<uint32_t>(f), magnitude = u & 0x7fffffff;
    const uint16_t sign = uint16_t(u >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return uint16_t(u >> 16 | 0x40);
    return sign | uint16_t(round_units(magnitude >> 16, magnitude & 0xffff, 0x8000, u >> 31, mode));
}

inline float int_to_float(int64_t value, RoundMode mode) {
    const bool negative = value < 0;
    uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
    uint64_t unit = 1;
    if (magnitude >> 24) {
        const int shift = 40 - __builtin_clzll(magnitude);
        unit = 1ull << shift;
        magnitude = round_units(magnitude >> shift, magnitude & (unit - 1), unit / 2, negative, mode);
    }
    const float f = float(magnitude) * float(unit);
    return negative ? -f : f;
}

// Rounds to an integral float. Exact for every finite value; branch-free. Adding and subtracting 2^23 rounds
// to nearest even; the other modes correct this result by 1.
template <RoundMode mode>
inline float round_float(float f) {
    const int32_t u = bits<int32_t>(f), sign = int32_t(uint32_t(u) & 0x80000000u);
    const float a = bits<float>(u & 0x7fffffff);
    const float nearest = (a + 0x1p23f) - 0x1p23f;
    // 1.0f if the condition holds, else 0.
    auto one_if = [](bool condition) { return bits<float>(0x3f800000 & -int32_t(condition)); };
    float r = nearest;
    if constexpr (mode == RoundMode::CAST_TRUNC || mode == RoundMode::CAST_ROUND) {
        r -= one_if(nearest > a);
        if constexpr (mode == RoundMode::CAST_ROUND) r += one_if(a - r >= 0.5f);
    } else if constexpr (mode == RoundMode::CAST_FLOOR) {  // rounds a negative number away from 0
        r += one_if((u < 0) & (nearest < a)) - one_if((u >= 0) & (nearest > a));
    } else if constexpr (mode == RoundMode::CAST_CEIL) {
        r += one_if((u >= 0) & (nearest < a)) - one_if((u < 0) & (nearest > a));
    }
    // Larger values are integers already; infinities and NaN stay.
    return bits<float>(pick(a < 0x1p23f, bits<int32_t>(r), u & 0x7fffffff) | sign);
}

// An integral float to an integer: clamped, NaN gives 0.
template <class I>
inline I clamp_to(float f) {
    using Limits = std::numeric_limits<I>;
    constexpr float kPast = sizeof(I) == 8 ? 0x1p63f : float(uint64_t(Limits::max()) + 1);
    constexpr float kLow = float(Limits::min());
    const bool past = f >= kPast, inside = (f >= kLow) & (f < kPast);
    const float safe = bits<float>(bits<int32_t>(f) & -int32_t(inside));
    if constexpr (sizeof(I) == 8) {
        const I low_or_nan = f < kLow ? Limits::min() : I(safe);
        return past ? Limits::max() : low_or_nan;
    } else {
        const int32_t converted = pick(f < kLow, int32_t(Limits::min()), int32_t(safe));
        return I(pick(past, int32_t(Limits::max()), converted));
    }
}

template <class I, class J>
inline I clamp_integer(J value) {
    using Limits = std::numeric_limits<I>;
    if constexpr (sizeof(I) >= sizeof(J)) return I(value);
    return value > J(Limits::max()) ? Limits::max() : value < J(Limits::min()) ? Limits::min() : I(value);
}

// Calls f(std::integral_constant<RoundMode, mode>), so that the mode is a constant in f's loop.
template <class F>
void with_mode(RoundMode mode, F f) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return f(std::integral_constant<RoundMode, RoundMode::CAST_FLOOR>{});
        case RoundMode::CAST_CEIL:
            return f(std::integral_constant<RoundMode, RoundMode::CAST_CEIL>{});
        case RoundMode::CAST_ROUND:
            return f(std::integral_constant<RoundMode, RoundMode::CAST_ROUND>{});
        case RoundMode::CAST_TRUNC:
            return f(std::integral_constant<RoundMode, RoundMode::CAST_TRUNC>{});
        default:
            return f(std::integral_constant<RoundMode, RoundMode::CAST_RINT>{});
    }
}

}  // namespace ascend_sim
