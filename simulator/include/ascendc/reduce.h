// WholeReduceSum, BlockReduceSum, PairReduceSum, RepeatReduceSum, ReduceSum: sums of lanes.
//
// Rules: half and float. src is aligned to 32 bytes; dst to an element for whole repeats, to eight elements for
// blocks, to 32 bytes for pairs. dst is disjoint from the data that a later repeat reads. dst in its own repeat's data
// only warns: no reduction's result can be the same memory, which the page of overlaps asks for. ReduceSum's
// work tensor holds one element per repeat, rounded up to 32 bytes; a sum without a second tree does not use it.
// Meaning: within a block or a repeat, a binary tree over neighbours, ((e0 + e1) + (e2 + e3)) + ...; half
// rounds each sum. Masked lanes are skipped; a result without active lanes leaves dst unchanged (on Ascend950 a
// block or pair becomes 0). ReduceSum then adds the repeats: sequentially (count form on Ascend910B), by a
// second tree, or lane by lane before the tree (Ascend950, count form of 256 .. 1024 bytes).
// Cost: a whole repeat's reduction, less for blocks and pairs. ReduceSum's count form on Ascend910B
// waits for the vector unit, and the scalar unit stores its result.
#pragma once

#include "ascendc/arithmetic.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// The tree sum of the active lanes among v[0, n), n a power of two; false if no lane is active.
template <class T, class F>
bool tree_sum(const T* v, uint32_t n, const Arithmetic<T>& type, F is_active, T* sum) {
    T values[kRepeatBytes / sizeof(T)];
    bool active[kRepeatBytes / sizeof(T)];
    for (uint32_t i = 0; i < n; ++i) {
        values[i] = v[i];
        active[i] = is_active(i);
    }
    for (; n > 1; n /= 2)
        for (uint32_t i = 0; i < n / 2; ++i) {
            const uint32_t a = 2 * i, b = a + 1;
            if (active[a] && active[b])
                values[i] = type.narrow(type.widen(values[a]) + type.widen(values[b]));
            else
                values[i] = active[a] ? values[a] : values[b];
            active[i] = active[a] || active[b];
        }
    *sum = values[0];
    return active[0];
}

// Loads the active lanes of one repeat; the other elements of `to` keep their values.
template <class T>
void load_repeat(const AscendC::LocalTensor<T>& src, const Layout& layout, const Lanes& lanes, uint32_t repeat, T* to) {
    lanes.for_each_stretch(repeat, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t n) {
        std::memcpy(to + lane, src.data() + layout.offset(repeat, lane) / sizeof(T), n * sizeof(T));
    });
}

inline void check_int_stride(const char* name, int64_t value) {
    if (value < 0 || value > 65535)
        broken(Rule::Stride01, "%s must be 0 .. 65535 but got %lld.", name, static_cast<long long>(value));
}

// Checks that no repeat writes bytes that it or a later repeat reads. own_only_warns: of its own bytes.
inline void check_reduce_overlap(const std::vector<std::vector<Range>>& read,
                                 const std::vector<std::vector<Range>>& written, bool own_only_warns = false) {
    bool warns = false;
    for (size_t w = 0; w < written.size(); ++w)
        for (const Range& to : written[w])
            for (size_t r = w; r < read.size(); ++r)
                for (const Range& from : read[r]) {
                    if (to.begin >= from.end || from.begin >= to.end) continue;
                    if (r > w || !own_only_warns)
                        return broken(r == w ? Rule::Overlap01 : Rule::Overlap02,
                                      "repeat %zu writes UB bytes [%u, %u) of `dst`, which repeat %zu reads as `src`.",
                                      w, unsigned(to.begin), unsigned(to.end), r);
                    warns = true;
                }
    if (warns) broken(Rule::Overlap03, "`dst` overlaps a part of the `src` of its own repeat.");
}

enum class Group { Repeat, Block, Pair };

template <class T, Group group>
constexpr uint32_t kGroupLanes = group == Group::Repeat  ? kRepeatBytes / sizeof(T)
                                 : group == Group::Block ? kBlockBytes / sizeof(T)
                                                         : 2;

