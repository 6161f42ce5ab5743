// Arithmetic of a lane: half and bfloat16 are computed in float and rounded once; integers wrap. Also the
// common code of the instructions with one or two sources and one destination.
#pragma once

#include "ascendc/lanes.h"

namespace ascend_sim {

// A rounded half, clamped if the core saturates: infinities to the largest value, NaN to 0.
inline uint16_t clamp_half(uint16_t h, bool saturate) {
    const int32_t clamped = pick((h & 0x3ff) != 0, 0, (h & 0x8000) | 0x7bff);
    return uint16_t(pick(saturate & ((h & 0x7c00) == 0x7c00), clamped, h));
}
inline uint16_t clamp_bfloat16(uint16_t b, bool saturate) {
    const int32_t clamped = pick((b & 0x7f) != 0, 0, (b & 0x8000) | 0x7f7f);
    return uint16_t(pick(saturate & ((b & 0x7f80) == 0x7f80), clamped, b));
}

// Computation with a type. One object for each instruction reads the core's mode once.
template <class T>
struct Arithmetic {
    static T widen(T v) { return v; }
    T narrow(T v) const { return v; }
};
template <>
struct Arithmetic<half> {
    const bool saturate = saturates();
    static float widen(half v) { return half_to_float(v.raw); }
    half narrow(float v) const {
        half h;
        h.raw = clamp_half(float_to_half(v), saturate);
        return h;
    }
};
#if __CCE_AICORE__ != 200
template <>
struct Arithmetic<bfloat16_t> {
    const bool saturate = saturates();
    static float widen(bfloat16_t v) { return bfloat16_to_float(v.raw); }
    bfloat16_t narrow(float v) const {
        bfloat16_t b;
        b.raw = clamp_bfloat16(float_to_bfloat16(v), saturate);
        return b;
    }
};
#endif

template <class D, class S = D>
constexpr uint32_t kWidest = sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S);

inline uint64_t checked_count(int64_t count) {
    if (count < 0) broken(Rule::Count04, "count must be >= 0 but got %lld.", static_cast<long long>(count));
    return count < 0 ? 0 : uint64_t(count);
}

// Accumulate: dst may be src1 with repeat stride 0 (check_overlap).
enum class Aliasing { Exact, Accumulate };

// Counts the waits of an instruction for banks of UB. The first address and layout are those of the destination.
template <size_t K>
void use_banks(const Lanes& lanes, const uint32_t (&addresses)[K], const Layout (&layouts)[K], bool reads_dst,
               double cycles) {
    uint32_t active = 0;
    if (lanes.repeats())
        lanes.for_each_stretch(0, lanes.per_repeat(), [&](uint32_t lane, uint32_t n) { active = lane + n; });
    UbLines lines[K + 1];
    for (size_t k = 0; k <= K; ++k) {
        const Layout& l = layouts[k % K];
        lines[k] = {addresses[k % K], (active * l.element + kBlockBytes - 1) / kBlockBytes, l.block, l.repeat};
    }
    access_banks(lines + 1, reads_dst ? K : K - 1, lines[0], lanes.repeats(), cycles);
}

