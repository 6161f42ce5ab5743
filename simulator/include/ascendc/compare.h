// Compare: two tensors; Compares, CompareScalar: a tensor and a scalar. The result has one bit per lane.
//
// Rules: types by SoC; except on Ascend950, integers with EQ only. The result is of int8 or uint8. The count form takes
// whole repeats: count * sizeof(T) is a multiple of 256. The mask of a repeat form has an effect on Ascend950 only; the
// other SoCs read and compare whole repeats.
// Meaning: bit i % 8 of byte i / 8 is set if the comparison of lane i holds; the bits of consecutive repeats are
// adjacent.
// Cost: a plain repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

using AscendC::CMPMODE;

template <class Wide>
bool holds(CMPMODE mode, Wide left, Wide right) {
    const bool results[] = {left<right, left> right, left == right, left <= right, left >= right, left != right};
    return results[int(mode) < 5 ? int(mode) : 5];
}

template <class T, class U>
void check_compare(CMPMODE mode) {
    static_assert(sizeof(U) == 1, "Compare: the result is of uint8_t or int8_t");
    if (!kTakes<T, Api::CompareOrder> && mode != CMPMODE::EQ)
        broken(Rule::Mode01, "%s is compared with CMPMODE::EQ only.", kElementNames[int(element_of<T>())]);
}

// second_operand(repeat, lane): the value that the lane of src0 is compared with.
template <class T, class U, class F>
void compare_op(const AscendC::LocalTensor<U>& dst, const Operand<T>& src0, const Lanes& lanes, CMPMODE mode,
                F second_operand) {
    check_source(src0, lanes);
    const uint32_t dst_addr = dst.view().addr, bytes_per_repeat = lanes.per_repeat() / 8;
    check_aligned("dst", dst_addr);
    const Range written{dst_addr, dst_addr + lanes.repeats() * bytes_per_repeat};
    const auto& read = ranges_of(lanes, layout_of(src0, lanes), src0.tensor.view().addr);
    if (!read.empty()) check_disjoint("dst", written, "src0", {read.front().begin, read.back().end});
    writes("dst", dst.view(), &written, lanes.repeats() ? 1 : 0);
    const Layout layout = layout_of(src0, lanes);
    constexpr uint32_t kElementsPerBlock = kBlockBytes / sizeof(T);
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            const T* const src0_data = src0.tensor.data() + layout.offset(repeat, lane) / sizeof(T);
            for (uint32_t i = 0; i < lane_count; ++i) {
                uint8_t& byte = ub()[dst_addr + repeat * bytes_per_repeat + (lane + i) / 8];
                const uint8_t bit = uint8_t(1u << (lane + i) % 8);
                const bool is_set = holds(mode, Arithmetic<T>::widen(src0_data[i]),
                                          Arithmetic<T>::widen(second_operand(repeat, lane + i)));
                byte = uint8_t(is_set ? byte | bit : byte & ~bit);
            }
        });
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

template <class T, class U>
void compare_tensors(const AscendC::LocalTensor<U>& dst, const Operand<T>& src0, const Operand<T>& src1,
                     const Lanes& lanes, CMPMODE mode) {
    ASCEND_SIM_NEEDS(Compare, T);
    check_compare<T, U>(mode);
    check_source(src1, lanes);
    const Layout layout = layout_of(src1, lanes);
    compare_op(dst, src0, lanes, mode, [&](uint32_t repeat, uint32_t lane) {
        return src1.tensor.data()[layout.offset(repeat, lane) / sizeof(T)];
    });
}

template <class T>
Lanes compare_count(uint32_t count) {
    if (uint64_t(count) * sizeof(T) % kRepeatBytes)
        broken(Rule::Count04, "count must be a multiple of %zu elements (256 bytes) but got %u.",
               kRepeatBytes / sizeof(T), count);
    return count_lanes<true>(sizeof(T), count);
}

// The lanes of a repeat form. The mask has an effect on Ascend950 only.
template <class T>
Lanes compare_lanes(const char* api, ConstMask mask, uint64_t repeats) {
    if (kIs950) return repeat_lanes<true>(api, sizeof(T), mask, repeats);
    return Lanes::first(sizeof(T), kRepeatBytes / sizeof(T), repeats);
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, class U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode,
             uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Compare", site);
    ascend_sim::compare_tensors(dst, ascend_sim::Operand<T>{"src0", src0}, ascend_sim::Operand<T>{"src1", src1},
                                ascend_sim::compare_count<T>(count), cmpMode);
}
template <class T, class U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode,
             ascend_sim::ConstMask mask, ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
             ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Compare", site);
    ascend_sim::compare_tensors(dst, ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride},
                                ascend_sim::Operand<T>{"src1", src1, params.src1BlkStride, params.src1RepStride},
                                ascend_sim::compare_lanes<T>("Compare", mask, repeatTime), cmpMode);
}

#define ASCEND_SIM_COMPARE_SCALAR(Name)                                                                             \
    template <class T, class U>                                                                                     \
    void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode,           \
              uint32_t count, ASCEND_SIM_SITE) {                                                                    \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                        \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        ascend_sim::check_compare<T, U>(cmpMode);                                                                   \
        ascend_sim::compare_op(dst, ascend_sim::Operand<T>{"src0", src0}, ascend_sim::compare_count<T>(count),      \
                               cmpMode, [=](uint32_t, uint32_t) { return src1Scalar; });                            \
    }                                                                                                               \
    template <class T, class U, bool isSetMask = true>                                                              \
    void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode,           \
              ascend_sim::ConstMask mask, ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params,       \
              ASCEND_SIM_SITE) {                                                                                    \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                        \
        ASCEND_SIM_NEEDS(Name, T);                                                                                  \
        ascend_sim::check_compare<T, U>(cmpMode);                                                                   \
        ascend_sim::compare_op(dst, ascend_sim::Operand<T>{"src0", src0, params.srcBlkStride, params.srcRepStride}, \
                               ascend_sim::compare_lanes<T>(#Name, mask, repeatTime), cmpMode,                      \
                               [=](uint32_t, uint32_t) { return src1Scalar; });                                     \
    }

ASCEND_SIM_COMPARE_SCALAR(Compares)
ASCEND_SIM_COMPARE_SCALAR(CompareScalar)

}  // namespace AscendC
