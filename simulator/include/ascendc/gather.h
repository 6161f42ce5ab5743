// Gather: elements of src by byte offsets. Gatherb: 32-byte blocks by byte offsets. Scatter: the reverse
// of Gather.
//
// Rules: offsets (with the base) are multiples of the element size (of 32 bytes for Gatherb) and stay inside
// the tensor they index; they are consumed in order. dst, src and offsets are disjoint. A gather's dst is
// aligned to 32 bytes, on Ascend310P to an element. Types by SoC; Gatherb is not on Ascend310P, Scatter not on
// Ascend910B. Scatter's offsets differ from each other. Gatherb takes a destination's block stride of 0 as 1.
// Meaning: dst[i] = *(src + base + offset[i]), all in bytes. A whole repeat is read before it is written.
// Cost: one access per element; Gatherb a plain repeat.
#pragma once

#include <algorithm>

#include "ascendc/arithmetic.h"

namespace ascend_sim {

// The bytes that offsets point at: ranges in the offsets' order, adjacent ones merged.
struct Pointed {
    std::vector<Range> ranges;
    Range all{INT64_MAX, 0};  // from the first byte to the last
};

inline void point_at(Pointed& p, int64_t begin, uint32_t bytes) {
    if (!p.ranges.empty() && p.ranges.back().end == begin)
        p.ranges.back().end += bytes;
    else
        p.ranges.push_back({begin, begin + bytes});
    p.all.begin = std::min(p.all.begin, begin);
    p.all.end = std::max(p.all.end, begin + bytes);
}

inline void check_offset(uint64_t offset, uint32_t unit, const UbView& tensor, uint64_t index, const char* name) {
    if (offset % unit)
        broken(Rule::Index01, "offset %llu of element %llu (with the base) is no multiple of %u.",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(index), unit);
    if (offset + unit > tensor.bytes)
        broken(Rule::Index01, "offset %llu of element %llu (with the base) points past `%s`, which has %u bytes.",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(index), name, tensor.bytes);
}

inline Range view_range(const UbView& v, uint64_t bytes) { return {v.addr, int64_t(v.addr + bytes)}; }

// The lanes step through `stepped`: dst of a gather, src of a scatter. The offsets point into `pointed`.
template <bool kGather, class T>
void indexed(const Operand<T>& stepped, const AscendC::LocalTensor<T>& pointed,
             const AscendC::LocalTensor<uint32_t>& offsets, uint64_t base, const Lanes& lanes) {
    static_assert(!kGather || kTakes<T, Api::Gather>, "Gather: this SoC does not have it for this type");
    static_assert(kGather || kTakes<T, Api::Scatter>, "Scatter: this SoC does not have it for this type");
    const char* const name = kGather ? "src" : "dst";
    auto finish = [&] {
        finish_vector(lanes.repeats(), lanes.per_repeat() * cycles_of(Cost::GatheredElement), lanes.has_tail());
    };
    const uint32_t from = pointed.view().addr, list = offsets.view().addr;
    check_aligned("offsets", list);
    check_aligned(name, from);
    if (kGather && kIs310p)
        check_aligned("dst", stepped.tensor.view().addr, sizeof(T), Rule::Align02);
    else
        check_aligned(stepped.name, stepped.tensor.view().addr, kBlockBytes, Rule::Align02);
    // One offset for each lane, consumed in order.
    const Operand<uint32_t> indices{"offsets", offsets, 1, lanes.per_repeat() / 8};
    const auto& read = ranges_of(lanes, layout_of(indices, lanes), list);
    reads("offsets", offsets.view(), read.data(), read.size());

    const Layout layouts[2] = {layout_of(stepped, lanes), layout_of(indices, lanes)};
    // A mark for each element that an offset points at; the ranges follow from the marks in ascending order.
    static thread_local std::vector<uint8_t> marks;
    const uint64_t elements = pointed.view().bytes / sizeof(T);
    marks.assign(elements + 1, 0);
    const auto is_element = [&](uint64_t offset) { return offset % sizeof(T) == 0 && offset / sizeof(T) < elements; };
    uint64_t lowest = elements, highest = 0;
    const uint8_t* const memory = ub();
    for_each_run(lanes, layouts, [&](const uint32_t (&o)[2], uint32_t n) {
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t offset;
            std::memcpy(&offset, memory + list + o[1] + i * 4, 4);
            const uint64_t at = (base + offset) / sizeof(T);
            if (!is_element(base + offset)) {
                check_offset(base + offset, sizeof(T), pointed.view(), o[1] / 4 + i, name);
                continue;  // a lenient launch skips this element
            }
            if (!kGather && marks[at])
                broken(Rule::Index01, "two elements are scattered to offset %llu of `dst`.",
                       static_cast<unsigned long long>(at * sizeof(T)));
            marks[at] = 1;
            lowest = std::min(lowest, at);
            highest = std::max(highest, at);
        }
    });
    Pointed to;
    for (uint64_t at = lowest; at <= highest && at < elements; ++at)
        if (marks[at]) point_at(to, int64_t(from + at * sizeof(T)), sizeof(T));
    const auto& stepped_ranges = ranges_of(lanes, layout_of(stepped, lanes), stepped.tensor.view().addr);
    if (stepped_ranges.empty()) return finish();
    const Range stepped_bytes{stepped_ranges.front().begin, stepped_ranges.back().end};
    const Range index_bytes{list, int64_t(list + lanes.dense_lanes() * 4)};
    check_apart(kGather ? "dst" : "src", stepped_bytes, name, to.all);
    check_apart("dst", kGather ? stepped_bytes : to.all, "offsets", index_bytes);
    if (kGather) {
        reads(name, pointed.view(), to.ranges.data(), to.ranges.size());
        writes(stepped.name, stepped.tensor.view(), stepped_ranges.data(), stepped_ranges.size());
    } else {
        reads(stepped.name, stepped.tensor.view(), stepped_ranges.data(), stepped_ranges.size());
        writes(name, pointed.view(), to.ranges.data(), to.ranges.size());
    }
    uint8_t* const lane_bytes = ub() + stepped.tensor.view().addr;
    uint8_t* const origin = ub() + from + base;
    const auto offset_of = [&](uint32_t repeat, uint32_t lane) {
        return reinterpret_cast<const uint32_t*>(ub() + list + layouts[1].offset(repeat, lane));
    };
    for (uint32_t r = 0; r < lanes.repeats(); ++r) {
        T values[kRepeatBytes / sizeof(T)];
        // The elements of a repeat that an offset points at, and their lanes.
        const auto for_each_element = [&](auto f) {
            lanes.for_each_stretch(r, lanes.per_repeat(), [&](uint32_t lane, uint32_t n) {
                const uint32_t* const offset = offset_of(r, lane);
                for (uint32_t i = 0; i < n; ++i)
                    if (is_element(base + offset[i])) f(lane + i, origin + offset[i]);
            });
        };
        uint8_t* const lane_0 = lane_bytes + layouts[0].offset(r, 0);
        if (kGather) {
            for_each_element([&](uint32_t lane, uint8_t* at) { std::memcpy(&values[lane], at, sizeof(T)); });
            for_each_element(
                [&](uint32_t lane, uint8_t*) { std::memcpy(lane_0 + lane * sizeof(T), &values[lane], sizeof(T)); });
        } else {
            for_each_element(
                [&](uint32_t lane, uint8_t* at) { std::memcpy(at, lane_0 + lane * sizeof(T), sizeof(T)); });
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
    ascend_sim::indexed<true>(ascend_sim::Operand<T>{"dst", dst}, src, srcOffset, srcBaseAddr,
                              ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime,
            const ascend_sim::Stride<uint16_t> dstRepStride, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Gather", site);
    ascend_sim::indexed<true>(ascend_sim::Operand<T>{"dst", dst, 1, dstRepStride}, src, srcOffset, srcBaseAddr,
                              ascend_sim::repeat_lanes<true>("Gather", sizeof(T), mask, repeatTime));
}

template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, const uint32_t count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Scatter", site);
    ascend_sim::indexed<false>(ascend_sim::Operand<T>{"src", src}, dst, dstOffset, dstBaseAddr,
                               ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime,
             const ascend_sim::Stride<uint8_t> srcRepStride, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Scatter", site);
    ascend_sim::indexed<false>(ascend_sim::Operand<T>{"src", src, 1, srcRepStride}, dst, dstOffset, dstBaseAddr,
                               ascend_sim::repeat_lanes<true>("Scatter", sizeof(T), mask, repeatTime));
}

template <class T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
             const ascend_sim::RepeatTime repeatTime, const GatherRepeatParams& p, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Gatherb, T);  // a kernel can reinterpret tensors of other types
    ascend_sim::start(ascend_sim::Pipe::V, "Gatherb", site);
    const ascend_sim::Lanes lanes =
        ascend_sim::Lanes::first(sizeof(T), ascend_sim::kRepeatBytes / sizeof(T), repeatTime);
    ascend_sim::mask_register() = {};  // the instruction sets all lanes itself
    const uint32_t stride = p.dstBlkStride ? p.dstBlkStride : 1;
    const ascend_sim::Operand<T> to{"dst", dst, stride, p.dstRepStride};
    const uint32_t blocks = lanes.repeats() * ascend_sim::kBlocksPerRepeat, list = offset.view().addr;
    ascend_sim::check_aligned("offset", list);
    ascend_sim::check_aligned("src", src.view().addr);
    const ascend_sim::Range offsets = ascend_sim::view_range(offset.view(), blocks * 4);
    ascend_sim::reads("offset", offset.view(), &offsets, blocks ? 1 : 0);
    ascend_sim::Pointed from;
    for (uint32_t i = 0; i < blocks; ++i) {
        uint32_t at;
        std::memcpy(&at, ascend_sim::ub() + list + i * 4, 4);
        ascend_sim::check_offset(at, ascend_sim::kBlockBytes, src.view(), i, "src");
        ascend_sim::point_at(from, src.view().addr + at, ascend_sim::kBlockBytes);
    }
    const ascend_sim::Layout layout = ascend_sim::layout_of(to);
    if (blocks) {
        const ascend_sim::Range written{dst.view().addr,
                                        int64_t(dst.view().addr + ascend_sim::extent_of(lanes, layout))};
        ascend_sim::check_apart("dst", written, "src", from.all);
        ascend_sim::check_apart("dst", written, "offset", offsets);
    }
    ascend_sim::reads("src", src.view(), from.ranges.data(), from.ranges.size());
    ascend_sim::check_destination(to, lanes);
    for (uint32_t i = 0; i < blocks; ++i) {
        uint32_t at;
        std::memcpy(&at, ascend_sim::ub() + list + i * 4, 4);
        const uint32_t block =
            i % ascend_sim::kBlocksPerRepeat * layout.block + i / ascend_sim::kBlocksPerRepeat * layout.repeat;
        std::memcpy(ascend_sim::ub() + dst.view().addr + block, ascend_sim::ub() + src.view().addr + at,
                    ascend_sim::kBlockBytes);
    }
    ascend_sim::finish_vector(lanes.repeats(), ascend_sim::cycles_of(ascend_sim::Cost::Repeat));
}

}  // namespace AscendC
