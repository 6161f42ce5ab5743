// The active lanes of a vector instruction, and the places of an operand's lanes in UB. An instruction has three call
// forms: with a count, with a mask, and with the mask register.
#pragma once

#include <vector>

#include "ascendc/params.h"
#include "ascendc/tensor.h"

namespace ascend_sim {

constexpr uint32_t kBlockBytes = 32, kRepeatBytes = 256, kBlocksPerRepeat = 8;
constexpr uint32_t kMaxLanes = 1 << 19;  // more than any UB holds

// An operand: its tensor and strides.
template <class T>
struct Operand {
    const char* name;
    const AscendC::LocalTensor<T>& tensor;
    uint32_t block_stride = 1, repeat_stride = 8;  // in 32-byte blocks
};
template <class T>
Operand(const char*, const AscendC::LocalTensor<T>&, uint32_t, uint32_t) -> Operand<T>;

// The lanes of an instruction; the element size of its widest operand determines the lanes per repeat.
class Lanes {
public:
    // Count form: `count` contiguous elements.
    static Lanes counted(uint32_t widest_bytes, uint64_t count) {
        Lanes lanes = limited(widest_bytes, count);
        lanes.count_form_ = true;
        return lanes;
    }
    // Counter mode: the first `count` lanes, in as many repeats as necessary, with strides.
    static Lanes limited(uint32_t widest_bytes, uint64_t count) {
        Lanes lanes(widest_bytes);
        lanes.count_ = count;
        lanes.repeats_ = uint32_t((count + lanes.per_repeat_ - 1) / lanes.per_repeat_);
        lanes.counter_mode_ = true;
        return lanes;
    }
    // The first `mask` lanes of each repeat.
    static Lanes first(uint32_t widest_bytes, uint64_t mask, uint64_t repeats, uint64_t max_repeats = 255) {
        Lanes lanes(widest_bytes);
        if (mask > lanes.per_repeat_ || (mask == 0 && kIs310p)) {
            broken(Rule::Mask01, "mask must be %d .. %u but got %lld.", kIs310p ? 1 : 0, lanes.per_repeat_,
                   static_cast<long long>(mask));
            mask = lanes.per_repeat_;
        }
        lanes.leading_lanes_ = uint32_t(mask);
        lanes.low_mask_ = low_ones(mask < 64 ? mask : 64);
        lanes.high_mask_ = mask <= 64 ? 0 : low_ones(mask - 64);
        lanes.set_repeats(repeats, max_repeats);
        return lanes;
    }
    // The lanes whose bits are set: {lanes 0-63, lanes 64-127}. Bits select no lane after the 127th of an 8-bit type.
    static Lanes from_mask_bits(uint32_t widest_bytes, const uint64_t mask[], uint64_t repeats,
                                uint64_t max_repeats = 255) {
        Lanes lanes(widest_bytes);
        lanes.low_mask_ = mask[0];
        lanes.high_mask_ = widest_bytes >= 4 ? 0 : mask[1];
        if (widest_bytes == 8 && mask[0] >> 32) broken(Rule::Mask02, "a 64-bit type has 32 lanes a repeat.");
        const uint32_t lane_count =
            uint32_t(__builtin_popcountll(lanes.low_mask_) + __builtin_popcountll(lanes.high_mask_));
        if (lanes.low_mask_ == low_ones(lane_count < 64 ? lane_count : 64) &&
            lanes.high_mask_ == low_ones(lane_count < 64 ? 0 : lane_count - 64))
            lanes.leading_lanes_ = lane_count;
        if (kIs310p && !lanes.low_mask_ && !lanes.high_mask_) broken(Rule::Mask01, "the mask selects no lane.");
        lanes.set_repeats(repeats, max_repeats);
        return lanes;
    }
    // The lanes of the mask register (isSetMask = false).
    static Lanes from_register(uint32_t widest_bytes, uint64_t repeats) {
        const MaskRegister& mask = mask_register();
        if (mask.left_by)
            broken(Rule::Mask03, "the mask register still holds the mask of %s: SetVectorMask missing.", mask.left_by);
        if (mask.counter && mask.low > kMaxLanes) broken(Rule::Mask01, "the mask counts more elements than UB holds.");
        if (mask.counter) return limited(widest_bytes, mask.low < kMaxLanes ? mask.low : kMaxLanes);
        const uint64_t words[2] = {widest_bytes == 8 ? mask.low & 0xffffffffu : mask.low, mask.high};
        return from_mask_bits(widest_bytes, words, repeats);
    }

