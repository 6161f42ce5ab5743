// Conversions of one value, in every round mode. round_float and clamp_to have no branches, so that compilers vectorise
// loops over them; the others work bit by bit.
#pragma once

#include <limits>

#include "ascendc/arithmetic.h"

namespace ascend_sim {

using AscendC::RoundMode;

// Rounds a number of units and a remainder, which is less than a unit, to `units` or `units` + 1.
inline uint64_t round_units(uint64_t units, uint64_t remainder, uint64_t half_unit, bool negative, RoundMode mode) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return units + (negative && remainder);
        case RoundMode::CAST_CEIL:
            return units + (!negative && remainder);
        case RoundMode::CAST_ROUND:
            return units + (remainder >= half_unit);
        case RoundMode::CAST_TRUNC:
            return units;
        case RoundMode::CAST_ODD:
            return units | (remainder != 0);
        default:
            return units + (remainder > half_unit || (remainder == half_unit && (units & 1)));
    }
}

// float to binary16 bits. Overflow gives infinity or the largest value, depending on the mode. The bits
// 0x7c00 are infinity, 0x7e00 a NaN and 0x7bff the largest value.
inline uint16_t float_to_half(float value, RoundMode mode) {
    const uint32_t raw = bits<uint32_t>(value), magnitude = raw & 0x7fffffff;
    const bool negative = raw >> 31;
    const uint16_t sign = negative ? 0x8000 : 0;
    if (magnitude > 0x7f800000) return sign | 0x7e00;
    if (magnitude == 0x7f800000) return sign | 0x7c00;
    if (magnitude >= 0x47800000)  // 65536 and more: above the largest value by more than half a unit
        return sign | uint16_t(round_units(0x7bff, 3, 2, negative, mode));
    const bool is_normal = magnitude >= 0x38800000;  // 2^-14
    if (is_normal) {
        const uint32_t rebiased = magnitude - (112u << 23);  // half's exponent has another bias
        return sign | uint16_t(round_units(rebiased >> 13, rebiased & 0x1fff, 0x1000, negative, mode));
    }
    const uint32_t exponent = magnitude >> 23;
    const uint64_t mantissa = (magnitude & 0x7fffff) | (exponent ? 0x800000u : 0u);
    const uint32_t shift = 126 - (exponent ? exponent : 1);  // the last bit has the value 2^-24
    if (shift > 40) return sign | uint16_t(round_units(0, mantissa != 0, 2, negative, mode));
    return sign | uint16_t(round_units(mantissa >> shift, mantissa & ((1ull << shift) - 1), 1ull << (shift - 1),
                                       negative, mode));
}

inline uint16_t float_to_bfloat16(float value, RoundMode mode) {
    const uint32_t raw = bits<uint32_t>(value), magnitude = raw & 0x7fffffff;
    const uint16_t sign = uint16_t(raw >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return uint16_t(raw >> 16 | 0x40);
    return sign | uint16_t(round_units(magnitude >> 16, magnitude & 0xffff, 0x8000, raw >> 31, mode));
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
    const float rounded = float(magnitude) * float(unit);
    return negative ? -rounded : rounded;
}

// Rounds to an integral float, exactly for every finite value and without branches. Adding and subtracting 2^23 rounds
// to nearest even; the other modes correct this result by 1.
template <RoundMode mode>
inline float round_float(float value) {
    const int32_t raw = bits<int32_t>(value), sign = int32_t(uint32_t(raw) & 0x80000000u);
    const float magnitude = bits<float>(raw & 0x7fffffff);
    const float nearest = (magnitude + 0x1p23f) - 0x1p23f;
    // 1.0f (0x3f800000) if the condition holds, else 0.
    auto one_if = [](bool condition) { return bits<float>(0x3f800000 & -int32_t(condition)); };
    float rounded = nearest;
    if constexpr (mode == RoundMode::CAST_TRUNC || mode == RoundMode::CAST_ROUND) {
        rounded -= one_if(nearest > magnitude);
        if constexpr (mode == RoundMode::CAST_ROUND) rounded += one_if(magnitude - rounded >= 0.5f);
    } else if constexpr (mode == RoundMode::CAST_FLOOR) {  // rounds a negative number away from 0
        rounded += one_if((raw < 0) & (nearest < magnitude)) - one_if((raw >= 0) & (nearest > magnitude));
    } else if constexpr (mode == RoundMode::CAST_CEIL) {
        rounded += one_if((raw >= 0) & (nearest < magnitude)) - one_if((raw < 0) & (nearest > magnitude));
    }
    // Larger values are integers already; infinities and NaN stay.
    return bits<float>(pick(magnitude < 0x1p23f, bits<int32_t>(rounded), raw & 0x7fffffff) | sign);
}

// Converts an integral float to an integer: values outside its range are clamped, NaN gives 0.
template <class Integer>
inline Integer clamp_to(float value) {
    using Limits = std::numeric_limits<Integer>;
    constexpr float kTooLarge = sizeof(Integer) == 8 ? 0x1p63f : float(uint64_t(Limits::max()) + 1);
    constexpr float kLowest = float(Limits::min());
    const bool is_too_large = value >= kTooLarge, is_inside = (value >= kLowest) & (value < kTooLarge);
    const float inside_or_zero = bits<float>(bits<int32_t>(value) & -int32_t(is_inside));
    if constexpr (sizeof(Integer) == 8) {
        const Integer low_or_nan = value < kLowest ? Limits::min() : Integer(inside_or_zero);
        return is_too_large ? Limits::max() : low_or_nan;
    } else {
        const int32_t converted = pick(value < kLowest, int32_t(Limits::min()), int32_t(inside_or_zero));
        return Integer(pick(is_too_large, int32_t(Limits::max()), converted));
    }
}

template <class To, class From>
inline To clamp_integer(From value) {
    using Limits = std::numeric_limits<To>;
    if constexpr (sizeof(To) >= sizeof(From)) return To(value);
    return value > From(Limits::max()) ? Limits::max() : value < From(Limits::min()) ? Limits::min() : To(value);
}

// Calls use(std::integral_constant<RoundMode, mode>), so that the mode is a constant in the loop of `use`.
template <class F>
void with_mode(RoundMode mode, F use) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return use(std::integral_constant<RoundMode, RoundMode::CAST_FLOOR>{});
        case RoundMode::CAST_CEIL:
            return use(std::integral_constant<RoundMode, RoundMode::CAST_CEIL>{});
        case RoundMode::CAST_ROUND:
            return use(std::integral_constant<RoundMode, RoundMode::CAST_ROUND>{});
        case RoundMode::CAST_TRUNC:
            return use(std::integral_constant<RoundMode, RoundMode::CAST_TRUNC>{});
        default:
            return use(std::integral_constant<RoundMode, RoundMode::CAST_RINT>{});
    }
}

}  // namespace ascend_sim
