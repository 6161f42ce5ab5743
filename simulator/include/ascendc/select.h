// Select: lanes of src0 where the mask's bit is set, of src1 (a tensor or a scalar) where it is not.
//
// Rules: types by SoC; operands are aligned to 32 bytes. Modes: 0 (tensors; every repeat uses the first repeat's bits),
// 1 (scalar) and 2 (tensors), with one contiguous bit per lane. Modes 1 and 2 use the top 8 KiB of UB, but not on
// Ascend950.
// Meaning: dst[i] = bit i ? src0[i] : src1[i].
// Cost: a plain repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

using AscendC::SELMODE;

// dst[i] = bit i of bits_of(repeat) ? src0[i] : other(repeat, lane).
template <class T, class Bits, class Other>
void select_lanes(const Operand<T>& dst, const Operand<T>& src0, const Lanes& lanes, Bits bits_of, Other other) {
    check_source(src0, lanes);
    check_overlap(dst, src0, lanes);
    check_destination(dst, lanes);
    const Layout dst_layout = layout_of(dst, lanes), src0_layout = layout_of(src0, lanes);
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
        const uint8_t* const selected = bits_of(repeat);
        lanes.for_each_active_group(repeat, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t lane_count) {
            T* const to = dst.tensor.data() + dst_layout.offset(repeat, lane) / sizeof(T);
            const T* const from = src0.tensor.data() + src0_layout.offset(repeat, lane) / sizeof(T);
            for (uint32_t i = 0; i < lane_count; ++i)
                to[i] = selected[(lane + i) / 8] >> (lane + i) % 8 & 1 ? from[i] : other(repeat, lane + i);
        });
    }
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

// other(repeat, lane): the lane's value of src1.
template <class T, class U, class F>
void select_op(const Operand<T>& dst, const AscendC::LocalTensor<U>& mask, const Operand<T>& src0, const Lanes& lanes,
               SELMODE mode, F other) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(std::is_unsigned_v<U>, "Select: the mask is of uint8_t, uint16_t, uint32_t or uint64_t");
    const bool shares_bits = mode == SELMODE::VSEL_CMPMASK_SPR;  // all repeats use the same bits
    if (!shares_bits && !kIs950) uses_reserved_ub("Select");
    const uint32_t mask_addr = mask.view().addr, bytes_per_repeat = lanes.per_repeat() / 8;
    check_aligned("selMask", mask_addr);
    uint32_t bytes = shares_bits ? bytes_per_repeat : lanes.repeats() * bytes_per_repeat;
    if (lanes.is_count_form() && (!shares_bits || lanes.repeats() == 1)) bytes = uint32_t((lanes.count() + 7) / 8);
    const Range read{mask_addr, mask_addr + bytes};
    reads("selMask", mask.view(), &read, lanes.empty() ? 0 : 1);
    const int64_t end = int64_t(dst.tensor.view().addr) + extent_of(lanes, layout_of(dst, lanes));
    if (!lanes.empty()) check_disjoint("dst", {dst.tensor.view().addr, end}, "selMask", read);
    select_lanes(
        dst, src0, lanes,
        [=](uint32_t repeat) { return ub() + mask_addr + (shares_bits ? 0 : repeat * bytes_per_repeat); }, other);
}

template <class T, class U>
void select_tensors(const Operand<T>& dst, const AscendC::LocalTensor<U>& mask, const Operand<T>& src0,
                    const Operand<T>& src1, const Lanes& lanes, SELMODE mode) {
    if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) broken(Rule::Mode01, "mode 1 takes a scalar, not a tensor, as src1.");
    check_source(src1, lanes);
    check_overlap(dst, src1, lanes);
    const Layout layout = layout_of(src1, lanes);
    select_op(dst, mask, src0, lanes, mode, [&](uint32_t repeat, uint32_t lane) {
        return src1.tensor.data()[layout.offset(repeat, lane) / sizeof(T)];
    });
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
            const BinaryRepeatParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_tensors(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride}, selMask,
                               ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride},
                               ascend_sim::Operand<T>{"src1", src1, params.src1BlkStride, params.src1RepStride},
                               ascend_sim::repeat_lanes<isSetMask>("Select", sizeof(T), mask, repeatTime), selMode);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1,
            SELMODE selMode, ascend_sim::Mask mask, ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
            ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Select", site);
    ascend_sim::select_scalar(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride}, selMask,
                              ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride}, src1,
                              ascend_sim::repeat_lanes<isSetMask>("Select", sizeof(T), mask, repeatTime), selMode);
}

}  // namespace AscendC