    uint32_t repeats() const { return repeats_; }
    uint32_t per_repeat() const { return per_repeat_; }
    bool is_count_form() const { return count_form_; }
    uint64_t count() const { return count_; }  // count form only
    bool has_tail() const { return count_form_ && count_ % per_repeat_ != 0; }
    // Whether the active lanes are contiguous: all lanes of all repeats, or the first `count` lanes.
    bool is_dense() const { return counter_mode_ || leading_lanes_ == per_repeat_; }
    uint64_t dense_lanes() const { return counter_mode_ ? count_ : uint64_t(repeats_) * per_repeat_; }
    bool is_active(uint32_t repeat, uint32_t lane) const {
        if (counter_mode_) return uint64_t(repeat) * per_repeat_ + lane < count_;
        if (leading_lanes_ != kHasGaps) return lane < leading_lanes_;
        return lane < 128 && ((lane < 64 ? low_mask_ >> lane : high_mask_ >> (lane - 64)) & 1) != 0;
    }
    bool empty() const { return repeats_ == 0 || (!counter_mode_ && !low_mask_ && !high_mask_); }

    // Calls use(first lane, number of lanes) for each contiguous group of active lanes of a repeat. A group does not
    // cross a multiple of `unit` lanes.
    template <class F>
    void for_each_active_group(uint32_t repeat, uint32_t unit, F use) const {
        if (counter_mode_ || leading_lanes_ != kHasGaps) {
            uint32_t lane_count = leading_lanes_;
            if (counter_mode_) {
                const uint64_t remaining = count_ - uint64_t(repeat) * per_repeat_;
                lane_count = remaining < per_repeat_ ? uint32_t(remaining) : per_repeat_;
            }
            for (uint32_t lane = 0; lane < lane_count; lane += unit)
                use(lane, lane + unit < lane_count ? unit : lane_count - lane);
            return;
        }
        for (uint32_t lane = 0; lane < per_repeat_;) {
            if (!is_active(repeat, lane)) {
                ++lane;
                continue;
            }
            const uint32_t begin = lane, end = (lane / unit + 1) * unit;
            while (lane < per_repeat_ && lane < end && is_active(repeat, lane)) ++lane;
            use(begin, lane - begin);
        }
    }

private:
    static constexpr uint32_t kHasGaps = ~0u;  // of leading_lanes_: the active lanes are not the first ones
    static constexpr uint64_t low_ones(uint64_t bit_count) { return bit_count >= 64 ? ~0ull : (1ull << bit_count) - 1; }
    explicit Lanes(uint32_t widest_bytes) : per_repeat_(kRepeatBytes / widest_bytes) {}
    void set_repeats(uint64_t repeats, uint64_t max_repeats) {
        if (repeats > max_repeats)
            broken(Rule::Repeat01, "repeatTime must be 0 .. %llu but got %lld.",
                   static_cast<unsigned long long>(max_repeats), static_cast<long long>(repeats));
        repeats_ = uint32_t(repeats > max_repeats ? max_repeats : repeats);
        if (!kIs310p && repeats_ && !low_mask_ && !high_mask_) broken(Rule::Count05, "its mask selects no lane.");
    }
    uint32_t per_repeat_, repeats_ = 0, leading_lanes_ = kHasGaps;
    uint64_t low_mask_ = 0, high_mask_ = 0, count_ = 0;
    bool count_form_ = false, counter_mode_ = false;
};

// Element size and strides of an operand, in bytes.
struct Layout {
    uint32_t element_bytes, block_stride, repeat_stride;
    uint32_t offset(uint32_t repeat, uint32_t lane) const {
        const uint32_t lanes_in_block = kBlockBytes / element_bytes;
        return repeat * repeat_stride + lane / lanes_in_block * block_stride + lane % lanes_in_block * element_bytes;
    }
    // Whether all repeats of `per_repeat` lanes are contiguous.
    bool is_contiguous(uint32_t per_repeat) const {
        return block_stride == kBlockBytes && repeat_stride == per_repeat * element_bytes;
    }
};

// Calls use(byte offsets of the operands, number of lanes) for the parts that are contiguous in every operand.
template <size_t kOperands, class F>
void for_each_contiguous_part(const Lanes& lanes, const Layout (&layouts)[kOperands], F use) {
    uint32_t offsets[kOperands];
    bool all_contiguous = lanes.is_dense(), blocks_adjacent = true;
    uint32_t widest_bytes = 1;
    for (const Layout& layout : layouts) {
        all_contiguous = all_contiguous && layout.is_contiguous(lanes.per_repeat());
        blocks_adjacent = blocks_adjacent && layout.block_stride == kBlockBytes;
        widest_bytes = layout.element_bytes > widest_bytes ? layout.element_bytes : widest_bytes;
    }
    if (all_contiguous) {
        for (size_t i = 0; i < kOperands; ++i) offsets[i] = 0;
        if (lanes.dense_lanes()) use(offsets, uint32_t(lanes.dense_lanes()));
        return;
    }
    const uint32_t unit = blocks_adjacent ? lanes.per_repeat() : kBlockBytes / widest_bytes;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, unit, [&](uint32_t lane, uint32_t lane_count) {
            for (size_t i = 0; i < kOperands; ++i) offsets[i] = layouts[i].offset(repeat, lane);
            use(offsets, lane_count);
        });
}

