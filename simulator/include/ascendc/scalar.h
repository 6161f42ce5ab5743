// Functions of the scalar unit: conversions of one value, counts of bits, and the limits of types.
//
// Rules: the scalar Cast converts float to half (CAST_ODD) and to int32 (CAST_ROUND, CAST_CEIL, CAST_FLOOR, CAST_RINT).
// Except on Ascend310P, it also converts float to bfloat16 (to nearest even) and back. NumericLimits is on Ascend950
// only.
// Cost: none, like all code of the scalar unit itself.
// Sources: the pages of the section on scalar computation, NumericLimits.
#pragma once

#include "ascendc/convert.h"
#include "ascendc/duplicate.h"

namespace AscendC {

template <class T, class U, RoundMode roundMode>
U Cast(T valueIn) {
    constexpr bool kToHalf = std::is_same_v<U, half> && roundMode == RoundMode::CAST_ODD;
    constexpr bool kToInt =
        std::is_same_v<U, int32_t> && (roundMode == RoundMode::CAST_RINT || roundMode == RoundMode::CAST_FLOOR ||
                                       roundMode == RoundMode::CAST_CEIL || roundMode == RoundMode::CAST_ROUND);
    static_assert(std::is_same_v<T, float> && (kToHalf || kToInt),
                  "Cast of a scalar: float to half with CAST_ODD, to int32_t with CAST_ROUND, CEIL, FLOOR or RINT");
    if constexpr (kToHalf)
        return ascend_sim::from_raw_bits<half>(ascend_sim::float_to_half(valueIn, roundMode));
    else
        return ascend_sim::clamp_to<int32_t>(ascend_sim::round_float<roundMode>(valueIn));
}
template <class T, class U, RoundMode roundMode>
U ScalarCast(T valueIn) {
    return Cast<T, U, roundMode>(valueIn);
}

#if __CCE_AICORE__ != 200
// Only these two types: an integer literal does not compile.
template <class T, class = std::enable_if_t<ascend_sim::kIsOneOf<T, float, bfloat16_t>>>
constexpr auto Cast(const T& value) {
    return std::conditional_t<std::is_same_v<T, float>, bfloat16_t, float>(value);
}
constexpr float ToFloat(const bfloat16_t& value) { return float(value); }
constexpr bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }
#endif

template <int countValue>
constexpr int64_t GetBitCount(uint64_t valueIn) {
    static_assert(countValue == 0 || countValue == 1, "GetBitCount counts zeros or ones");
    return __builtin_popcountll(countValue ? valueIn : ~valueIn);
}
constexpr int64_t CountLeadingZero(uint64_t valueIn) { return valueIn ? __builtin_clzll(valueIn) : 64; }
// The number of bits after the sign bit that equal it; -1 for the values 0 and -1.
constexpr int64_t CountBitsCntSameAsSignBit(int64_t valueIn) {
    return valueIn == 0 || valueIn == -1 ? -1 : __builtin_clrsbll(valueIn);
}
// The position of the lowest bit that equals countValue, or -1.
template <int countValue>
constexpr int64_t GetSFFValue(uint64_t valueIn) {
    static_assert(countValue == 0 || countValue == 1, "GetSFFValue looks for a zero or a one");
    const uint64_t searched = countValue ? valueIn : ~valueIn;
    return searched ? __builtin_ctzll(searched) : -1;
}
// Older names of the same functions.
template <int countValue>
constexpr int64_t ScalarGetCountOfValue(uint64_t valueIn) {
    return GetBitCount<countValue>(valueIn);
}
constexpr int64_t ScalarCountLeadingZero(uint64_t valueIn) { return CountLeadingZero(valueIn); }
template <int countValue>
constexpr int64_t ScalarGetSFFValue(uint64_t valueIn) {
    return GetSFFValue<countValue>(valueIn);
}

}  // namespace AscendC

namespace ascend_sim {

// The limits of a floating-point type, from the bits of its infinity and its quiet NaN. `min` is the smallest normal
// number.
template <class T, class Bits, Bits infinity_bits, Bits quiet_nan_bits>
struct FloatLimits {
    static constexpr T from_bits(Bits raw) { return __builtin_bit_cast(T, raw); }
    static constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1)),
                          kQuietBit = Bits(quiet_nan_bits ^ infinity_bits);
    static constexpr T max = from_bits(Bits(infinity_bits - 1)), lowest = from_bits(Bits((infinity_bits - 1) | kSign)),
                       min = from_bits(Bits(kQuietBit << 1)), infinity = from_bits(infinity_bits),
                       negative_infinity = from_bits(Bits(infinity_bits | kSign)),
                       quiet_nan = from_bits(quiet_nan_bits),
                       signaling_nan = from_bits(Bits(infinity_bits | kQuietBit >> 1)),
                       smallest_subnormal = from_bits(1);
};
// The limits of an integer type.
template <class T>
struct Limits {
    static constexpr T max = std::numeric_limits<T>::max(), lowest = std::numeric_limits<T>::lowest(),
                       min = std::numeric_limits<T>::min();
};
template <>
struct Limits<float> : FloatLimits<float, uint32_t, 0x7f800000, 0x7fc00000> {};
template <>
struct Limits<half> : FloatLimits<half, uint16_t, 0x7c00, 0x7e00> {};
#if __CCE_AICORE__ != 200
template <>
struct Limits<bfloat16_t> : FloatLimits<bfloat16_t, uint16_t, 0x7f80, 0x7fc0> {};
#endif

}  // namespace ascend_sim

namespace AscendC {

// Each limit as a value, and as a function that duplicates the value to a tensor.
#define ASCEND_SIM_LIMIT(Name, member)                                             \
    static constexpr T Name() { return ascend_sim::Limits<T>::member; }            \
    static void Name(const LocalTensor<T>& dst, uint32_t count, ASCEND_SIM_SITE) { \
        Duplicate(dst, Name(), int32_t(count), site);                              \
    }
template <class T>
class NumericLimits {
    ASCEND_SIM_NEEDS(NumericLimits, T);

public:
    ASCEND_SIM_LIMIT(Max, max)
    ASCEND_SIM_LIMIT(Lowest, lowest)
    ASCEND_SIM_LIMIT(Min, min)
    ASCEND_SIM_LIMIT(Infinity, infinity)
    ASCEND_SIM_LIMIT(NegativeInfinity, negative_infinity)
    ASCEND_SIM_LIMIT(QuietNaN, quiet_nan)
    ASCEND_SIM_LIMIT(SignalingNaN, signaling_nan)
    ASCEND_SIM_LIMIT(DeNormMin, smallest_subnormal)
};

}  // namespace AscendC
