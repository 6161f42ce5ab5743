// Select: lanes of src0 where the mask's bit is set, of src1 (a tensor or a scalar) where it is not.
//
// Rules: types by SoC; operands on 32 bytes. Modes: 0 (tensors; every repeat uses the first repeat's bits),
// 1 (scalar) and 2 (tensors), with one contiguous bit per lane. Modes 1 and 2 use the top 8 KiB of UB, but not
// on Ascend950.
// Meaning: dst[i] = bit i ? src0[i] : src1[i].   Cost: a plain repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

using AscendC::SELMODE;

// dst[i] = bit i of bits(repeat) ? src0[i] : other(repeat, lane).
template <class T, class B, class F>
void select_lanes(const Operand<T>& dst, const Operand<T>& src0, const Lanes& lanes, B bits, F other) {
    check_source(src0, lanes);
    check_overlap(dst, src0, lanes);
    check_destination(dst, lanes);
    const Layout to = layout_of(dst, lanes), from = layout_of(src0, lanes);
    for (uint32_t r = 0; r < lanes.repeats(); ++r) {
        const uint8_t* const selected = bits(r);
        lanes.for_each_active_group(r, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t n) {
            T* const d = dst.tensor.data() + to.offset(r, lane) / sizeof(T);
            const T* const s = src0.tensor.data() + from.offset(r, lane) / sizeof(T);
            for (uint32_t i = 0; i < n; ++i)
                d[i] = selected[(lane + i) / 8] >> (lane + i) % 8 & 1 ? s[i] : other(r, lane + i);
        });
    }
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

// other(repeat, lane): src1's value.
template <class T, class U, class F>
void select_op(const Operand<T>& dst, const AscendC::LocalTensor<U>& mask, const Operand<T>& src0, const Lanes& lanes,
               SELMODE mode, F other) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(std::is_unsigned_v<U>, "Select: the mask is of uint8_t, uint16_t, uint32_t or uint64_t");
    const bool shared_bits = mode == SELMODE::VSEL_CMPMASK_SPR;  // by all repeats
    if (!shared_bits && !kIs950) uses_reserved_ub("Select");
    const uint32_t bits_at = mask.view().addr, bytes_per_repeat = lanes.per_repeat() / 8;
    check_aligned("selMask", bits_at);
    uint32_t bytes = shared_bits ? bytes_per_repeat : lanes.repeats() * bytes_per_repeat;
    if (lanes.is_count_form() && (!shared_bits || lanes.repeats() == 1)) bytes = uint32_t((lanes.count() + 7) / 8);
    const Range read{bits_at, bits_at + bytes};
    reads("selMask", mask.view(), &read, lanes.empty() ? 0 : 1);
    const int64_t end = int64_t(dst.tensor.view().addr) + extent_of(lanes, layout_of(dst, lanes));
    if (!lanes.empty()) check_disjoint("dst", {dst.tensor.view().addr, end}, "selMask", read);
    select_lanes(
        dst, src0, lanes, [=](uint32_t r) { return ub() + bits_at + (shared_bits ? 0 : r * bytes_per_repeat); }, other);
}

template <class T, class U>
void select_tensors(const Operand<T>& dst, const AscendC::LocalTensor<U>& mask, const Operand<T>& src0,
                    const Operand<T>& src1, const Lanes& lanes, SELMODE mode) {
    if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) broken(Rule::Mode01, "mode 1 takes a scalar, not a tensor, as src1.");
    check_source(src1, lanes);
    check_overlap(dst, src1, lanes);
    const Layout layout = layout_of(src1, lanes);
    select_op(dst, mask, src0, lanes, mode,
              [&](uint32_t r, uint32_t lane) { return src1.tensor.data()[layout.offset(r, lane) / sizeof(T)]; });
}

template <class T, class U>
void select_scalar(const Operand<T>& dst, const AscendC::LocalTensor<U>& mask, const Operand<T>& src0, T src1,
                   const Lanes& lanes, SELMODE mode) {
    if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE)
        broken(Rule::Mode01, "a scalar src1 needs mode 1 but got %d.", int(mode));
    select_op(dst, mask, src0, lanes, mode, [=](uint32_t, uint32_t) { return src1; });
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_tensors(ascend_sim::Operand<T>{"dst", dst}, selMask, ascend_sim::Operand<T>{"src0", src0},
                               ascend_sim::Operand<T>{"src1", src1}, ascend_sim::count_lanes<true>(sizeof(T), count),
                               selMode);
}
template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1,
            SELMODE selMode, uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_scalar(ascend_sim::Operand<T>{"dst", dst}, selMask, ascend_sim::Operand<T>{"src0", src0}, src1,
                              ascend_sim::count_lanes<true>(sizeof(T), count), selMode);
}

template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, ascend_sim::Mask mask, ascend_sim::RepeatTime repeatTime,
            const BinaryRepeatParams& p, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_tensors(ascend_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride}, selMask,
                               ascend_sim::Operand<T>{"src0", src0, p.src0BlkStride, p.src0RepStride},
                               ascend_sim::Operand<T>{"src1", src1, p.src1BlkStride, p.src1RepStride},
                               ascend_sim::repeat_lanes<isSetMask>("Select", sizeof(T), mask, repeatTime), selMode);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1,
            SELMODE selMode, ascend_sim::Mask mask, ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& p,
            ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_scalar(ascend_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride}, selMask,
                              ascend_sim::Operand<T>{"src0", src0, p.src0BlkStride, p.src0RepStride}, src1,
                              ascend_sim::repeat_lanes<isSetMask>("Select", sizeof(T), mask, repeatTime), selMode);
}

}  // namespace AscendC
