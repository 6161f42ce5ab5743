// Duplicate: write one value to all lanes.
//
// Rules: 16- and 32-bit types (8- and 64-bit ones on Ascend950), dst on a 32-byte boundary.
// Meaning: dst[i] = value.   Cost: one cycle a repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

namespace sim_detail {

template <class T>
void duplicate_lanes(const LocalTensor<T>& dst, T value, const npu_sim::Lanes& lanes, uint32_t block_stride,
                     uint32_t repeat_stride) {
    NPU_SIM_NEEDS(Duplicate, T);
    const npu_sim::Operand<T> to{"dst", dst, block_stride, repeat_stride};
    npu_sim::check_destination(to, lanes);
    const npu_sim::Layout layouts[1] = {npu_sim::layout_of(to, lanes)};
    T* const base = dst.data();
    npu_sim::for_each_run(lanes, layouts, [&](const uint32_t (&o)[1], uint32_t n) {
        T* const lane = base + o[0] / sizeof(T);
        npu_sim::each_lane(n, [=](size_t i) { lane[i] = value; });
    });
    npu_sim::finish_vector(lanes.repeats(), npu_sim::cycles_of(npu_sim::Cost::Repeat), lanes.is_count_form());
}

}  // namespace sim_detail

template <class T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, NPU_SIM_SITE) {
    npu_sim::start(npu_sim::Pipe::V, "Duplicate", site);
    sim_detail::duplicate_lanes(dst, scalarValue, npu_sim::count_lanes<true>(sizeof(T), count), 1, 8);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, const npu_sim::RepeatTime repeatTime,
               const npu_sim::Stride<uint16_t> dstBlockStride, const npu_sim::Stride<uint8_t> dstRepeatStride,
               NPU_SIM_SITE) {
    npu_sim::start(npu_sim::Pipe::V, "Duplicate", site);
    sim_detail::duplicate_lanes(dst, scalarValue,
                                npu_sim::repeat_lanes<isSetMask>("Duplicate", sizeof(T), mask, repeatTime),
                                dstBlockStride, dstRepeatStride);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[], const npu_sim::RepeatTime repeatTime,
               const npu_sim::Stride<uint16_t> dstBlockStride, const npu_sim::Stride<uint8_t> dstRepeatStride,
               NPU_SIM_SITE) {
    npu_sim::start(npu_sim::Pipe::V, "Duplicate", site);
    sim_detail::duplicate_lanes(dst, scalarValue,
                                npu_sim::repeat_lanes<isSetMask>("Duplicate", sizeof(T), mask, repeatTime),
                                dstBlockStride, dstRepeatStride);
}

}  // namespace AscendC
