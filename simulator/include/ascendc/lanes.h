// The active lanes of a vector instruction's repeats, for each of the three call forms, and the places of an
// operand's lanes in UB.
#pragma once

#include <vector>

#include "ascendc/params.h"
#include "ascendc/tensor.h"

namespace ascend_sim {

constexpr uint32_t kBlockBytes = 32, kRepeatBytes = 256, kBlocksPerRepeat = 8;
constexpr uint32_t kMostLanes = 1 << 19;  // more than any UB holds

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
        Lanes l = limited(widest_bytes, count);
        l.count_form_ = true;
        return l;
    }
    // Counter mode: the first `count` lanes, in as many repeats as necessary, with strides.
    static Lanes limited(uint32_t widest_bytes, uint64_t count) {
        Lanes l(widest_bytes);
        l.total_ = count;
        l.repeats_ = uint32_t((count + l.per_repeat_ - 1) / l.per_repeat_);
        l.limited_ = true;
        return l;
    }
    // The first `mask` lanes of each repeat.
    static Lanes first(uint32_t widest_bytes, uint64_t mask, uint64_t repeats, uint64_t most_repeats = 255) {
        Lanes l(widest_bytes);
        if (mask > l.per_repeat_ || (mask == 0 && kIs310p)) {
            broken(Rule::Mask01, "mask must be %d .. %u but got %lld.", kIs310p ? 1 : 0, l.per_repeat_,
                   static_cast<long long>(mask));
            mask = l.per_repeat_;
        }
        l.prefix_ = uint32_t(mask);
        l.low_ = ones(mask < 64 ? mask : 64);
        l.high_ = mask <= 64 ? 0 : ones(mask - 64);
        l.set_repeats(repeats, most_repeats);
        return l;
    }
    // The lanes whose bits are set: {lanes 0-63, lanes 64-127}.
    static Lanes bits_of(uint32_t widest_bytes, const uint64_t mask[], uint64_t repeats, uint64_t most_repeats = 255) {
        Lanes l(widest_bytes);
        l.low_ = mask[0];
        l.high_ = widest_bytes >= 4 ? 0 : mask[1];
        if (widest_bytes == 8 && mask[0] >> 32) broken(Rule::Mask02, "a 64-bit type has 32 lanes a repeat.");
        const uint32_t lanes = uint32_t(__builtin_popcountll(l.low_) + __builtin_popcountll(l.high_));
        if (l.low_ == ones(lanes < 64 ? lanes : 64) && l.high_ == ones(lanes < 64 ? 0 : lanes - 64)) l.prefix_ = lanes;
        if (kIs310p && !l.low_ && !l.high_) broken(Rule::Mask01, "the mask selects no lane.");
        l.set_repeats(repeats, most_repeats);
        return l;
    }
    // The lanes of the mask register (isSetMask = false).
    static Lanes from_register(uint32_t widest_bytes, uint64_t repeats) {
        const MaskRegister& m = mask_register();
        if (m.left_by)
            broken(Rule::Mask03, "the mask register still holds the mask of %s: SetVectorMask missing.", m.left_by);
        if (m.counter && m.low > kMostLanes) broken(Rule::Mask01, "the mask counts more elements than UB holds.");
        if (m.counter) return limited(widest_bytes, m.low < kMostLanes ? m.low : kMostLanes);
        const uint64_t both[2] = {widest_bytes == 8 ? m.low & 0xffffffffu : m.low, m.high};
        return bits_of(widest_bytes, both, repeats);
    }

    uint32_t repeats() const { return repeats_; }
    uint32_t per_repeat() const { return per_repeat_; }
    bool is_count_form() const { return count_form_; }
    uint64_t count() const { return total_; }  // count form only
    bool has_tail() const { return count_form_ && total_ % per_repeat_ != 0; }
    // Whether the active lanes are contiguous: all lanes of all repeats, or the first `count` lanes.
    bool is_dense() const { return limited_ || prefix_ == per_repeat_; }
    uint64_t dense_lanes() const { return limited_ ? total_ : uint64_t(repeats_) * per_repeat_; }
    bool is_active(uint32_t repeat, uint32_t lane) const {
        if (limited_) return uint64_t(repeat) * per_repeat_ + lane < total_;
        return ((lane < 64 ? low_ >> lane : high_ >> (lane - 64)) & 1) != 0;
    }
    bool empty() const { return repeats_ == 0 || (!limited_ && !low_ && !high_); }

    // Calls f(first lane, number of lanes) for each stretch of active lanes of a repeat inside one unit
    // of `unit` lanes.
    template <class F>
    void for_each_stretch(uint32_t repeat, uint32_t unit, F f) const {
        if (limited_ || prefix_ != kScattered) {
            uint32_t n = prefix_;
            if (limited_) {
                const uint64_t left = total_ - uint64_t(repeat) * per_repeat_;
                n = left < per_repeat_ ? uint32_t(left) : per_repeat_;
            }
            for (uint32_t lane = 0; lane < n; lane += unit) f(lane, lane + unit < n ? unit : n - lane);
            return;
        }
        for (uint32_t lane = 0; lane < per_repeat_;) {
            if (!is_active(repeat, lane)) {
                ++lane;
                continue;
            }
            const uint32_t begin = lane, stop = (lane / unit + 1) * unit;
            while (lane < per_repeat_ && lane < stop && is_active(repeat, lane)) ++lane;
            f(begin, lane - begin);
        }
    }

