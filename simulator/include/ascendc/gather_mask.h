// GatherMask: the selected lanes of all repeats, written contiguously.
//
// Rules: dst and src0 are aligned to 32 bytes and disjoint: otherwise a later repeat would read data that an earlier
// one wrote. A selection in place gives a warning if no repeat reads what an earlier one wrote: the page of overlaps
// forbids it, but asc-devkit's sample `gather` does it. Types by SoC. The pattern is 1 .. 7, on Ascend310P 1 .. 6, or a
// tensor of unsigned integers as wide as the elements. mask is at least 1 if reduceMode is true.
// Meaning: with reduceMode false, repeatTimes repeats of 256 bytes; with true, repeatTimes repeats of `mask` elements,
// on Ascend310P `mask` elements in total. A built-in pattern begins again at each repeat. A user's pattern has one bit
// per element, and its repeats are src1RepeatStride apart. rsvdCnt is the number of selected elements. The mask mode is
// normal afterwards.
// Cost: the profile's cost of GatherMask per repeat.
#pragma once

#include "ascendc/gather.h"

namespace AscendC {

enum class GatherMaskMode : uint8_t { VERSION_V1 = 0, VERSION_V2 = 1 };
constexpr GatherMaskMode defaultGatherMaskMode =
    ascend_sim::kIs910b ? GatherMaskMode::VERSION_V2 : GatherMaskMode::VERSION_V1;

}  // namespace AscendC

namespace ascend_sim {

// Whether a built-in pattern selects a lane. 1 and 2: one lane of two; 3 .. 6: one lane of four; 7: every lane.
constexpr bool pattern_selects(uint8_t pattern, uint32_t lane) {
    return pattern == 7 || (pattern <= 2 ? lane % 2 == pattern - 1u : lane % 4 == pattern - 3u);
}

// The number of elements of each repeat.
template <class T>
std::vector<uint32_t> repeat_elements(bool reduce_mode, uint32_t mask, uint32_t repeats) {
    constexpr uint32_t kElementsPerRepeat = kRepeatBytes / sizeof(T);
    if (!reduce_mode) return std::vector<uint32_t>(repeats, kElementsPerRepeat);
    if (mask == 0) broken(Rule::Mask01, "mask must be at least 1 with reduceMode but got 0.");
    if (mask > kMaxLanes) {
        broken(Rule::Mask01, "mask must be at most what UB holds but got %u.", mask);
        mask = kMaxLanes;
    }
    if (!kIs310p) return std::vector<uint32_t>(repeats, mask);
    std::vector<uint32_t> elements(mask / kElementsPerRepeat, kElementsPerRepeat);
    if (mask % kElementsPerRepeat) elements.push_back(mask % kElementsPerRepeat);
    return elements;
}

// selects(repeat, lane): whether the pattern selects the lane.
template <class T, class F>
void gather_mask(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                 const std::vector<uint32_t>& elements, const AscendC::GatherMaskParams& params, F selects,
                 uint64_t& count) {
    constexpr uint32_t kElementsPerBlock = kBlockBytes / sizeof(T);
    ASCEND_SIM_NEEDS(GatherMask, T);
    const uint32_t src_addr = src.view().addr, dst_addr = dst.view().addr;
    const int64_t block_stride = params.src0BlockStride * int64_t(kBlockBytes),
                  repeat_stride = params.src0RepeatStride * int64_t(kBlockBytes);
    check_aligned("src0", src_addr);
    check_aligned("dst", dst_addr);
    auto address_of = [&](uint32_t repeat, uint32_t lane) {
        return src_addr + repeat * repeat_stride + lane / kElementsPerBlock * block_stride +
               lane % kElementsPerBlock * uint32_t(sizeof(T));
    };
    ByteRanges read;
    count = 0;
    for (uint32_t repeat = 0; repeat < elements.size(); ++repeat)
        for (uint32_t lane = 0; lane < elements[repeat]; lane += kElementsPerBlock) {
            const uint32_t lane_count = std::min(kElementsPerBlock, elements[repeat] - lane);
            add_bytes(read, address_of(repeat, lane), lane_count * uint32_t(sizeof(T)));
            for (uint32_t i = 0; i < lane_count; ++i) count += selects(repeat, lane + i);
        }
    const Range written{dst_addr, int64_t(dst_addr + count * sizeof(T))};
    reads("src0", src.view(), read.ranges.data(), read.ranges.size());
    // The write position never passes the read position if each repeat begins after the end of the one before.
    const bool repeats_ascend =
        block_stride >= int64_t(kBlockBytes) &&
        (elements.size() <= 1 ||
         repeat_stride >= int64_t((elements[0] + kElementsPerBlock - 1) / kElementsPerBlock) * block_stride);
    if (count && dst_addr == src_addr && repeats_ascend)
        broken(Rule::Overlap03, "`dst` overlaps `src0`.");
    else if (count)
        check_disjoint("dst", written, "src0", read.all);
    writes("dst", dst.view(), &written, count ? 1 : 0);
    T* out = dst.data();
    uint32_t repeats = 0;
    for (uint32_t repeat = 0; repeat < elements.size(); ++repeat) {
        for (uint32_t lane = 0; lane < elements[repeat]; ++lane)
            if (selects(repeat, lane)) std::memcpy(out++, ub() + address_of(repeat, lane), sizeof(T));
        repeats += (elements[repeat] * uint32_t(sizeof(T)) + kRepeatBytes - 1) / kRepeatBytes;
    }
    mask_register().counter = false;
    mask_register().left_by = "GatherMask";
    finish_vector(repeats, cycles_of(Cost::GatherMask));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const uint8_t src1Pattern, const bool reduceMode,
                const uint32_t mask, const GatherMaskParams& gatherMaskParams, uint64_t& rsvdCnt, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "GatherMask", site);
    constexpr int kLast = ascend_sim::kIs310p ? 6 : 7;
    if (src1Pattern < 1 || src1Pattern > kLast)
        ascend_sim::broken(ascend_sim::Rule::Mode01, "the pattern must be 1 .. %d but got %d.", kLast,
                           int(src1Pattern));
    ascend_sim::gather_mask(
        dst, src0, ascend_sim::repeat_elements<T>(reduceMode, mask, gatherMaskParams.repeatTimes), gatherMaskParams,
        [=](uint32_t, uint32_t lane) { return ascend_sim::pattern_selects(src1Pattern, lane); }, rsvdCnt);
}