// Each group of lanes of a repeat gives a result of `unit` bytes; a repeat's results are contiguous.
// result(values, is_active, to) stores the result of the lanes for which is_active(lane); on Ascend950 also of a block
// or pair without such lanes.
template <Group group, class T, class D, class F>
void reduce_groups(const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<T>& src, const Lanes& lanes,
                   int64_t dst_stride, int64_t src_block, int64_t src_repeat, uint32_t unit, F result) {
    constexpr bool kWhole = group == Group::Repeat, kBlocks = group == Group::Block;
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T), kGroup = kGroupLanes<T, group>, kGroups = kLanes / kGroup;
    // A block's sum of half takes as long as that of a whole repeat.
    constexpr Cost kCost = kBlocks && sizeof(T) == 4 ? Cost::BlockReduce : Cost::WholeReduce;
    check_int_stride("dstRepStride", dst_stride);
    check_int_stride("srcBlkStride", src_block);
    check_int_stride("srcRepStride", src_repeat);
    const uint32_t to = dst.view().addr;
    check_aligned("dst", to, kWhole ? unit : kBlocks ? 8 * uint32_t(sizeof(T)) : kBlockBytes, Rule::Align02);
    const Operand<T> from{"src", src, uint32_t(src_block), uint32_t(src_repeat)};
    const Layout layout = layout_of(from, lanes);
    check_source(from, lanes);
    // The groups that have active lanes, and the places of each repeat's results.
    constexpr bool kFillsEmpty = kIs950 && !kWhole;
    auto has_lanes = [&](uint32_t r, uint32_t g) {
        if (kFillsEmpty) return true;
        for (uint32_t i = 0; i < kGroup; ++i)
            if (lanes.is_active(r, g * kGroup + i)) return true;
        return false;
    };
    auto place = [&](uint32_t r, uint32_t g) { return to + uint32_t((r * dst_stride * kGroups + g) * unit); };
    std::vector<std::vector<Range>> read(lanes.repeats()), written(lanes.repeats());
    std::vector<Range> all;
    for (uint32_t r = 0; r < lanes.repeats(); ++r) {
        lanes.for_each_stretch(r, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t n) {
            const uint32_t begin = src.view().addr + layout.offset(r, lane);
            read[r].push_back({begin, uint32_t(begin + n * sizeof(T))});
        });
        for (uint32_t g = 0; g < kGroups; ++g)
            if (has_lanes(r, g)) {
                const uint32_t begin = place(r, g), end = begin + unit;
                if (!written[r].empty() && written[r].back().end == begin)
                    written[r].back().end = end;
                else
                    written[r].push_back({begin, end});
            }
        for (const Range& w : written[r])
            if (!all.empty() && all.back().end == w.begin)
                all.back().end = w.end;
            else
                all.push_back(w);
    }
    check_reduce_overlap(read, written, true);
    writes("dst", dst.view(), all.data(), all.size());
    for (uint32_t r = 0; r < lanes.repeats(); ++r) {
        T values[kLanes] = {};
        load_repeat(src, layout, lanes, r, values);
        for (uint32_t g = 0; g < kGroups; ++g)
            if (has_lanes(r, g))
                result(
                    values + g * kGroup, [&](uint32_t i) { return lanes.is_active(r, g * kGroup + i); },
                    ub() + place(r, g));
    }
    finish_vector(lanes.repeats(), cycles_of(kCost), lanes.has_tail(), kCost);
}

template <Group group, class T>
void sum_groups(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Lanes& lanes,
                int64_t dst_stride, int64_t src_block, int64_t src_repeat) {
    const Arithmetic<T> type;
    reduce_groups<group>(dst, src, lanes, dst_stride, src_block, src_repeat, sizeof(T),
                         [&](const T* values, auto is_active, uint8_t* to) {
                             T sum;
                             if (!tree_sum(values, kGroupLanes<T, group>, type, is_active, &sum)) sum = T(0.0f);
                             std::memcpy(to, &sum, sizeof sum);
                         });
}

// ---- ReduceSum: the sum of all elements ----------------------------------------------------------------

enum class RepeatOrder { Sequential, Tree, Lanewise };