#if defined(__clang__)
#define ASCEND_SIM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define ASCEND_SIM_OPTIMIZED
#else
#define ASCEND_SIM_INDEPENDENT _Pragma("GCC ivdep")
// These loops take most of a kernel's time. The attribute repeats the options of the command line, because in some
// releases of GCC the attribute replaces them.
#ifdef __OPTIMIZE__
#define ASCEND_SIM_OPTIMIZED __attribute__((optimize("O3", "fp-contract=off", "wrapv", "no-strict-aliasing")))
#else
#define ASCEND_SIM_OPTIMIZED
#endif
#endif
// A function with all that it calls inline, also if the command line turns inlining off.
#define ASCEND_SIM_HOT ASCEND_SIM_OPTIMIZED __attribute__((noinline, flatten))

// Calls use(i) for i in [0, count), in a form that compilers vectorise. The calls must not depend on each other.
template <class F>
ASCEND_SIM_HOT void for_each_lane(size_t count, F use) {
    constexpr size_t kChunk = 64;  // -O2 vectorises only loops with a constant trip count
    size_t i = 0;
    for (; i + kChunk <= count; i += kChunk) {
        ASCEND_SIM_INDEPENDENT
        for (size_t k = 0; k < kChunk; ++k) use(i + k);
    }
    for (; i < count; ++i) use(i);
}

// The bytes that an operand covers, as ranges. Adjacent ranges are merged.
ASCEND_SIM_HOT inline const std::vector<Range>& ranges_of(const Lanes& lanes, const Layout& layout, uint32_t addr) {
    static thread_local std::vector<Range> ranges;
    ranges.clear();
    const Layout layouts[1] = {layout};
    for_each_contiguous_part(lanes, layouts, [&](const uint32_t (&offset)[1], uint32_t lane_count) {
        const int64_t begin = int64_t(addr) + offset[0];
        const Range range{begin, begin + int64_t(lane_count) * layout.element_bytes};
        if (!ranges.empty() && ranges.back().end == range.begin)
            ranges.back().end = range.end;
        else if (ranges.empty() || ranges.back().begin != range.begin || ranges.back().end != range.end)
            ranges.push_back(range);
    });
    return ranges;
}

