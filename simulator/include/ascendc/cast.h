// Cast: lanes from one type to another.
//
// Rules: the SoC determines the pairs of types (availability.h; an unsupported pair does not compile) and the
// round modes of each pair. Mask, lanes and repeats follow the wider type; each operand has its own strides.
// In place: a wider result is refused; a narrower one only warns, because Cast's page names the wider one and the page
// of overlaps allows none but the same memory. int4b_t has an even count and mask; the bits of a bit mask are equal in
// pairs. Meaning: NONE rounds inexact results to nearest even; integers clamp, NaN gives 0; half and bfloat16 beyond
// the largest value clamp if the core saturates, else become infinite or the largest value, by the mode.
// int32 to half is a product with SetDeqScale's scale (deq.h) in every mode.
// Cost: a plain repeat, of the wider type.
#pragma once

#include "ascendc/deq.h"

namespace ascend_sim {

constexpr uint32_t mode_bit(RoundMode m) { return 1u << uint32_t(m); }
static_assert(kCastNone == mode_bit(RoundMode::CAST_NONE) && kRint == mode_bit(RoundMode::CAST_RINT) &&
              kFloorToTrunc == (mode_bit(RoundMode::CAST_FLOOR) | mode_bit(RoundMode::CAST_CEIL) |
                                mode_bit(RoundMode::CAST_ROUND) | mode_bit(RoundMode::CAST_TRUNC)) &&
              kOdd == mode_bit(RoundMode::CAST_ODD));

// A set of mode_bit()s.
template <class To, class From>
constexpr uint32_t round_modes() {
    return modes_of(kCore, element_of<From>(), element_of<To>());
}

inline const char* mode_name(RoundMode m) { return int(m) < kRoundModes ? kRoundModeNames[int(m)] : "?"; }

template <class T, class U, class F>
void convert_lanes(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, F f) {
    const Layout layouts[2] = {layout_of(dst, lanes), layout_of(src, lanes)};
    T* const d = dst.tensor.data();
    const U* const s = src.tensor.data();
    for_each_run(lanes, layouts, [&](const uint32_t (&o)[2], uint32_t n) {
        T* const to = d + o[0] / sizeof(T);
        const U* const from = s + o[1] / sizeof(U);
        each_lane(n, [=](size_t i) { to[i] = f(from[i]); });
    });
}

template <class T>
T from_raw(uint16_t raw) {
    T t;
    t.raw = raw;
    return t;
}

// Converts each lane.
template <class T, class U>
void cast_values(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, RoundMode mode) {
    const bool nearest = mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT, saturate = saturates();
    auto run = [&](auto f) { convert_lanes(dst, src, lanes, f); };
    constexpr bool kFloating = !std::is_integral_v<U>;
    if constexpr (std::is_same_v<T, float> && std::is_same_v<U, float>)
        with_mode(mode, [&](auto m) { run([](float f) { return round_float<decltype(m)::value>(f); }); });
    else if constexpr (kFloating && std::is_same_v<T, float>)
        run([](U u) { return Arithmetic<U>::widen(u); });
    else if constexpr (std::is_same_v<T, half> && (kFloating || sizeof(U) <= 2)) {  // float holds int16 exactly
        if (nearest)
            run([=](U u) { return from_raw<T>(clamp_half(float_to_half(float(Arithmetic<U>::widen(u))), saturate)); });
        else
            run([=](U u) {
                return from_raw<T>(clamp_half(float_to_half(float(Arithmetic<U>::widen(u)), mode), saturate));
            });
    } else if constexpr (kIsBfloat16<T>) {
        if (nearest)
            run([=](U u) { return from_raw<T>(clamp_bfloat16(float_to_bfloat16(Arithmetic<U>::widen(u)), saturate)); });
        else
            run([=](U u) {
                return from_raw<T>(clamp_bfloat16(float_to_bfloat16(Arithmetic<U>::widen(u), mode), saturate));
            });
    } else if constexpr (kFloating)  // to an integer
        with_mode(mode, [&](auto m) {
            run([](U u) { return clamp_to<T>(round_float<decltype(m)::value>(Arithmetic<U>::widen(u))); });
        });
    else if constexpr (std::is_same_v<T, float>) {
        if (nearest)
            run([](U u) { return float(u); });
        else
            run([=](U u) { return int_to_float(u, mode); });
    } else
        run([](U u) { return clamp_integer<T>(u); });
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

// Two halves beside each other, whose results share a byte.
struct HalfPair {
    half low, high;
};

// The lanes of pairs of halves, from the mask of single ones.
template <bool isSetMask>
Lanes pair_lanes(ConstMask mask, uint64_t repeats) {
    const MaskRegister& m = mask_register();
    const uint64_t from_register[2] = {m.low, m.high};
    const uint64_t* bits = mask.bits;
    if (!isSetMask) {
        (void)Lanes::from_register(sizeof(half), repeats);  // checks the register
        if (m.counter) return Lanes::limited(sizeof(HalfPair), m.low / 2);
        bits = from_register;
    } else {
        (void)repeat_lanes<true>("Cast", sizeof(half), mask, repeats);  // checks the mask
    }
    if (isSetMask && !mask.is_bits) {
        if (mask.count % 2) broken(Rule::Count04, "the mask of int4b_t must be even.");
        return Lanes::first(sizeof(HalfPair), (mask.count < 128 ? mask.count : 128) / 2, repeats);
    }
    uint64_t pairs[2] = {0, 0};
    bool equal = true;
    for (uint32_t i = 0; i < 64; ++i) {
        const uint64_t two = bits[i / 32] >> i % 32 * 2 & 3;
        equal = equal && (two == 0 || two == 3);
        pairs[0] |= uint64_t(two != 0) << i;
    }
    if (!equal) broken(Rule::Count04, "the bits of a mask of int4b_t are equal in pairs.");
    return Lanes::bits_of(sizeof(HalfPair), pairs, repeats);
}
template <bool isSetMask>
Lanes pair_count_lanes(int64_t count) {
    if (count % 2) broken(Rule::Count04, "count of int4b_t must be even but got %lld.", static_cast<long long>(count));
    return count_lanes<isSetMask>(sizeof(HalfPair), count / 2);
}

// half to int4b_t, or int4b_t to half, with strides of both operands as of other types.
template <class T, class U>
void cast_int4(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& src, RoundMode mode,
               const Lanes& lanes, const AscendC::UnaryRepeatParams& p = {}) {
    constexpr bool kNarrows = kIsInt4<T>;
    using To = std::conditional_t<kNarrows, uint8_t, HalfPair>;
    using From = std::conditional_t<kNarrows, HalfPair, uint8_t>;
    constexpr uint32_t kModes = round_modes<T, U>();
    static_assert(kModes != 0, "Cast: this SoC does not convert these types");
    if (uint32_t(mode) > 7 || !(kModes & mode_bit(mode)))
        broken(Rule::Round01, "%s is no round mode of this SoC for these types.", mode_name(mode));
    const auto to_tensor = dst.template ReinterpretCast<To>();
    const auto from_tensor = src.template ReinterpretCast<From>();
    const Operand<To> to{"dst", to_tensor, p.dstBlkStride, p.dstRepStride};
    const Operand<From> from{"src", from_tensor, p.srcBlkStride, p.srcRepStride};
    check_source(from, lanes);
    check_overlap(to, from, lanes, false, true);
    check_destination(to, lanes);
    if constexpr (kNarrows)
        with_mode(mode, [&](auto m) {
            const auto four_bits = [](half h) {
                const int8_t v = clamp_to<int8_t>(round_float<decltype(m)::value>(half_to_float(h.raw)));
                return uint8_t((v > 7 ? 7 : v < -8 ? -8 : v) & 15);
            };
            convert_lanes(to, from, lanes,
                          [=](HalfPair v) { return uint8_t(four_bits(v.low) | four_bits(v.high) << 4); });
        });
    else
        convert_lanes(to, from, lanes,
                      [](uint8_t v) { return HalfPair{half(int8_t(int4b_t(v))), half(int8_t(int4b_t(v >> 4)))}; });
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
          const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& p, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Cast", site);
    if constexpr (ascend_sim::kIsInt4<T> || ascend_sim::kIsInt4<U>)
        ascend_sim::cast_int4(dst, src, roundMode, ascend_sim::pair_lanes<isSetMask>(mask, repeatTime), p);
    else
        ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride},
                            ascend_sim::Operand<U>{"src", src, p.srcBlkStride, p.srcRepStride},
                            ascend_sim::repeat_lanes<isSetMask>("Cast", ascend_sim::kWidest<T, U>, mask, repeatTime),
                            roundMode);
}

}  // namespace AscendC