// The sums of the repeats, or of one repeat of lanewise sums.
template <class T>
std::vector<T> repeat_sums(const AscendC::LocalTensor<T>& src, const Layout& layout, const Lanes& lanes,
                           bool lanewise) {
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T);
    const Arithmetic<T> type;
    std::vector<T> sums;
    T merged[kLanes] = {};
    bool merged_active[kLanes] = {};
    for (uint32_t r = 0; r < lanes.repeats(); ++r) {
        T values[kLanes] = {};
        load_repeat(src, layout, lanes, r, values);
        if (lanewise) {
            for (uint32_t i = 0; i < kLanes; ++i) {
                if (!lanes.is_active(r, i)) continue;
                merged[i] = merged_active[i] ? type.narrow(type.widen(merged[i]) + type.widen(values[i])) : values[i];
                merged_active[i] = true;
            }
            continue;
        }
        T sum;
        if (tree_sum(values, kLanes, type, [&](uint32_t i) { return lanes.is_active(r, i); }, &sum))
            sums.push_back(sum);
    }
    T sum;
    if (lanewise && tree_sum(merged, kLanes, type, [&](uint32_t i) { return merged_active[i]; }, &sum))
        sums.push_back(sum);
    return sums;
}

// A register's lowest bytes as a T.
template <class T>
T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T sum_of_sums(std::vector<T> sums, bool sequential) {
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T);
    const Arithmetic<T> type;
    if (sequential) {
        for (size_t i = 1; i < sums.size(); ++i) sums[0] = type.narrow(type.widen(sums[0]) + type.widen(sums[i]));
        return sums[0];
    }
    while (sums.size() > 1) {
        std::vector<T> next;
        for (size_t first = 0; first < sums.size(); first += kLanes) {
            T chunk[kLanes] = {}, sum;
            const uint32_t n = uint32_t(sums.size() - first < kLanes ? sums.size() - first : kLanes);
            for (uint32_t i = 0; i < n; ++i) chunk[i] = sums[first + i];
            tree_sum(chunk, kLanes, type, [n](uint32_t i) { return i < n; }, &sum);
            next.push_back(sum);
        }
        sums.swap(next);
    }
    return sums[0];
}

template <class T>
void reduce_sum(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                const AscendC::LocalTensor<T>& work, const Lanes& lanes, uint32_t src_repeat, RepeatOrder order,
                bool uses_work, Site site) {
    ASCEND_SIM_NEEDS(ReduceSum, T);
    check_aligned("dst", dst.view().addr, sizeof(T), Rule::Align02);
    const Operand<T> from{"src", src, 1, src_repeat};
    const Range result{dst.view().addr, int64_t(dst.view().addr + sizeof(T))};
    check_source(from, lanes);
    if (lanes.empty()) return finish_vector(0, 0);
    const auto& read = ranges_of(lanes, layout_of(from, lanes), src.view().addr);
    const Range all{read.front().begin, read.back().end};
    check_apart("dst", result, "src", all);
    if (uses_work) {
        const uint32_t needed = (lanes.repeats() * uint32_t(sizeof(T)) + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
        check_aligned("sharedTmpBuffer", work.view().addr);
        if (work.view().bytes < needed)
            broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", needed, work.view().bytes);
        const Range used{work.view().addr, int64_t(work.view().addr + lanes.repeats() * sizeof(T))};
        check_apart("sharedTmpBuffer", used, "src", all);
        writes("sharedTmpBuffer", work.view(), &used, 1);
    }
    const T sum = sum_of_sums(repeat_sums(src, layout_of(from, lanes), lanes, order == RepeatOrder::Lanewise),
                              order == RepeatOrder::Sequential);
    const double cycles = cycles_of(Cost::WholeReduce);
    if (lanes.is_count_form()) {
        uint64_t register_bits = 0;
        std::memcpy(&register_bits, &sum, sizeof sum);
        set_sum_register(register_bits);  // ready, because the count form waits for it
    }
    if (order == RepeatOrder::Sequential) {  // the sum is in a register, so the scalar unit stores it
        finish_vector(lanes.repeats(), cycles, lanes.has_tail(), Cost::WholeReduce);
        hand_over(Pipe::V, Pipe::S, "ReduceSum", site);
        start(Pipe::S, "ReduceSum", site);
        writes("dst", dst.view(), &result, 1);
        std::memcpy(ub() + result.begin, &sum, sizeof sum);
        finish_scalar(cycles_of(Cost::ScalarUb));
        hand_over(Pipe::S, Pipe::V, "ReduceSum", site);
        hand_over(Pipe::S, Pipe::MTE3, "ReduceSum", site);
        return;
    }
    writes("dst", dst.view(), &result, 1);
    std::memcpy(ub() + result.begin, &sum, sizeof sum);
    finish_vector(lanes.repeats() + (lanes.repeats() > 1), cycles, lanes.has_tail(), Cost::WholeReduce);
}

}  // namespace ascend_sim