template <class T>
Layout layout_of(const Operand<T>& operand) {
    return {uint32_t(sizeof(T)), operand.block_stride * kBlockBytes, operand.repeat_stride * kBlockBytes};
}

// A count form's operands are contiguous for every width.
template <class T>
Layout layout_of(const Operand<T>& operand, const Lanes& lanes) {
    if (!lanes.is_count_form()) return layout_of(operand);
    return {uint32_t(sizeof(T)), kBlockBytes, lanes.per_repeat() * uint32_t(sizeof(T))};
}

inline void check_aligned(const char* name, uint32_t addr, uint32_t alignment = kBlockBytes,
                          Rule rule = Rule::Align01) {
    if (addr % alignment) broken(rule, "`%s` starts at UB byte %u, which is no multiple of %u.", name, addr, alignment);
}

template <class T>
void check_source(const Operand<T>& operand, const Lanes& lanes) {
    check_aligned(operand.name, operand.tensor.view().addr);
    const auto& ranges = ranges_of(lanes, layout_of(operand, lanes), operand.tensor.view().addr);
    reads(operand.name, operand.tensor.view(), ranges.data(), ranges.size());
}

template <class T>
void check_destination(const Operand<T>& operand, const Lanes& lanes) {
    check_aligned(operand.name, operand.tensor.view().addr);
    if (operand.block_stride == 0 && !lanes.is_count_form())
        broken(Rule::Stride02, "`%s` has block stride 0.", operand.name);
    const auto& ranges = ranges_of(lanes, layout_of(operand, lanes), operand.tensor.view().addr);
    writes(operand.name, operand.tensor.view(), ranges.data(), ranges.size());
}

// An upper bound of the number of bytes from the operand's first byte to its last.
inline uint64_t extent_of(const Lanes& lanes, const Layout& layout) {
    if (lanes.empty()) return 0;
    if (lanes.is_count_form()) return lanes.count() * layout.element_bytes;
    return uint64_t(lanes.repeats() - 1) * layout.repeat_stride + layout.offset(0, lanes.per_repeat() - 1) +
           layout.element_bytes;
}

