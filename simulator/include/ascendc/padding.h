// VectorPadding: write copies of a source's blocks that continue each block on its left or right side.
//
// Rules: Ascend310P only; 16- and 32-bit types. padMode is 0, 1 or 2. The mask selects the elements that are written;
// whole blocks of the source are read.
// Meaning, for a block a, b, .., o, p of the source: mode 0 repeats the nearest element, a or p. Mode 1 mirrors the
// block: p, o, .., b, a. Mode 2 mirrors it without the nearest element and has 0 at the far end. This gives 0, p, .., b
// on the left side and o, .., a, 0 on the right side.
// Cost: a plain repeat.
// Source: the page VectorPadding(ISASI).
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

// The element i of the result.
template <class T>
T padded(const T* block, int mode, bool right_side, int i) {
    constexpr int kLast = int(kBlockBytes / sizeof(T)) - 1;
    if (mode == 0) return block[right_side ? kLast : 0];
    if (mode == 1) return block[kLast - i];
    const int source = right_side ? kLast - 1 - i : kLast + 1 - i;
    return source < 0 || source > kLast ? T(0) : block[source];
}

template <class T>
void pad_lanes(const Operand<T>& dst, const Operand<T>& src, uint8_t mode, bool right_side, const Lanes& lanes) {
    ASCEND_SIM_NEEDS(VectorPadding, T);
    if (mode > 2) broken(Rule::Mode01, "padMode must be 0, 1 or 2 but got %u.", mode);
    const Layout dst_layout = layout_of(dst, lanes), src_layout = layout_of(src, lanes);
    constexpr uint32_t kElementsPerBlock = kBlockBytes / sizeof(T);
    check_aligned(src.name, src.tensor.view().addr);
    // Whole blocks are read.
    std::vector<Range> blocks = ranges_of(lanes, src_layout, src.tensor.view().addr);
    for (Range& block : blocks) {
        block.begin = block.begin / kBlockBytes * kBlockBytes;
        block.end = (block.end + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    }
    reads(src.name, src.tensor.view(), blocks.data(), blocks.size());
    std::vector<T> results;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            const uint32_t offset = src_layout.offset(repeat, lane / kElementsPerBlock * kElementsPerBlock);
            for (uint32_t i = 0; i < lane_count; ++i)
                results.push_back(padded(src.tensor.data() + offset / sizeof(T), mode, right_side,
                                         int((lane + i) % kElementsPerBlock)));
        });
    check_overlap(dst, src, lanes);
    check_destination(dst, lanes);
    auto next = results.begin();
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            for (uint32_t i = 0; i < lane_count; ++i)
                dst.tensor.data()[dst_layout.offset(repeat, lane) / sizeof(T) + i] = *next++;
        });
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void VectorPadding(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t padMode, const bool padSide,
                   const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "VectorPadding", site);
    ascend_sim::pad_lanes(ascend_sim::Operand<T>{"dst", dst}, ascend_sim::Operand<T>{"src", src}, padMode, padSide,
                          ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T, bool isSetMask = true>
void VectorPadding(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t padMode, const bool padSide,
                   ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params,
                   ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "VectorPadding", site);
    ascend_sim::pad_lanes(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
                          ascend_sim::Operand<T>{"src", src, params.srcBlkStride, params.srcRepStride}, padMode,
                          padSide, ascend_sim::repeat_lanes<isSetMask>("VectorPadding", sizeof(T), mask, repeatTime));
}

}  // namespace AscendC
