// Gather: reads elements of src at byte offsets. Gatherb: reads 32-byte blocks at byte offsets. Scatter: writes
// elements of dst at byte offsets.
//
// Rules: offsets (with the base) are multiples of the element size (of 32 bytes for Gatherb) and stay inside the tensor
// that they index. dst, src and offsets are disjoint. A gather's dst is aligned to 32 bytes, on Ascend310P to an
// element. Types by SoC; Gatherb is not on Ascend310P, Scatter not on Ascend910B. Scatter's offsets differ from each
// other. Gatherb takes a destination's block stride of 0 as 1.
// Meaning: dst[i] = *(src + base + offset[i]), all in bytes. A whole repeat is read before it is written.
// Cost: one access per element; Gatherb a plain repeat.
#pragma once

#include <algorithm>

#include "ascendc/arithmetic.h"

namespace ascend_sim {

// Ranges of bytes in the order in which add_bytes() adds them. Adjacent ranges are merged.
struct ByteRanges {
    std::vector<Range> ranges;
    Range all{INT64_MAX, 0};  // from the first byte to the last
};

inline void add_bytes(ByteRanges& added, int64_t begin, uint32_t bytes) {
    if (!added.ranges.empty() && added.ranges.back().end == begin)
        added.ranges.back().end += bytes;
    else
        added.ranges.push_back({begin, begin + bytes});
    added.all.begin = std::min(added.all.begin, begin);
    added.all.end = std::max(added.all.end, begin + bytes);
}

// Checks an offset to `unit` bytes of a tensor.
inline void check_offset(uint64_t offset, uint32_t unit, const UbView& tensor, uint64_t index, const char* name) {
    if (offset % unit)
        broken(Rule::Index01, "offset %llu of element %llu (with the base) is no multiple of %u.",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(index), unit);
    if (offset + unit > tensor.bytes)
        broken(Rule::Index01, "offset %llu of element %llu (with the base) points past `%s`, which has %u bytes.",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(index), name, tensor.bytes);
}

// The first `bytes` bytes of a tensor.
inline Range view_range(const UbView& view, uint64_t bytes) { return {view.addr, int64_t(view.addr + bytes)}; }

// Gather or Scatter. `by_lane` has an element for each lane: dst of a gather, src of a scatter. The offsets point into
// `by_offset`: src of a gather, dst of a scatter.
template <bool kGather, class T>
ASCEND_SIM_HOT void gather_or_scatter(const Operand<T>& by_lane, const AscendC::LocalTensor<T>& by_offset,
                                      const AscendC::LocalTensor<uint32_t>& offsets, uint64_t base,
                                      const Lanes& lanes) {
    static_assert(!kGather || kTakes<T, Api::Gather>, "Gather: this SoC does not have it for this type");
    static_assert(kGather || kTakes<T, Api::Scatter>, "Scatter: this SoC does not have it for this type");
    const char* const by_offset_name = kGather ? "src" : "dst";
    auto finish = [&] {
        finish_vector(lanes.repeats(), lanes.per_repeat() * cycles_of(Cost::GatheredElement), lanes.has_tail());
    };
    const uint32_t by_offset_addr = by_offset.view().addr, offsets_addr = offsets.view().addr;
    check_aligned("offsets", offsets_addr);
    check_aligned(by_offset_name, by_offset_addr);
    if (kGather && kIs310p)
        check_aligned("dst", by_lane.tensor.view().addr, sizeof(T), Rule::Align02);
    else
        check_aligned(by_lane.name, by_lane.tensor.view().addr, kBlockBytes, Rule::Align02);
    // One offset for each lane, consumed in order.
    const Operand<uint32_t> indices{"offsets", offsets, 1, lanes.per_repeat() / 8};
    const auto& read = ranges_of(lanes, layout_of(indices, lanes), offsets_addr);
    reads("offsets", offsets.view(), read.data(), read.size());

    const Layout layouts[2] = {layout_of(by_lane, lanes), layout_of(indices, lanes)};
    // is_indexed[i]: whether an offset points at element i. From this list, the ranges of the elements are made in
    // ascending order.
    static thread_local std::vector<uint8_t> is_indexed;
    const uint64_t elements = by_offset.view().bytes / sizeof(T);
    is_indexed.assign(elements + 1, 0);
    const auto is_element = [&](uint64_t offset) { return offset % sizeof(T) == 0 && offset / sizeof(T) < elements; };
    uint64_t lowest = elements, highest = 0;
    const uint8_t* const memory = ub();
    for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&layout_offsets)[2], uint32_t lane_count) {
        for (uint32_t i = 0; i < lane_count; ++i) {
            uint32_t offset;
            std::memcpy(&offset, memory + offsets_addr + layout_offsets[1] + i * 4, 4);
            const uint64_t element = (base + offset) / sizeof(T);
            if (!is_element(base + offset)) {
                check_offset(base + offset, sizeof(T), by_offset.view(), layout_offsets[1] / 4 + i, by_offset_name);
                continue;  // a lenient launch skips this element
            }
            if (!kGather && is_indexed[element])
                broken(Rule::Index01, "two elements are scattered to offset %llu of `dst`.",
                       static_cast<unsigned long long>(element * sizeof(T)));
            is_indexed[element] = 1;
            lowest = std::min(lowest, element);
            highest = std::max(highest, element);
        }
    });
    ByteRanges indexed;
    for (uint64_t element = lowest; element <= highest && element < elements; ++element)
        if (is_indexed[element]) add_bytes(indexed, int64_t(by_offset_addr + element * sizeof(T)), sizeof(T));
    const auto& lane_ranges = ranges_of(lanes, layout_of(by_lane, lanes), by_lane.tensor.view().addr);
    if (lane_ranges.empty()) return finish();
    const Range lane_range{lane_ranges.front().begin, lane_ranges.back().end};
    const Range offset_range{offsets_addr, int64_t(offsets_addr + lanes.dense_lanes() * 4)};
    check_disjoint(kGather ? "dst" : "src", lane_range, by_offset_name, indexed.all);
    check_disjoint("dst", kGather ? lane_range : indexed.all, "offsets", offset_range);
    if (kGather) {
        reads(by_offset_name, by_offset.view(), indexed.ranges.data(), indexed.ranges.size());
        writes(by_lane.name, by_lane.tensor.view(), lane_ranges.data(), lane_ranges.size());
    } else {
        reads(by_lane.name, by_lane.tensor.view(), lane_ranges.data(), lane_ranges.size());
        writes(by_offset_name, by_offset.view(), indexed.ranges.data(), indexed.ranges.size());
    }
    uint8_t* const lane_bytes = ub() + by_lane.tensor.view().addr;
    uint8_t* const base_bytes = ub() + by_offset_addr + base;
    const auto offsets_of = [&](uint32_t repeat, uint32_t lane) {
        return reinterpret_cast<const uint32_t*>(ub() + offsets_addr + layouts[1].offset(repeat, lane));
    };
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
        T values[kRepeatBytes / sizeof(T)];
        // Calls use(lane, address) for each lane whose offset points at an element.
        const auto for_each_element = [&](auto use) {
            lanes.for_each_active_group(repeat, lanes.per_repeat(), [&](uint32_t lane, uint32_t lane_count) {
                const uint32_t* const offset = offsets_of(repeat, lane);
                for (uint32_t i = 0; i < lane_count; ++i)
                    if (is_element(base + offset[i])) use(lane + i, base_bytes + offset[i]);
            });
        };
        uint8_t* const repeat_bytes = lane_bytes + layouts[0].offset(repeat, 0);
        if (kGather) {
            for_each_element([&](uint32_t lane, uint8_t* bytes) { std::memcpy(&values[lane], bytes, sizeof(T)); });
            for_each_element([&](uint32_t lane, uint8_t*) {
                std::memcpy(repeat_bytes + lane * sizeof(T), &values[lane], sizeof(T));
            });
        } else {
            for_each_element(
                [&](uint32_t lane, uint8_t* bytes) { std::memcpy(bytes, repeat_bytes + lane * sizeof(T), sizeof(T)); });
        }
    }
    finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Gather", site);
    ascend_sim::gather_or_scatter<true>(ascend_sim::Operand<T>{"dst", dst}, src, srcOffset, srcBaseAddr,
                                        ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime,
            const ascend_sim::Stride<uint16_t> dstRepStride, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Gather", site);
    ascend_sim::gather_or_scatter<true>(ascend_sim::Operand<T>{"dst", dst, 1, dstRepStride}, src, srcOffset,
                                        srcBaseAddr,
                                        ascend_sim::repeat_lanes<true>("Gather", sizeof(T), mask, repeatTime));
}