// dst = f(src0, src1) in lanes; with kReadsDst, dst = f(src0, src1, dst). steps: instructions that it consists of.
template <bool kReadsDst, class D, class S, class F>
void binary_op(const Operand<D>& dst, const Operand<S>& src0, const Operand<S>& src1, const Lanes& lanes,
               Aliasing aliasing, Cost cost, F f, uint32_t steps = 1) {
    check_source(src0, lanes);
    check_source(src1, lanes);
    if constexpr (kReadsDst) check_source(dst, lanes);
    check_overlap(dst, src0, lanes);
    check_overlap(dst, src1, lanes, aliasing == Aliasing::Accumulate);
    check_destination(dst, lanes);
    const Layout layouts[3] = {layout_of(dst, lanes), layout_of(src0, lanes), layout_of(src1, lanes)};
    D* const d = dst.tensor.data();
    const S *const a = src0.tensor.data(), *const b = src1.tensor.data();
    const Arithmetic<D> type;
    for_each_run(lanes, layouts, [&](const uint32_t (&o)[3], uint32_t n) {
        D* const to = d + o[0] / sizeof(D);
        const S *const x = a + o[1] / sizeof(S), *const y = b + o[2] / sizeof(S);
        each_lane(n, [=](size_t i) {
            if constexpr (kReadsDst)
                to[i] = type.narrow(f(Arithmetic<S>::widen(x[i]), Arithmetic<S>::widen(y[i]), type.widen(to[i])));
            else
                to[i] = type.narrow(f(Arithmetic<S>::widen(x[i]), Arithmetic<S>::widen(y[i])));
        });
    });
    const double cycles = cycles_of(cost, sizeof(D));
    use_banks(lanes, {dst.tensor.view().addr, src0.tensor.view().addr, src1.tensor.view().addr}, layouts, kReadsDst,
              cycles);
    finish_vector(lanes.repeats() * steps, cycles, lanes.has_tail(), cost);
}

// dst = f(src) in lanes; with kReadsDst, dst = f(src, dst).
template <bool kReadsDst, class D, class S, class F>
void unary_op(const Operand<D>& dst, const Operand<S>& src, const Lanes& lanes, Cost cost, F f) {
    check_source(src, lanes);
    if constexpr (kReadsDst) check_source(dst, lanes);
    check_overlap(dst, src, lanes);
    check_destination(dst, lanes);
    const Layout layouts[2] = {layout_of(dst, lanes), layout_of(src, lanes)};
    D* const d = dst.tensor.data();
    const S* const s = src.tensor.data();
    const Arithmetic<D> type;
    for_each_run(lanes, layouts, [&](const uint32_t (&o)[2], uint32_t n) {
        D* const to = d + o[0] / sizeof(D);
        const S* const x = s + o[1] / sizeof(S);
        each_lane(n, [=](size_t i) {
            if constexpr (kReadsDst)
                to[i] = type.narrow(f(Arithmetic<S>::widen(x[i]), type.widen(to[i])));
            else
                to[i] = type.narrow(f(Arithmetic<S>::widen(x[i])));
        });
    });
    const double cycles = cycles_of(cost, sizeof(D));
    use_banks(lanes, {dst.tensor.view().addr, src.tensor.view().addr}, layouts, kReadsDst, cycles);
    finish_vector(lanes.repeats(), cycles, lanes.has_tail(), cost);
}

// Notes that the instruction leaves its own mask in the register. (A count form leaves all ones.)
inline void set_own_mask(const char* api) {
    if (mask_register().counter)
        broken(Rule::Mask03, "in counter mode a mask is a number of elements: SetMaskNorm missing.");
    mask_register().left_by = api;
}

// The lanes of a repeat form: from the mask argument, or from the register with isSetMask = false.
template <bool isSetMask, class Word>
Lanes repeat_lanes(const char* api, uint32_t widest_bytes, MaskOf<Word> mask, uint64_t repeats,
                   uint64_t most_repeats = 255) {
    if (!isSetMask) return Lanes::from_register(widest_bytes, repeats);
    set_own_mask(api);
    return mask.is_bits ? Lanes::bits_of(widest_bytes, mask.bits, repeats, most_repeats)
                        : Lanes::first(widest_bytes, mask.count, repeats, most_repeats);
}
// The lanes of a count form; with isSetMask = false from the register, which must be in counter mode.
template <bool isSetMask>
Lanes count_lanes(uint32_t widest_bytes, int64_t count) {
    const uint64_t n = checked_count(count);
    if (isSetMask) {
        mask_register() = {};
        return Lanes::counted(widest_bytes, n);
    }
    if (!mask_register().counter)
        broken(Rule::Mask03, "the count form with isSetMask = false needs SetMaskCount and SetVectorMask before it.");
    return Lanes::from_register(widest_bytes, (n * widest_bytes + kRepeatBytes - 1) / kRepeatBytes);
}

}  // namespace ascend_sim