private:
    static constexpr uint32_t kScattered = ~0u;  // the mask has gaps
    static constexpr uint64_t ones(uint64_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }
    explicit Lanes(uint32_t widest_bytes) : per_repeat_(kRepeatBytes / widest_bytes) {}
    void set_repeats(uint64_t repeats, uint64_t most) {
        if (repeats > most)
            broken(Rule::Repeat01, "repeatTime must be 0 .. %llu but got %lld.", static_cast<unsigned long long>(most),
                   static_cast<long long>(repeats));
        repeats_ = uint32_t(repeats > most ? most : repeats);
        if (!kIs310p && repeats_ && !low_ && !high_) broken(Rule::Count05, "its mask selects no lane.");
    }
    uint32_t per_repeat_, repeats_ = 0, prefix_ = kScattered;
    uint64_t low_ = 0, high_ = 0, total_ = 0;
    bool count_form_ = false, limited_ = false;
};

// Strides of an operand in bytes.
struct Layout {
    uint32_t element, block, repeat;  // element size, block stride, repeat stride
    uint32_t offset(uint32_t r, uint32_t lane) const {
        const uint32_t lanes_in_block = kBlockBytes / element;
        return r * repeat + lane / lanes_in_block * block + lane % lanes_in_block * element;
    }
    // Whether all repeats of `per_repeat` lanes are contiguous.
    bool contiguous(uint32_t per_repeat) const { return block == kBlockBytes && repeat == per_repeat * element; }
};

// Calls f(byte offsets of the operands, number of lanes) for stretches that are contiguous in every operand.
template <size_t K, class F>
void for_each_run(const Lanes& lanes, const Layout (&layouts)[K], F f) {
    uint32_t offsets[K];
    bool all_contiguous = lanes.is_dense(), blocks_adjacent = true;
    uint32_t widest = 1;
    for (const Layout& l : layouts) {
        all_contiguous = all_contiguous && l.contiguous(lanes.per_repeat());
        blocks_adjacent = blocks_adjacent && l.block == kBlockBytes;
        widest = l.element > widest ? l.element : widest;
    }
    if (all_contiguous) {
        for (size_t k = 0; k < K; ++k) offsets[k] = 0;
        if (lanes.dense_lanes()) f(offsets, uint32_t(lanes.dense_lanes()));
        return;
    }
    const uint32_t unit = blocks_adjacent ? lanes.per_repeat() : kBlockBytes / widest;
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_stretch(r, unit, [&](uint32_t lane, uint32_t n) {
            for (size_t k = 0; k < K; ++k) offsets[k] = layouts[k].offset(r, lane);
            f(offsets, n);
        });
}