template <class T, class U, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<U>& src1Pattern,
                const bool reduceMode, const uint32_t mask, const GatherMaskParams& gatherMaskParams, uint64_t& rsvdCnt,
                ASCEND_SIM_SITE) {
    static_assert(std::is_unsigned_v<U> && sizeof(U) == sizeof(T),
                  "GatherMask: the pattern is of unsigned integers as wide as the elements");
    ascend_sim::start(ascend_sim::Pipe::V, "GatherMask", site);
    const auto elements = ascend_sim::repeat_elements<T>(reduceMode, mask, gatherMaskParams.repeatTimes);
    const uint32_t pattern_addr = src1Pattern.view().addr,
                   pattern_stride = gatherMaskParams.src1RepeatStride * ascend_sim::kBlockBytes;
    ascend_sim::check_aligned("src1Pattern", pattern_addr);
    ascend_sim::ByteRanges read;
    for (uint32_t repeat = 0; repeat < elements.size(); ++repeat)
        ascend_sim::add_bytes(read, pattern_addr + repeat * pattern_stride, (elements[repeat] + 7) / 8);
    ascend_sim::reads("src1Pattern", src1Pattern.view(), read.ranges.data(), read.ranges.size());
    ascend_sim::gather_mask(
        dst, src0, elements, gatherMaskParams,
        [=](uint32_t repeat, uint32_t lane) {
            return (ascend_sim::ub()[pattern_addr + repeat * pattern_stride + lane / 8] >> lane % 8 & 1) != 0;
        },
        rsvdCnt);
}

}  // namespace AscendC