template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Scatter", site);
    ascend_sim::gather_or_scatter<false>(ascend_sim::Operand<T>{"src", src}, dst, dstOffset, dstBaseAddr,
                                         ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime,
             const ascend_sim::Stride<uint8_t> srcRepStride, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Scatter", site);
    ascend_sim::gather_or_scatter<false>(ascend_sim::Operand<T>{"src", src, 1, srcRepStride}, dst, dstOffset,
                                         dstBaseAddr,
                                         ascend_sim::repeat_lanes<true>("Scatter", sizeof(T), mask, repeatTime));
}

template <class T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
             const ascend_sim::RepeatTime repeatTime, const GatherRepeatParams& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Gatherb, T);  // a kernel can reinterpret tensors of other types
    ascend_sim::start(ascend_sim::Pipe::V, "Gatherb", site);
    const ascend_sim::Lanes lanes =
        ascend_sim::Lanes::first(sizeof(T), ascend_sim::kRepeatBytes / sizeof(T), repeatTime);
    ascend_sim::mask_register() = {};  // the instruction sets all lanes itself
    const uint32_t block_stride = params.dstBlkStride ? params.dstBlkStride : 1;
    const ascend_sim::Operand<T> to{"dst", dst, block_stride, params.dstRepStride};
    const uint32_t blocks = lanes.repeats() * ascend_sim::kBlocksPerRepeat, offset_addr = offset.view().addr;
    ascend_sim::check_aligned("offset", offset_addr);
    ascend_sim::check_aligned("src", src.view().addr);
    const ascend_sim::Range offset_range = ascend_sim::view_range(offset.view(), blocks * 4);
    ascend_sim::reads("offset", offset.view(), &offset_range, blocks ? 1 : 0);
    ascend_sim::ByteRanges indexed;
    for (uint32_t i = 0; i < blocks; ++i) {
        uint32_t src_offset;
        std::memcpy(&src_offset, ascend_sim::ub() + offset_addr + i * 4, 4);
        ascend_sim::check_offset(src_offset, ascend_sim::kBlockBytes, src.view(), i, "src");
        ascend_sim::add_bytes(indexed, src.view().addr + src_offset, ascend_sim::kBlockBytes);
    }
    const ascend_sim::Layout layout = ascend_sim::layout_of(to);
    if (blocks) {
        const ascend_sim::Range written{dst.view().addr,
                                        int64_t(dst.view().addr + ascend_sim::extent_of(lanes, layout))};
        ascend_sim::check_disjoint("dst", written, "src", indexed.all);
        ascend_sim::check_disjoint("dst", written, "offset", offset_range);
    }
    ascend_sim::reads("src", src.view(), indexed.ranges.data(), indexed.ranges.size());
    ascend_sim::check_destination(to, lanes);
    for (uint32_t i = 0; i < blocks; ++i) {
        uint32_t src_offset;
        std::memcpy(&src_offset, ascend_sim::ub() + offset_addr + i * 4, 4);
        const uint32_t dst_offset = i % ascend_sim::kBlocksPerRepeat * layout.block_stride +
                                    i / ascend_sim::kBlocksPerRepeat * layout.repeat_stride;
        std::memcpy(ascend_sim::ub() + dst.view().addr + dst_offset, ascend_sim::ub() + src.view().addr + src_offset,
                    ascend_sim::kBlockBytes);
    }
    ascend_sim::finish_vector(lanes.repeats(), ascend_sim::cycles_of(ascend_sim::Cost::Repeat));
}

}  // namespace AscendC
