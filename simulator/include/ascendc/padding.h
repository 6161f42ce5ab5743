// VectorPadding: the block that continues a block of the source on its left or right side.
//
// Rules: Ascend310P only; 16- and 32-bit types. padMode is 0, 1 or 2. The mask selects the elements that are written;
// whole blocks of the source are read.
// Meaning, for a block a, b, .., o, p of the source: mode 0 repeats the nearest element, a or p; mode 1 mirrors the
// block, p, o, .., b, a; mode 2 mirrors it without the nearest element and has 0 at the far end: 0, p, .., b on the
// left side, o, .., a, 0 on the right. Cost: a plain repeat.   Source: the page VectorPadding(ISASI).
#pragma once

#include "ascendc/arithmetic.h"

namespace ascend_sim {

template <class T>
T padded(const T* block, int mode, bool right, int i) {
    constexpr int kLast = int(kBlockBytes / sizeof(T)) - 1;
    if (mode == 0) return block[right ? kLast : 0];
    if (mode == 1) return block[kLast - i];
    const int from = right ? kLast - 1 - i : kLast + 1 - i;
    return from < 0 || from > kLast ? T(0) : block[from];
}

template <class T>
void pad_lanes(const Operand<T>& dst, const Operand<T>& src, uint8_t mode, bool right, const Lanes& lanes) {
    ASCEND_SIM_NEEDS(VectorPadding, T);
    if (mode > 2) broken(Rule::Mode01, "padMode must be 0, 1 or 2 but got %u.", mode);
    const Layout to = layout_of(dst, lanes), from = layout_of(src, lanes);
    constexpr uint32_t kInBlock = kBlockBytes / sizeof(T);
    check_aligned(src.name, src.tensor.view().addr);
    // Whole blocks are read.
    std::vector<Range> blocks = ranges_of(lanes, from, src.tensor.view().addr);
    for (Range& r : blocks) {
        r.begin = r.begin / kBlockBytes * kBlockBytes;
        r.end = (r.end + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    }
    reads(src.name, src.tensor.view(), blocks.data(), blocks.size());
    std::vector<T> results;
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_active_group(r, kInBlock, [&](uint32_t lane, uint32_t n) {
            const uint32_t offset = from.offset(r, lane / kInBlock * kInBlock);
            for (uint32_t i = 0; i < n; ++i)
                results.push_back(
                    padded(src.tensor.data() + offset / sizeof(T), mode, right, int((lane + i) % kInBlock)));
        });
    check_overlap(dst, src, lanes);
    check_destination(dst, lanes);
    auto next = results.begin();
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_active_group(r, kInBlock, [&](uint32_t lane, uint32_t n) {
            for (uint32_t i = 0; i < n; ++i) dst.tensor.data()[to.offset(r, lane) / sizeof(T) + i] = *next++;
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
                   ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& p,
                   ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "VectorPadding", site);
    ascend_sim::pad_lanes(ascend_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride},
                          ascend_sim::Operand<T>{"src", src, p.srcBlkStride, p.srcRepStride}, padMode, padSide,
                          ascend_sim::repeat_lanes<isSetMask>("VectorPadding", sizeof(T), mask, repeatTime));
}

}  // namespace AscendC
