// Duplicate: write one value to all lanes.
//
// Rules: 16- and 32-bit types (also 8- and 64-bit ones on Ascend950); dst is aligned to 32 bytes.
// Meaning: dst[i] = value.
// Cost: one cycle a repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

namespace sim_detail {

template <class T>
void duplicate_lanes(const LocalTensor<T>& dst, T value, const ascend_sim::Lanes& lanes, uint32_t block_stride,
                     uint32_t repeat_stride) {
    ASCEND_SIM_NEEDS(Duplicate, T);
    const ascend_sim::Operand<T> operand{"dst", dst, block_stride, repeat_stride};
    ascend_sim::check_destination(operand, lanes);
    const ascend_sim::Layout layouts[1] = {ascend_sim::layout_of(operand, lanes)};
    T* const dst_data = dst.data();
    ascend_sim::for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&offsets)[1], uint32_t lane_count) {
        T* const to = dst_data + offsets[0] / sizeof(T);
        ascend_sim::for_each_lane(lane_count, [=](size_t i) { to[i] = value; });
    });
    ascend_sim::finish_vector(lanes.repeats(), ascend_sim::cycles_of(ascend_sim::Cost::Repeat), lanes.has_tail());
}

}  // namespace sim_detail

template <class T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Duplicate", site);
    sim_detail::duplicate_lanes(dst, scalarValue, ascend_sim::count_lanes<true>(sizeof(T), count), 1, 8);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, ascend_sim::Mask mask,
               const ascend_sim::RepeatTime repeatTime, const ascend_sim::Stride<uint16_t> dstBlockStride,
               const ascend_sim::Stride<uint8_t> dstRepeatStride, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Duplicate", site);
    sim_detail::duplicate_lanes(dst, scalarValue,
                                ascend_sim::repeat_lanes<isSetMask>("Duplicate", sizeof(T), mask, repeatTime),
                                dstBlockStride, dstRepeatStride);
}

}  // namespace AscendC
