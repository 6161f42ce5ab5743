// Copy: copy lanes within UB, on pipe V.
//
// Rules: types by SoC; not on Ascend310P. Block strides are at most 65535, repeat strides at most 4095, in 32-byte
// blocks. Destination and source are the same memory or disjoint.
// Meaning: dst[lane] = src[lane]. In counter mode, the mask register has the number of elements of each repeat, and
// repeatTime counts: the blocks of a repeat are a block stride apart, however many they are.
// Source: the page Copy (masked form), "Counter mode".
// Cost: one cycle a repeat.
#pragma once

#include "ascendc/cast.h"

namespace AscendC {
namespace sim_detail {

inline void check_repeat_strides(const CopyRepeatParams& params) {
    constexpr uint32_t kMaxRepeatStride = 4095;
    if (params.dstRepeatSize > kMaxRepeatStride || params.srcRepeatSize > kMaxRepeatStride)
        ascend_sim::broken(ascend_sim::Rule::Stride01, "repeat strides must be 0 .. 4095 but got %u and %u.",
                           unsigned(params.dstRepeatSize), unsigned(params.srcRepeatSize));
}

template <class T>
void copy_lanes(const ascend_sim::Operand<T>& dst, const ascend_sim::Operand<T>& src, const ascend_sim::Lanes& lanes) {
    ASCEND_SIM_NEEDS(Copy, T);
    ascend_sim::check_source(src, lanes);
    ascend_sim::check_overlap(dst, src, lanes);
    ascend_sim::check_destination(dst, lanes);
    ascend_sim::convert_lanes(dst, src, lanes, [](T value) { return value; });
}

// Copies as many elements in each repeat as the mask register says. Returns the number of 256-byte steps.
template <class T>
uint32_t copy_counted_repeats(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t repeats,
                              const CopyRepeatParams& params) {
    constexpr uint32_t kElementsPerBlock = ascend_sim::kBlockBytes / sizeof(T), kBlocksPerStep = 8;
    const ascend_sim::Lanes lanes = ascend_sim::Lanes::from_register(sizeof(T), 1);
    for (uint32_t i = 0; i < repeats; ++i) {
        const LocalTensor<T> to = dst[i * params.dstRepeatSize * kElementsPerBlock];
        const LocalTensor<T> from = src[i * params.srcRepeatSize * kElementsPerBlock];
        copy_lanes<T>({"dst", to, params.dstStride, kBlocksPerStep * params.dstStride},
                      {"src", from, params.srcStride, kBlocksPerStep * params.srcStride}, lanes);
    }
    return repeats * lanes.repeats();
}

}  // namespace sim_detail

template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, ascend_sim::ConstMask mask,
          const ascend_sim::RepeatTime repeatTime, const CopyRepeatParams& repeatParams, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Copy", site);
    sim_detail::check_repeat_strides(repeatParams);
    uint32_t steps = 0;
    if (!isSetMask && ascend_sim::mask_register().counter) {
        steps = sim_detail::copy_counted_repeats(dst, src, repeatTime, repeatParams);
    } else {
        const ascend_sim::Lanes lanes = ascend_sim::repeat_lanes<isSetMask>("Copy", sizeof(T), mask, repeatTime);
        sim_detail::copy_lanes<T>({"dst", dst, repeatParams.dstStride, repeatParams.dstRepeatSize},
                                  {"src", src, repeatParams.srcStride, repeatParams.srcRepeatSize}, lanes);
        steps = lanes.repeats();
    }
    ascend_sim::finish_vector(steps, ascend_sim::cycles_of(ascend_sim::Cost::Repeat));
}

}  // namespace AscendC