// Calls f(i) for i in [0, n), in a form that compilers vectorise: lanes do not depend on each other.
#if defined(__clang__)
#define ASCEND_SIM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define ASCEND_SIM_OPTIMIZED
#else
#define ASCEND_SIM_INDEPENDENT _Pragma("GCC ivdep")
// These loops take most of a kernel's time. The attribute repeats the options of the compile, because some releases of
// GCC replace them by it.
#ifdef __OPTIMIZE__
#define ASCEND_SIM_OPTIMIZED __attribute__((optimize("O3", "fp-contract=off", "wrapv", "no-strict-aliasing")))
#else
#define ASCEND_SIM_OPTIMIZED
#endif
#endif
template <class F>
ASCEND_SIM_OPTIMIZED __attribute__((noinline, flatten)) void each_lane(size_t n, F f) {
    constexpr size_t kChunk = 64;  // -O2 vectorises only loops with a constant trip count
    size_t i = 0;
    for (; i + kChunk <= n; i += kChunk) {
        ASCEND_SIM_INDEPENDENT
        for (size_t k = 0; k < kChunk; ++k) f(i + k);
    }
    for (; i < n; ++i) f(i);
}

// The bytes that an operand covers, as merged stretches.
inline const std::vector<Range>& ranges_of(const Lanes& lanes, const Layout& layout, uint32_t addr) {
    static thread_local std::vector<Range> ranges;
    ranges.clear();
    const Layout only[1] = {layout};
    for_each_run(lanes, only, [&](const uint32_t (&offset)[1], uint32_t n) {
        const int64_t begin = int64_t(addr) + offset[0];
        const Range r{begin, begin + int64_t(n) * layout.element};
        if (!ranges.empty() && ranges.back().end == r.begin)
            ranges.back().end = r.end;
        else if (ranges.empty() || ranges.back().begin != r.begin || ranges.back().end != r.end)
            ranges.push_back(r);
    });
    return ranges;
}

template <class T>
Layout layout_of(const Operand<T>& o) {
    return {uint32_t(sizeof(T)), o.block_stride * kBlockBytes, o.repeat_stride * kBlockBytes};
}

// A count form's operands are contiguous for every width.
template <class T>
Layout layout_of(const Operand<T>& o, const Lanes& lanes) {
    if (!lanes.is_count_form()) return layout_of(o);
    return {uint32_t(sizeof(T)), kBlockBytes, lanes.per_repeat() * uint32_t(sizeof(T))};
}

inline void check_aligned(const char* name, uint32_t addr, uint32_t alignment = kBlockBytes,
                          Rule rule = Rule::Align01) {
    if (addr % alignment) broken(rule, "`%s` starts at UB byte %u, which is no multiple of %u.", name, addr, alignment);
}

template <class T>
void check_source(const Operand<T>& o, const Lanes& lanes) {
    check_aligned(o.name, o.tensor.view().addr);
    const auto& r = ranges_of(lanes, layout_of(o, lanes), o.tensor.view().addr);
    reads(o.name, o.tensor.view(), r.data(), r.size());
}

template <class T>
void check_destination(const Operand<T>& o, const Lanes& lanes) {
    check_aligned(o.name, o.tensor.view().addr);
    if (o.block_stride == 0 && !lanes.is_count_form()) broken(Rule::Stride02, "`%s` has block stride 0.", o.name);
    const auto& r = ranges_of(lanes, layout_of(o, lanes), o.tensor.view().addr);
    writes(o.name, o.tensor.view(), r.data(), r.size());
}

// Upper bound of the bytes from the operand's first byte to its end.
inline uint64_t extent_of(const Lanes& lanes, const Layout& layout) {
    if (lanes.empty()) return 0;
    if (lanes.is_count_form()) return lanes.count() * layout.element;
    return uint64_t(lanes.repeats() - 1) * layout.repeat + layout.offset(0, lanes.per_repeat() - 1) + layout.element;
}

