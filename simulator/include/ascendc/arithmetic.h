// Arithmetic of a lane: half and bfloat16 are computed in float and rounded once; integers wrap. Also the common code
// of the instructions with one or two sources and one destination.
#pragma once

#include "ascendc/lanes.h"

namespace ascend_sim {

// A half or bfloat16, clamped if the core saturates: infinities to the largest value, NaN to 0.
inline uint16_t clamp_half(uint16_t raw, bool saturate) {
    const bool is_nan_or_infinite = (raw & 0x7c00) == 0x7c00, has_mantissa = (raw & 0x3ff) != 0;
    const int32_t clamped = pick(has_mantissa, 0, (raw & 0x8000) | 0x7bff);  // 0x7bff: the largest value
    return uint16_t(pick(saturate & is_nan_or_infinite, clamped, raw));
}
inline uint16_t clamp_bfloat16(uint16_t raw, bool saturate) {
    const bool is_nan_or_infinite = (raw & 0x7f80) == 0x7f80, has_mantissa = (raw & 0x7f) != 0;
    const int32_t clamped = pick(has_mantissa, 0, (raw & 0x8000) | 0x7f7f);  // 0x7f7f: the largest value
    return uint16_t(pick(saturate & is_nan_or_infinite, clamped, raw));
}

// The conversions between a type and the type that computes with it. An instruction has one object, which reads the
// core's saturation mode once.
template <class T>
struct Arithmetic {
    static T widen(T value) { return value; }
    T narrow(T value) const { return value; }
};
template <>
struct Arithmetic<half> {
    const bool saturate = saturates();
    static float widen(half value) { return half_to_float(value.raw); }
    half narrow(float value) const {
        half rounded;
        rounded.raw = clamp_half(float_to_half(value), saturate);
        return rounded;
    }
};
#if __CCE_AICORE__ != 200
template <>
struct Arithmetic<bfloat16_t> {
    const bool saturate = saturates();
    static float widen(bfloat16_t value) { return bfloat16_to_float(value.raw); }
    bfloat16_t narrow(float value) const {
        bfloat16_t rounded;
        rounded.raw = clamp_bfloat16(float_to_bfloat16(value), saturate);
        return rounded;
    }
};
#endif

// The bytes of the wider type.
template <class T, class U = T>
constexpr uint32_t kWidest = sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U);

inline uint64_t checked_count(int64_t count) {
    if (count < 0) broken(Rule::Count04, "count must be >= 0 but got %lld.", static_cast<long long>(count));
    return count < 0 ? 0 : uint64_t(count);
}

// Whether dst may be src1 with repeat stride 0 (check_overlap).
enum class Aliasing { Exact, Accumulate };

// Counts the cycles in which an instruction waits for banks of UB. The first address and layout are the destination's.
template <size_t kOperands>
void use_banks(const Lanes& lanes, const uint32_t (&addresses)[kOperands], const Layout (&layouts)[kOperands],
               bool reads_dst, double cycles_per_repeat) {
    uint32_t active_lanes = 0;
    if (lanes.repeats())
        lanes.for_each_active_group(0, lanes.per_repeat(),
                                    [&](uint32_t lane, uint32_t lane_count) { active_lanes = lane + lane_count; });
    UbLines lines[kOperands + 1];
    for (size_t i = 0; i <= kOperands; ++i) {
        const Layout& layout = layouts[i % kOperands];
        lines[i] = {addresses[i % kOperands], (active_lanes * layout.element_bytes + kBlockBytes - 1) / kBlockBytes,
                    layout.block_stride, layout.repeat_stride};
    }
    access_banks(lines + 1, reads_dst ? kOperands : kOperands - 1, lines[0], lanes.repeats(), cycles_per_repeat);
}