namespace AscendC {

// A and B: the parameters mask and repeat, in the API's order.
#define ASCEND_SIM_REDUCE(Name, group, A, B)                                                                       \
    template <class T, bool isSetMask = true>                                                                      \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, A, B, const int32_t dstRepStride,              \
              const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_SIM_SITE) {                           \
        ASCEND_SIM_NEEDS(Name, T);                                                                                 \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                       \
        ascend_sim::sum_groups<ascend_sim::Group::group>(                                                          \
            dst, src, ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, uint64_t(repeat)), dstRepStride, \
            srcBlkStride, srcRepStride);                                                                           \
    }

ASCEND_SIM_REDUCE(WholeReduceSum, Repeat, ascend_sim::ConstMask mask, const int32_t repeat)
ASCEND_SIM_REDUCE(BlockReduceSum, Block, const int32_t repeat, ascend_sim::ConstMask mask)
ASCEND_SIM_REDUCE(PairReduceSum, Pair, const int32_t repeat, ascend_sim::ConstMask mask)

template <class T, bool isSetMask = true>
void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat,
                     const int32_t elemsInOneRepeat, const int32_t /*dstBlkStride*/, const int32_t srcBlkStride,
                     const int32_t dstRepStride, const int32_t srcRepStride, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(RepeatReduceSum, T);
    ascend_sim::start(ascend_sim::Pipe::V, "RepeatReduceSum", site);
    ascend_sim::sum_groups<ascend_sim::Group::Repeat>(
        dst, src,
        ascend_sim::repeat_lanes<isSetMask>("RepeatReduceSum", sizeof(T),
                                            ascend_sim::ConstMask(uint64_t(elemsInOneRepeat)), uint64_t(repeat)),
        dstRepStride, srcBlkStride, srcRepStride);
}

template <class T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               const int32_t count, ASCEND_SIM_SITE) {
    using ascend_sim::RepeatOrder;
    ascend_sim::start(ascend_sim::Pipe::V, "ReduceSum", site);
    const uint64_t bytes = uint64_t(count < 0 ? 0 : count) * sizeof(T);
    const RepeatOrder order = ascend_sim::kIs910b                                   ? RepeatOrder::Sequential
                              : ascend_sim::kIs950 && bytes >= 256 && bytes <= 1024 ? RepeatOrder::Lanewise
                                                                                    : RepeatOrder::Tree;
    ascend_sim::reduce_sum(dst, src, sharedTmpBuffer, ascend_sim::count_lanes<isSetMask>(sizeof(T), count), 8, order,
                           order == RepeatOrder::Tree, site);
}

template <class T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               ascend_sim::ConstMask mask, const int32_t repeatTime, const int32_t srcRepStride, ASCEND_SIM_SITE) {
    constexpr uint64_t kMostRepeats = 0x7fffffff;  // ReduceSum splits more than 255 repeats itself
    ascend_sim::start(ascend_sim::Pipe::V, "ReduceSum", site);
    const auto lanes = ascend_sim::repeat_lanes<true>("ReduceSum", sizeof(T), mask, uint64_t(repeatTime), kMostRepeats);
    ascend_sim::check_int_stride("srcRepStride", srcRepStride);
    ascend_sim::reduce_sum(dst, src, sharedTmpBuffer, lanes, uint32_t(srcRepStride), ascend_sim::RepeatOrder::Tree,
                           true, site);
}

// The register's bits, which hold the last sum of ReduceSum's count form.
inline int64_t GetReduceRepeatSumSpr(ASCEND_SIM_SITE) {
    return int64_t(ascend_sim::sum_register("GetReduceRepeatSumSpr", site));
}
inline int64_t GetAccVal(ASCEND_SIM_SITE) { return int64_t(ascend_sim::sum_register("GetAccVal", site)); }
// The sum, in the type of ReduceSum's elements.
template <class T>
T GetReduceRepeatSumSpr(ASCEND_SIM_SITE) {
    return ascend_sim::from_bits<T>(ascend_sim::sum_register("GetReduceRepeatSumSpr", site));
}
template <class T>
T GetAccVal(ASCEND_SIM_SITE) {
    return ascend_sim::from_bits<T>(ascend_sim::sum_register("GetAccVal", site));
}

}  // namespace AscendC