// Checks that destination and source are the same bytes at each step, or that no repeat writes bytes that it or a
// later repeat reads. may_accumulate allows dst == src with repeat stride 0: Add and similar operations over repeats.
// may_narrow: a narrower result at its source's address only warns.
template <class T, class U>
void check_overlap(const Operand<T>& dst, const Operand<U>& src, const Lanes& lanes, bool may_accumulate = false,
                   bool may_narrow = false) {
    const Layout to = layout_of(dst, lanes), from = layout_of(src, lanes);
    const uint32_t at = dst.tensor.view().addr, source = src.tensor.view().addr;
    if (at == source && to.element == from.element && to.block == from.block && to.repeat == from.repeat) {
        if (to.repeat != 0 || lanes.repeats() <= 1 || may_accumulate) return;
    } else if (may_accumulate && at == source && to.block == from.block && (to.repeat == 0 || from.repeat == 0)) {
        return;
    }
    if (source + extent_of(lanes, from) <= at || at + extent_of(lanes, to) <= source) return;
    const auto ranges = ranges_of(lanes, from, source);  // a copy, because ranges_of reuses one list
    const auto& written = ranges_of(lanes, to, at);
    if (ranges.empty() || written.empty()) return;
    int64_t low = INT64_MAX, high = 0, wlow = INT64_MAX, whigh = 0;
    for (const Range& r : ranges) low = r.begin < low ? r.begin : low, high = r.end > high ? r.end : high;
    for (const Range& r : written) wlow = r.begin < wlow ? r.begin : wlow, whigh = r.end > whigh ? r.end : whigh;
    if (high <= wlow || whigh <= low) return;
    // The ranges may overlap, so compare repeat by repeat. last_write[byte - wlow]: 1 + the first repeat that wrote it.
    static thread_local std::vector<uint32_t> last_write;
    last_write.assign(whigh - wlow, 0);
    const Layout both[2] = {to, from};
    const uint32_t unit = kBlockBytes / (to.element > from.element ? to.element : from.element);
    const bool narrows = may_narrow && at == source && to.element < from.element;
    bool warns = false;
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_stretch(r, unit, [&](uint32_t lane, uint32_t n) {
            const int64_t begin = at + both[0].offset(r, lane) - wlow;
            for (int64_t b = begin; b < begin + n * to.element; ++b)
                if (!last_write[b]) last_write[b] = r + 1;
        });
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_stretch(r, unit, [&](uint32_t lane, uint32_t n) {
            const uint32_t begin = source + both[1].offset(r, lane);
            const bool same = begin == at + both[0].offset(r, lane) && to.element == from.element;
            for (uint32_t b = begin; b < begin + n * from.element; ++b) {
                if (b < wlow || b >= whigh || !last_write[b - wlow]) continue;
                const uint32_t writer = last_write[b - wlow] - 1;
                if (writer < r)
                    return broken(Rule::Overlap02, "repeat %u reads UB byte %u of `%s`, which repeat %u wrote as `%s`.",
                                  r, b, src.name, writer, dst.name);
                if (writer == r && narrows)
                    warns = true;
                else if (writer == r && !same)
                    return broken(Rule::Overlap01,
                                  "`%s` and `%s` overlap in repeat %u (UB byte %u) without being the "
                                  "same memory.",
                                  dst.name, src.name, r, b);
            }
        });
    if (warns) broken(Rule::Overlap03, "the narrower `%s` overlaps a part of `%s`.", dst.name, src.name);
}

// For APIs that allow no overlap.
inline void check_apart(const char* dst, Range to, const char* src, Range from) {
    if (to.begin < from.end && from.begin < to.end)
        broken(Rule::Overlap01, "`%s` (UB bytes [%u, %u)) and `%s` ([%u, %u)) must not overlap.", dst,
               unsigned(to.begin), unsigned(to.end), src, unsigned(from.begin), unsigned(from.end));
}

}  // namespace ascend_sim
