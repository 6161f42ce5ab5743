// Cast: lanes from one type to another.
//
// Rules: the SoC determines the pairs of types (availability.h; an unsupported pair does not compile) and the
// round modes of each pair. Mask, lanes and repeats follow the wider type; each operand has its own strides.
// A result that overlaps its source is an error if a later repeat reads what an earlier one wrote. Within one repeat,
// an overlap is an error in the forms with repeats and gives a warning in a count form: Cast's page says that a wider
// result may be wrong, and the page of overlaps is about the forms with repeats. A narrower result at its source's
// address gives a warning in both, because the documents disagree: Cast's page forbids the wider one only; the page of
// overlaps requires that both cover the same bytes.
// With int4b_t, a count or a mask given as a number must be even. In a bit mask, bits 2i and 2i + 1 must be equal.
// Meaning: CAST_NONE rounds inexact results to nearest even. Integers clamp, NaN gives 0. If the core saturates, a
// result beyond the largest half or bfloat16 becomes that value. Otherwise the round mode decides between infinity and
// that value. int32 to half is a product with SetDeqScale's scale (deq.h) in every mode.
// Cost: a plain repeat of the wider type.
#pragma once

#include "ascendc/deq.h"

namespace ascend_sim {

constexpr uint32_t mode_bit(RoundMode mode) { return 1u << uint32_t(mode); }
static_assert(kCastNone == mode_bit(RoundMode::CAST_NONE) && kCastRint == mode_bit(RoundMode::CAST_RINT) &&
              kFloorToTrunc == (mode_bit(RoundMode::CAST_FLOOR) | mode_bit(RoundMode::CAST_CEIL) |
                                mode_bit(RoundMode::CAST_ROUND) | mode_bit(RoundMode::CAST_TRUNC)) &&
              kCastOdd == mode_bit(RoundMode::CAST_ODD));

// The round modes of a conversion: an OR of mode_bit().
template <class To, class From>
constexpr uint32_t round_modes() {
    return modes_of(kSocColumn, element_of<From>(), element_of<To>());
}

inline const char* mode_name(RoundMode mode) { return int(mode) < kRoundModes ? kRoundModeNames[int(mode)] : "?"; }

template <class T, class U, class F>
void convert_lanes(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, F convert) {
    const Layout layouts[2] = {layout_of(dst, lanes), layout_of(src, lanes)};
    T* const dst_data = dst.tensor.data();
    const U* src_data = src.tensor.data();
    // A repeat is read before it is written. If operands overlap partially, the source is copied first.
    const uint64_t src_bytes = extent_of(lanes, layouts[1]);
    const int64_t distance = int64_t(dst.tensor.view().addr) - src.tensor.view().addr;
    std::vector<uint8_t> source;
    if (distance != 0 && distance < int64_t(src_bytes) && -distance < int64_t(extent_of(lanes, layouts[0]))) {
        const uint8_t* const begin = reinterpret_cast<const uint8_t*>(src_data);
        source.assign(begin, begin + src_bytes);
        src_data = reinterpret_cast<const U*>(source.data());
    }
    for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&offsets)[2], uint32_t lane_count) {
        T* const to = dst_data + offsets[0] / sizeof(T);
        const U* const from = src_data + offsets[1] / sizeof(U);
        for_each_lane(lane_count, [=](size_t i) { to[i] = convert(from[i]); });
    });
}

template <class T>
T from_raw_bits(uint16_t raw) {
    T value;
    value.raw = raw;
    return value;
}

// Converts each lane.
template <class T, class U>
void cast_values(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, RoundMode mode) {
    const bool nearest = mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT, saturate = saturates();
    auto run = [&](auto convert) { convert_lanes(dst, src, lanes, convert); };
    constexpr bool kFloating = !std::is_integral_v<U>;
    if constexpr (std::is_same_v<T, float> && std::is_same_v<U, float>)
        with_mode(mode, [&](auto constant) {
            run([](float value) { return round_float<decltype(constant)::value>(value); });
        });
    else if constexpr (kFloating && std::is_same_v<T, float>)
        run([](U value) { return Arithmetic<U>::widen(value); });
    else if constexpr (std::is_same_v<T, half> && (kFloating || sizeof(U) <= 2)) {  // float holds int16 exactly
        if (nearest)
            run([=](U value) {
                return from_raw_bits<T>(clamp_half(float_to_half(float(Arithmetic<U>::widen(value))), saturate));
            });
        else
            run([=](U value) {
                return from_raw_bits<T>(clamp_half(float_to_half(float(Arithmetic<U>::widen(value)), mode), saturate));
            });
    } else if constexpr (kIsBfloat16<T>) {
        if (nearest)
            run([=](U value) {
                return from_raw_bits<T>(clamp_bfloat16(float_to_bfloat16(Arithmetic<U>::widen(value)), saturate));
            });
        else
            run([=](U value) {
                return from_raw_bits<T>(clamp_bfloat16(float_to_bfloat16(Arithmetic<U>::widen(value), mode), saturate));
            });
    } else if constexpr (kFloating)  // to an integer
        with_mode(mode, [&](auto constant) {
            run([](U value) {
                return clamp_to<T>(round_float<decltype(constant)::value>(Arithmetic<U>::widen(value)));
            });
        });
    else if constexpr (std::is_same_v<T, float>) {
        if (nearest)
            run([](U value) { return float(value); });
        else
            run([=](U value) { return int_to_float(value, mode); });
    } else
        run([](U value) { return clamp_integer<T>(value); });
}

