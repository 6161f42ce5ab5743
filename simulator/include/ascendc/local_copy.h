// Copy: copy lanes within UB, on pipe V.
//
// Rules: types by SoC; not on Ascend310P. Block strides are at most 65535, repeat strides at most 4095, in 32-byte
// blocks. Destination and source are the same memory or disjoint.
// Meaning: dst[lane] = src[lane].
// Cost: one cycle a repeat.
#pragma once

#include "ascendc/cast.h"

namespace AscendC {
namespace sim_detail {

template <class T>
void copy_lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascend_sim::Lanes& lanes,
                const CopyRepeatParams& params) {
    ASCEND_SIM_NEEDS(Copy, T);
    constexpr uint32_t kMaxRepeatStride = 4095;
    if (params.dstRepeatSize > kMaxRepeatStride || params.srcRepeatSize > kMaxRepeatStride)
        ascend_sim::broken(ascend_sim::Rule::Stride01, "repeat strides must be 0 .. 4095 but got %u and %u.",
                           unsigned(params.dstRepeatSize), unsigned(params.srcRepeatSize));
    const ascend_sim::Operand<T> to{"dst", dst, params.dstStride, params.dstRepeatSize};
    const ascend_sim::Operand<T> from{"src", src, params.srcStride, params.srcRepeatSize};
    ascend_sim::check_source(from, lanes);
    ascend_sim::check_overlap(to, from, lanes);
    ascend_sim::check_destination(to, lanes);
    ascend_sim::convert_lanes(to, from, lanes, [](T value) { return value; });
    ascend_sim::finish_vector(lanes.repeats(), ascend_sim::cycles_of(ascend_sim::Cost::Repeat));
}

}  // namespace sim_detail

template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, ascend_sim::ConstMask mask,
          const ascend_sim::RepeatTime repeatTime, const CopyRepeatParams& repeatParams, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Copy", site);
    sim_detail::copy_lanes(dst, src, ascend_sim::repeat_lanes<isSetMask>("Copy", sizeof(T), mask, repeatTime),
                           repeatParams);
}

}  // namespace AscendC
