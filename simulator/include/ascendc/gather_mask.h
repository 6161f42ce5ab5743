// GatherMask: the selected lanes of all repeats, written contiguously.
//
// Rules: dst and src0 aligned to 32 bytes and disjoint (else a later repeat reads data that an earlier one
// wrote); types by SoC; patterns 1 .. 7, on Ascend310P 1 .. 6, or a tensor of unsigned integers as wide as the
// elements. mask is at least 1 if reduceMode is true.
// Meaning: reduceMode false: repeatTimes repeats of 256 bytes. True: repeatTimes repeats of `mask`
// elements; on Ascend310P `mask` elements in all. A built-in pattern restarts at each repeat; a user's pattern
// has one bit per element and steps by src1RepeatStride. rsvdCnt: the number of selected elements.
// Leaves the mask mode normal.
// Cost: its own cost per repeat.
#pragma once

#include "ascendc/gather.h"

namespace AscendC {

enum class GatherMaskMode : uint8_t { VERSION_V1 = 0, VERSION_V2 = 1 };
constexpr GatherMaskMode defaultGatherMaskMode =
    ascend_sim::kIs910b ? GatherMaskMode::VERSION_V2 : GatherMaskMode::VERSION_V1;

}  // namespace AscendC

namespace ascend_sim {

// Whether built-in pattern 1 .. 7 selects a lane.
constexpr bool pattern_selects(uint8_t pattern, uint32_t lane) {
    return pattern == 7 || (pattern <= 2 ? lane % 2 == pattern - 1u : lane % 4 == pattern - 3u);
}

// Number of elements of each repeat.
template <class T>
std::vector<uint32_t> repeat_elements(bool reduce_mode, uint32_t mask, uint32_t repeats) {
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T);
    if (!reduce_mode) return std::vector<uint32_t>(repeats, kLanes);
    if (mask == 0) broken(Rule::Mask01, "mask must be at least 1 with reduceMode but got 0.");
    if (mask > kMostLanes) {
        broken(Rule::Mask01, "mask must be at most what UB holds but got %u.", mask);
        mask = kMostLanes;
    }
    if (!kIs310p) return std::vector<uint32_t>(repeats, mask);
    std::vector<uint32_t> n(mask / kLanes, kLanes);
    if (mask % kLanes) n.push_back(mask % kLanes);
    return n;
}

// selects(repeat, lane): the pattern.
template <class T, class F>
void gather_mask(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                 const std::vector<uint32_t>& elements, const AscendC::GatherMaskParams& p, F selects,
                 uint64_t& count) {
    constexpr uint32_t kInBlock = kBlockBytes / sizeof(T);
    ASCEND_SIM_NEEDS(GatherMask, T);
    const uint32_t from = src.view().addr, to = dst.view().addr;
    const int64_t block = p.src0BlockStride * int64_t(kBlockBytes), repeat = p.src0RepeatStride * int64_t(kBlockBytes);
    check_aligned("src0", from);
    check_aligned("dst", to);
    auto at = [&](uint32_t r, uint32_t lane) {
        return from + r * repeat + lane / kInBlock * block + lane % kInBlock * uint32_t(sizeof(T));
    };
    Pointed read;
    count = 0;
    for (uint32_t r = 0; r < elements.size(); ++r)
        for (uint32_t lane = 0; lane < elements[r]; lane += kInBlock) {
            const uint32_t n = std::min(kInBlock, elements[r] - lane);
            point_at(read, at(r, lane), n * uint32_t(sizeof(T)));
            for (uint32_t i = 0; i < n; ++i) count += selects(r, lane + i);
        }
    const Range written{to, int64_t(to + count * sizeof(T))};
    reads("src0", src.view(), read.ranges.data(), read.ranges.size());
    if (count) check_apart("dst", written, "src0", read.all);
    writes("dst", dst.view(), &written, count ? 1 : 0);
    T* out = dst.data();
    uint32_t repeats = 0;
    for (uint32_t r = 0; r < elements.size(); ++r) {
        for (uint32_t lane = 0; lane < elements[r]; ++lane)
            if (selects(r, lane)) std::memcpy(out++, ub() + at(r, lane), sizeof(T));
        repeats += (elements[r] * uint32_t(sizeof(T)) + kRepeatBytes - 1) / kRepeatBytes;
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
    const uint32_t from = src1Pattern.view().addr, step = gatherMaskParams.src1RepeatStride * ascend_sim::kBlockBytes;
    ascend_sim::check_aligned("src1Pattern", from);
    ascend_sim::Pointed read;
    for (uint32_t r = 0; r < elements.size(); ++r) ascend_sim::point_at(read, from + r * step, (elements[r] + 7) / 8);
    ascend_sim::reads("src1Pattern", src1Pattern.view(), read.ranges.data(), read.ranges.size());
    ascend_sim::gather_mask(
        dst, src0, elements, gatherMaskParams,
        [=](uint32_t r, uint32_t lane) { return (ascend_sim::ub()[from + r * step + lane / 8] >> lane % 8 & 1) != 0; },
        rsvdCnt);
}

}  // namespace AscendC