template <class T, class U>
void cast_op(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, RoundMode mode) {
    constexpr uint32_t kModes = round_modes<T, U>();
    static_assert(kModes != 0, "Cast: this SoC does not convert these types");
    if (uint32_t(mode) > 7 || !(kModes & mode_bit(mode)))
        broken(Rule::Round01, "%s is no round mode of this SoC for these types.", mode_name(mode));
    check_source(src, lanes);
    check_overlap(dst, src, lanes, false, true);
    check_destination(dst, lanes);
    if constexpr (std::is_same_v<T, half> && std::is_same_v<U, int32_t>)
        convert_lanes(dst, src, lanes, Dequantizer());
    else
        cast_values(dst, src, lanes, mode);
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

// ---- int4b_t and half ----------------------------------------------------------------------------------

// Two adjacent halves; their int4b_t results share a byte.
struct HalfPair {
    half low, high;
};

// The lanes of pairs of halves, from the mask of single halves.
template <bool isSetMask>
Lanes pair_lanes(ConstMask mask, uint64_t repeats) {
    const MaskRegister& register_mask = mask_register();
    const uint64_t from_register[2] = {register_mask.low, register_mask.high};
    const uint64_t* bits = mask.bits;
    if (!isSetMask) {
        (void)Lanes::from_register(sizeof(half), repeats);  // checks the register
        if (register_mask.counter) return Lanes::limited(sizeof(HalfPair), register_mask.low / 2);
        bits = from_register;
    } else {
        (void)repeat_lanes<true>("Cast", sizeof(half), mask, repeats);  // checks the mask
    }
    if (isSetMask && !mask.is_bits) {
        if (mask.count % 2) broken(Rule::Count04, "the mask of int4b_t must be even.");
        return Lanes::first(sizeof(HalfPair), (mask.count < 128 ? mask.count : 128) / 2, repeats);
    }
    uint64_t pairs[2] = {0, 0};
    bool equal_in_pairs = true;
    for (uint32_t i = 0; i < 64; ++i) {
        const uint64_t pair = bits[i / 32] >> i % 32 * 2 & 3;
        equal_in_pairs = equal_in_pairs && (pair == 0 || pair == 3);
        pairs[0] |= uint64_t(pair != 0) << i;
    }
    if (!equal_in_pairs) broken(Rule::Count04, "bits 2i and 2i + 1 of a bit mask of int4b_t must be equal.");
    return Lanes::from_mask_bits(sizeof(HalfPair), pairs, repeats);
}
template <bool isSetMask>
Lanes pair_count_lanes(int64_t count) {
    if (count % 2) broken(Rule::Count04, "count of int4b_t must be even but got %lld.", static_cast<long long>(count));
    return count_lanes<isSetMask>(sizeof(HalfPair), count / 2);
}

// half to int4b_t, or int4b_t to half. The strides have the same meaning as for other types.
template <class T, class U>
void cast_int4(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& src, RoundMode mode,
               const Lanes& lanes, const AscendC::UnaryRepeatParams& params = {}) {
    constexpr bool kNarrows = kIsInt4<T>;
    using To = std::conditional_t<kNarrows, uint8_t, HalfPair>;
    using From = std::conditional_t<kNarrows, HalfPair, uint8_t>;
    constexpr uint32_t kModes = round_modes<T, U>();
    static_assert(kModes != 0, "Cast: this SoC does not convert these types");
    if (uint32_t(mode) > 7 || !(kModes & mode_bit(mode)))
        broken(Rule::Round01, "%s is no round mode of this SoC for these types.", mode_name(mode));
    const auto to_tensor = dst.template ReinterpretCast<To>();
    const auto from_tensor = src.template ReinterpretCast<From>();
    const Operand<To> to{"dst", to_tensor, params.dstBlkStride, params.dstRepStride};
    const Operand<From> from{"src", from_tensor, params.srcBlkStride, params.srcRepStride};
    check_source(from, lanes);
    check_overlap(to, from, lanes, false, true);
    check_destination(to, lanes);
    if constexpr (kNarrows)
        with_mode(mode, [&](auto constant) {
            const auto four_bits = [](half value) {
                const int8_t integer =
                    clamp_to<int8_t>(round_float<decltype(constant)::value>(half_to_float(value.raw)));
                return uint8_t((integer > 7 ? 7 : integer < -8 ? -8 : integer) & 15);
            };
            convert_lanes(to, from, lanes,
                          [=](HalfPair value) { return uint8_t(four_bits(value.low) | four_bits(value.high) << 4); });
        });
    else
        convert_lanes(to, from, lanes, [](uint8_t value) {
            return HalfPair{half(int8_t(int4b_t(value))), half(int8_t(int4b_t(value >> 4)))};
        });
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, class U>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint32_t count,
          ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Cast", site);
    if constexpr (ascend_sim::kIsInt4<T> || ascend_sim::kIsInt4<U>)
        ascend_sim::cast_int4(dst, src, roundMode, ascend_sim::pair_count_lanes<true>(count));
    else
        ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst}, ascend_sim::Operand<U>{"src", src},
                            ascend_sim::count_lanes<true>(ascend_sim::kWidest<T, U>, count), roundMode);
}
template <class T, class U, bool isSetMask = true>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, ascend_sim::ConstMask mask,
          const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Cast", site);
    if constexpr (ascend_sim::kIsInt4<T> || ascend_sim::kIsInt4<U>)
        ascend_sim::cast_int4(dst, src, roundMode, ascend_sim::pair_lanes<isSetMask>(mask, repeatTime), params);
    else
        ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
                            ascend_sim::Operand<U>{"src", src, params.srcBlkStride, params.srcRepStride},
                            ascend_sim::repeat_lanes<isSetMask>("Cast", ascend_sim::kWidest<T, U>, mask, repeatTime),
                            roundMode);
}

}  // namespace AscendC