// dst = compute(src0, src1) in lanes; with kReadsDst, dst = compute(src0, src1, dst).
// steps: number of vector instructions that the API consists of.
template <bool kReadsDst, class Dst, class Src, class F>
void binary_op(const Operand<Dst>& dst, const Operand<Src>& src0, const Operand<Src>& src1, const Lanes& lanes,
               Aliasing aliasing, Cost cost, F compute, uint32_t steps = 1) {
    check_source(src0, lanes);
    check_source(src1, lanes);
    if constexpr (kReadsDst) check_source(dst, lanes);
    check_overlap(dst, src0, lanes);
    check_overlap(dst, src1, lanes, aliasing == Aliasing::Accumulate);
    check_destination(dst, lanes);
    const Layout layouts[3] = {layout_of(dst, lanes), layout_of(src0, lanes), layout_of(src1, lanes)};
    Dst* const dst_data = dst.tensor.data();
    const Src *const src0_data = src0.tensor.data(), *const src1_data = src1.tensor.data();
    const Arithmetic<Dst> type;
    for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&offsets)[3], uint32_t lane_count) {
        Dst* const to = dst_data + offsets[0] / sizeof(Dst);
        const Src *const x = src0_data + offsets[1] / sizeof(Src), *const y = src1_data + offsets[2] / sizeof(Src);
        for_each_lane(lane_count, [=](size_t i) {
            if constexpr (kReadsDst)
                to[i] =
                    type.narrow(compute(Arithmetic<Src>::widen(x[i]), Arithmetic<Src>::widen(y[i]), type.widen(to[i])));
            else
                to[i] = type.narrow(compute(Arithmetic<Src>::widen(x[i]), Arithmetic<Src>::widen(y[i])));
        });
    });
    const double cycles = cycles_of(cost, sizeof(Dst));
    use_banks(lanes, {dst.tensor.view().addr, src0.tensor.view().addr, src1.tensor.view().addr}, layouts, kReadsDst,
              cycles);
    finish_vector(lanes.repeats() * steps, cycles, lanes.has_tail(), cost);
}

// dst = compute(src) in lanes; with kReadsDst, dst = compute(src, dst).
template <bool kReadsDst, class Dst, class Src, class F>
void unary_op(const Operand<Dst>& dst, const Operand<Src>& src, const Lanes& lanes, Cost cost, F compute) {
    check_source(src, lanes);
    if constexpr (kReadsDst) check_source(dst, lanes);
    check_overlap(dst, src, lanes);
    check_destination(dst, lanes);
    const Layout layouts[2] = {layout_of(dst, lanes), layout_of(src, lanes)};
    Dst* const dst_data = dst.tensor.data();
    const Src* const src_data = src.tensor.data();
    const Arithmetic<Dst> type;
    for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&offsets)[2], uint32_t lane_count) {
        Dst* const to = dst_data + offsets[0] / sizeof(Dst);
        const Src* const x = src_data + offsets[1] / sizeof(Src);
        for_each_lane(lane_count, [=](size_t i) {
            if constexpr (kReadsDst)
                to[i] = type.narrow(compute(Arithmetic<Src>::widen(x[i]), type.widen(to[i])));
            else
                to[i] = type.narrow(compute(Arithmetic<Src>::widen(x[i])));
        });
    });
    const double cycles = cycles_of(cost, sizeof(Dst));
    use_banks(lanes, {dst.tensor.view().addr, src.tensor.view().addr}, layouts, kReadsDst, cycles);
    finish_vector(lanes.repeats(), cycles, lanes.has_tail(), cost);
}

// Records that the instruction leaves its own mask in the register. (A count form leaves all ones.)
inline void set_own_mask(const char* api) {
    if (mask_register().counter)
        broken(Rule::Mask03, "in counter mode a mask is a number of elements: SetMaskNorm missing.");
    mask_register().left_by = api;
}

// The lanes of a repeat form: from the mask argument, or from the register with isSetMask = false.
template <bool isSetMask, class Word>
Lanes repeat_lanes(const char* api, uint32_t widest_bytes, MaskOf<Word> mask, uint64_t repeats,
                   uint64_t max_repeats = 255) {
    if (!isSetMask) return Lanes::from_register(widest_bytes, repeats);
    set_own_mask(api);
    return mask.is_bits ? Lanes::from_mask_bits(widest_bytes, mask.bits, repeats, max_repeats)
                        : Lanes::first(widest_bytes, mask.count, repeats, max_repeats);
}
// The lanes of a count form; with isSetMask = false from the register, which must be in counter mode.
template <bool isSetMask>
Lanes count_lanes(uint32_t widest_bytes, int64_t count) {
    const uint64_t elements = checked_count(count);
    if (isSetMask) {
        mask_register() = {};
        return Lanes::counted(widest_bytes, elements);
    }
    if (!mask_register().counter)
        broken(Rule::Mask03, "the count form with isSetMask = false needs SetMaskCount and SetVectorMask before it.");
    return Lanes::from_register(widest_bytes, (elements * widest_bytes + kRepeatBytes - 1) / kRepeatBytes);
}

}  // namespace ascend_sim