// Checks that destination and source are the same bytes in each repeat, or that no repeat writes bytes that it or a
// later repeat reads. may_accumulate allows dst == src with repeat stride 0, as in a sum over repeats by Add. converts:
// within one repeat, a narrower result at its source's address gives a warning, and so does any overlap in a count
// form.
template <class T, class U>
void check_overlap(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, bool may_accumulate = false,
                   bool converts = false) {
    const Layout dst_layout = layout_of(dst, lanes), src_layout = layout_of(src, lanes);
    const uint32_t dst_addr = dst.tensor.view().addr, src_addr = src.tensor.view().addr;
    if (dst_addr == src_addr && dst_layout.element_bytes == src_layout.element_bytes &&
        dst_layout.block_stride == src_layout.block_stride && dst_layout.repeat_stride == src_layout.repeat_stride) {
        if (dst_layout.repeat_stride != 0 || lanes.repeats() <= 1 || may_accumulate) return;
    } else if (may_accumulate && dst_addr == src_addr && dst_layout.block_stride == src_layout.block_stride &&
               (dst_layout.repeat_stride == 0 || src_layout.repeat_stride == 0)) {
        return;
    }
    if (src_addr + extent_of(lanes, src_layout) <= dst_addr || dst_addr + extent_of(lanes, dst_layout) <= src_addr)
        return;
    const auto read = ranges_of(lanes, src_layout, src_addr);  // a copy, because ranges_of reuses one list
    const auto& written = ranges_of(lanes, dst_layout, dst_addr);
    if (read.empty() || written.empty()) return;
    int64_t read_begin = INT64_MAX, read_end = 0, written_begin = INT64_MAX, written_end = 0;
    for (const Range& range : read) {
        read_begin = range.begin < read_begin ? range.begin : read_begin;
        read_end = range.end > read_end ? range.end : read_end;
    }
    for (const Range& range : written) {
        written_begin = range.begin < written_begin ? range.begin : written_begin;
        written_end = range.end > written_end ? range.end : written_end;
    }
    if (read_end <= written_begin || written_end <= read_begin) return;
    // The ranges may overlap, so compare repeat by repeat.
    // first_writer[byte - written_begin]: 1 + the first repeat that writes the byte; 0 if no repeat does.
    static thread_local std::vector<uint32_t> first_writer;
    first_writer.assign(written_end - written_begin, 0);
    const uint32_t unit =
        kBlockBytes /
        (dst_layout.element_bytes > src_layout.element_bytes ? dst_layout.element_bytes : src_layout.element_bytes);
    const bool narrows = converts && dst_layout.element_bytes < src_layout.element_bytes &&
                         (dst_addr == src_addr || lanes.is_count_form());
    const bool widens_in_own_repeat =
        converts && lanes.is_count_form() && dst_layout.element_bytes > src_layout.element_bytes;
    bool warns = false;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, unit, [&](uint32_t lane, uint32_t lane_count) {
            const int64_t begin = dst_addr + dst_layout.offset(repeat, lane) - written_begin;
            for (int64_t byte = begin; byte < begin + lane_count * dst_layout.element_bytes; ++byte)
                if (!first_writer[byte]) first_writer[byte] = repeat + 1;
        });
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, unit, [&](uint32_t lane, uint32_t lane_count) {
            const uint32_t begin = src_addr + src_layout.offset(repeat, lane);
            const bool same = begin == dst_addr + dst_layout.offset(repeat, lane) &&
                              dst_layout.element_bytes == src_layout.element_bytes;
            for (uint32_t byte = begin; byte < begin + lane_count * src_layout.element_bytes; ++byte) {
                if (byte < written_begin || byte >= written_end || !first_writer[byte - written_begin]) continue;
                const uint32_t writer = first_writer[byte - written_begin] - 1;
                if (writer < repeat)
                    return broken(Rule::Overlap02, "repeat %u reads UB byte %u of `%s`, which repeat %u wrote as `%s`.",
                                  repeat, byte, src.name, writer, dst.name);
                if (writer == repeat && (narrows || widens_in_own_repeat))
                    warns = true;
                else if (writer == repeat && !same)
                    return broken(Rule::Overlap01,
                                  "`%s` and `%s` overlap in repeat %u (UB byte %u) without being the "
                                  "same memory.",
                                  dst.name, src.name, repeat, byte);
            }
        });
    if (warns)
        broken(Rule::Overlap03, "the %s `%s` overlaps a part of `%s`.", narrows ? "narrower" : "wider", dst.name,
               src.name);
}

// For APIs that allow no overlap.
inline void check_disjoint(const char* dst, Range to, const char* src, Range from) {
    if (to.begin < from.end && from.begin < to.end)
        broken(Rule::Overlap01, "`%s` (UB bytes [%u, %u)) and `%s` ([%u, %u)) must not overlap.", dst,
               unsigned(to.begin), unsigned(to.end), src, unsigned(from.begin), unsigned(from.end));
}
// For the result of a reduction to one element. The page of overlaps forbids an overlap for the forms with repeats
// only.
inline void check_reduced(Range result, Range source, const Lanes& lanes) {
    if (!lanes.is_count_form())
        check_disjoint("dst", result, "src", source);
    else if (result.begin < source.end && source.begin < result.end)
        broken(Rule::Overlap03, "`dst` (UB bytes [%u, %u)) overlaps `src`.", unsigned(result.begin),
               unsigned(result.end));
}

}  // namespace ascend_sim
