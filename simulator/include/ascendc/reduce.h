// WholeReduceSum, BlockReduceSum, PairReduceSum, RepeatReduceSum, ReduceSum: sums of lanes.
//
// Rules: the types are half and float. src is aligned to 32 bytes. dst is aligned to an element in sums of repeats, to
// eight elements in sums of blocks, and to 32 bytes in sums of pairs. dst is disjoint from the data that a later repeat
// reads. An overlap of dst with the data of its own repeat only warns: the page of overlaps allows only the same
// memory, which a reduction can never have. It also only warns if the result of ReduceSum's count form overlaps src:
// the page is about the forms with repeats. ReduceSum's work tensor holds one element per repeat, rounded up to 32
// bytes; a sum without a second tree does not use it.
// Meaning: the sum of a block or a repeat is a binary tree of neighbours, ((e0 + e1) + (e2 + e3)) + ...; in half, each
// of these sums is rounded. Inactive lanes are skipped. A group without active lanes leaves dst unchanged; on Ascend950
// a block or pair without active lanes gives 0. ReduceSum then adds the sums of the repeats, in one of three orders. On
// Ascend910B, the count form adds them sequentially. On Ascend950, the count form of 256 .. 1024 bytes adds the repeats
// lane by lane before the tree. All other forms add the sums by a second tree.
// Cost: a whole repeat's reduction, less for blocks and pairs. ReduceSum's count form on Ascend910B waits for the
// vector unit, and the scalar unit stores its result.
#pragma once

#include "ascendc/arithmetic.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// Adds the active lanes of lane_values[0, count) as a tree; count is a power of two. Returns false if no lane is
// active.
template <class T, class F>
ASCEND_SIM_HOT bool tree_sum(const T* lane_values, uint32_t count, const Arithmetic<T>& type, F is_active, T* sum) {
    T values[kRepeatBytes / sizeof(T)];
    bool active[kRepeatBytes / sizeof(T)];
    for (uint32_t i = 0; i < count; ++i) {
        values[i] = lane_values[i];
        active[i] = is_active(i);
    }
    for (; count > 1; count /= 2)
        for (uint32_t i = 0; i < count / 2; ++i) {
            const uint32_t left = 2 * i, right = left + 1;
            if (active[left] && active[right])
                values[i] = type.narrow(type.widen(values[left]) + type.widen(values[right]));
            else
                values[i] = active[left] ? values[left] : values[right];
            active[i] = active[left] || active[right];
        }
    *sum = values[0];
    return active[0];
}

// Loads the active lanes of one repeat. The other elements of `to` keep their values.
template <class T>
void load_repeat(const AscendC::LocalTensor<T>& src, const Layout& layout, const Lanes& lanes, uint32_t repeat, T* to) {
    lanes.for_each_active_group(repeat, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t lane_count) {
        std::memcpy(to + lane, src.data() + layout.offset(repeat, lane) / sizeof(T), lane_count * sizeof(T));
    });
}

inline void check_int_stride(const char* name, int64_t value) {
    if (value < 0 || value > 65535)
        broken(Rule::Stride01, "%s must be 0 .. 65535 but got %lld.", name, static_cast<long long>(value));
}

// Checks that no repeat writes bytes that it or a later repeat reads. read[i] and written[i] have the ranges of repeat
// i. With own_repeat_warns, a repeat that writes bytes of its own source only warns.
inline void check_reduce_overlap(const std::vector<std::vector<Range>>& read,
                                 const std::vector<std::vector<Range>>& written, bool own_repeat_warns = false) {
    bool warns = false;
    for (size_t writer = 0; writer < written.size(); ++writer)
        for (const Range& to : written[writer])
            for (size_t reader = writer; reader < read.size(); ++reader)
                for (const Range& from : read[reader]) {
                    if (to.begin >= from.end || from.begin >= to.end) continue;
                    if (reader > writer || !own_repeat_warns)
                        return broken(reader == writer ? Rule::Overlap01 : Rule::Overlap02,
                                      "repeat %zu writes UB bytes [%u, %u) of `dst`, which repeat %zu reads as `src`.",
                                      writer, unsigned(to.begin), unsigned(to.end), reader);
                    warns = true;
                }
    if (warns) broken(Rule::Overlap03, "`dst` overlaps a part of the `src` of its own repeat.");
}

enum class Group { Repeat, Block, Pair };

template <class T, Group group>
constexpr uint32_t kGroupLanes = group == Group::Repeat  ? kRepeatBytes / sizeof(T)
                                 : group == Group::Block ? kBlockBytes / sizeof(T)
                                                         : 2;

// Each group of lanes of a repeat gives a result of `result_bytes` bytes; a repeat's results are contiguous.
// reduce(values, is_active, to) stores the result of the lanes for which is_active(lane). On Ascend950 it is also
// called for a block or pair without active lanes.
template <Group group, class T, class Result, class F>
ASCEND_SIM_HOT void reduce_groups(const AscendC::LocalTensor<Result>& dst, const AscendC::LocalTensor<T>& src,
                                  const Lanes& lanes, int64_t dst_repeat_stride, int64_t src_block_stride,
                                  int64_t src_repeat_stride, uint32_t result_bytes, F reduce) {
    constexpr bool kIsRepeat = group == Group::Repeat, kIsBlock = group == Group::Block;
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T), kGroupSize = kGroupLanes<T, group>,
                       kGroups = kLanes / kGroupSize;
    // A block's sum of half takes as long as that of a whole repeat.
    constexpr Cost kCost = kIsBlock && sizeof(T) == 4 ? Cost::BlockReduce : Cost::WholeReduce;
    check_int_stride("dstRepStride", dst_repeat_stride);
    check_int_stride("srcBlkStride", src_block_stride);
    check_int_stride("srcRepStride", src_repeat_stride);
    const uint32_t dst_addr = dst.view().addr;
    check_aligned("dst", dst_addr,
                  kIsRepeat  ? result_bytes
                  : kIsBlock ? 8 * uint32_t(sizeof(T))
                             : kBlockBytes,
                  Rule::Align02);
    const Operand<T> from{"src", src, uint32_t(src_block_stride), uint32_t(src_repeat_stride)};
    const Layout layout = layout_of(from, lanes);
    check_source(from, lanes);
    // Whether a group has a result, and the UB address of the result.
    constexpr bool kReducesEmpty = kIs950 && !kIsRepeat;
    auto has_result = [&](uint32_t repeat, uint32_t group_index) {
        if (kReducesEmpty) return true;
        for (uint32_t i = 0; i < kGroupSize; ++i)
            if (lanes.is_active(repeat, group_index * kGroupSize + i)) return true;
        return false;
    };
    auto address_of = [&](uint32_t repeat, uint32_t group_index) {
        return dst_addr + uint32_t((repeat * dst_repeat_stride * kGroups + group_index) * result_bytes);
    };
    std::vector<std::vector<Range>> read(lanes.repeats()), written(lanes.repeats());
    std::vector<Range> all_written;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
        lanes.for_each_active_group(repeat, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t lane_count) {
            const uint32_t begin = src.view().addr + layout.offset(repeat, lane);
            read[repeat].push_back({begin, uint32_t(begin + lane_count * sizeof(T))});
        });
        for (uint32_t group_index = 0; group_index < kGroups; ++group_index)
            if (has_result(repeat, group_index)) {
                const uint32_t begin = address_of(repeat, group_index), end = begin + result_bytes;
                if (!written[repeat].empty() && written[repeat].back().end == begin)
                    written[repeat].back().end = end;
                else
                    written[repeat].push_back({begin, end});
            }
        for (const Range& range : written[repeat])
            if (!all_written.empty() && all_written.back().end == range.begin)
                all_written.back().end = range.end;
            else
                all_written.push_back(range);
    }
    check_reduce_overlap(read, written, true);
    writes("dst", dst.view(), all_written.data(), all_written.size());
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
        T values[kLanes] = {};
        load_repeat(src, layout, lanes, repeat, values);
        for (uint32_t group_index = 0; group_index < kGroups; ++group_index)
            if (has_result(repeat, group_index))
                reduce(
                    values + group_index * kGroupSize,
                    [&](uint32_t i) { return lanes.is_active(repeat, group_index * kGroupSize + i); },
                    ub() + address_of(repeat, group_index));
    }
    finish_vector(lanes.repeats(), cycles_of(kCost), lanes.has_tail(), kCost);
}

template <Group group, class T>
void sum_groups(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Lanes& lanes,
                int64_t dst_repeat_stride, int64_t src_block_stride, int64_t src_repeat_stride) {
    const Arithmetic<T> type;
    reduce_groups<group>(dst, src, lanes, dst_repeat_stride, src_block_stride, src_repeat_stride, sizeof(T),
                         [&](const T* values, auto is_active, uint8_t* to) {
                             T sum;
                             if (!tree_sum(values, kGroupLanes<T, group>, type, is_active, &sum)) sum = T(0.0f);
                             std::memcpy(to, &sum, sizeof sum);
                         });
}

// ---- ReduceSum: the sum of all elements ----------------------------------------------------------------

enum class RepeatOrder { Sequential, Tree, LaneByLane };

// The sum of each repeat. With lane_by_lane, the repeats are first added lane by lane into one repeat.
template <class T>
std::vector<T> repeat_sums(const AscendC::LocalTensor<T>& src, const Layout& layout, const Lanes& lanes,
                           bool lane_by_lane) {
    constexpr uint32_t kLanes = kRepeatBytes / sizeof(T);
    const Arithmetic<T> type;
    std::vector<T> sums;
    T merged[kLanes] = {};
    bool merged_active[kLanes] = {};
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
        T values[kLanes] = {};
        load_repeat(src, layout, lanes, repeat, values);
        if (lane_by_lane) {
            for (uint32_t i = 0; i < kLanes; ++i) {
                if (!lanes.is_active(repeat, i)) continue;
                merged[i] = merged_active[i] ? type.narrow(type.widen(merged[i]) + type.widen(values[i])) : values[i];
                merged_active[i] = true;
            }
            continue;
        }
        T sum;
        if (tree_sum(values, kLanes, type, [&](uint32_t i) { return lanes.is_active(repeat, i); }, &sum))
            sums.push_back(sum);
    }
    T sum;
    if (lane_by_lane && tree_sum(merged, kLanes, type, [&](uint32_t i) { return merged_active[i]; }, &sum))
        sums.push_back(sum);
    return sums;
}

// The lowest bytes of a register as a T.
template <class T>
T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Adds the sums of the repeats, sequentially or as a tree. In the tree, as many sums as a repeat has lanes give one sum
// of the next level.
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
            const uint32_t count = uint32_t(sums.size() - first < kLanes ? sums.size() - first : kLanes);
            for (uint32_t i = 0; i < count; ++i) chunk[i] = sums[first + i];
            tree_sum(chunk, kLanes, type, [count](uint32_t i) { return i < count; }, &sum);
            next.push_back(sum);
        }
        sums.swap(next);
    }
    return sums[0];
}

template <class T>
void reduce_sum(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                const AscendC::LocalTensor<T>& work, const Lanes& lanes, uint32_t src_repeat_stride, RepeatOrder order,
                bool uses_work, Site site) {
    ASCEND_SIM_NEEDS(ReduceSum, T);
    check_aligned("dst", dst.view().addr, sizeof(T), Rule::Align02);
    const Operand<T> from{"src", src, 1, src_repeat_stride};
    const Range result{dst.view().addr, int64_t(dst.view().addr + sizeof(T))};
    check_source(from, lanes);
    if (lanes.empty()) return finish_vector(0, 0);
    const auto& read = ranges_of(lanes, layout_of(from, lanes), src.view().addr);
    const Range read_range{read.front().begin, read.back().end};
    check_reduced(result, read_range, lanes);
    if (uses_work) {
        const uint32_t needed = (lanes.repeats() * uint32_t(sizeof(T)) + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
        check_aligned("sharedTmpBuffer", work.view().addr);
        if (work.view().bytes < needed)
            broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", needed, work.view().bytes);
        const Range used{work.view().addr, int64_t(work.view().addr + lanes.repeats() * sizeof(T))};
        check_disjoint("sharedTmpBuffer", used, "src", read_range);
        writes("sharedTmpBuffer", work.view(), &used, 1);
    }
    const T sum = sum_of_sums(repeat_sums(src, layout_of(from, lanes), lanes, order == RepeatOrder::LaneByLane),
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

// first, second: the parameters mask and repeat, in the order of the API.
#define ASCEND_SIM_REDUCE(Name, group, first, second)                                                              \
    template <class T, bool isSetMask = true>                                                                      \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, first, second, const int32_t dstRepStride,     \
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
                              : ascend_sim::kIs950 && bytes >= 256 && bytes <= 1024 ? RepeatOrder::LaneByLane
                                                                                    : RepeatOrder::Tree;
    ascend_sim::reduce_sum(dst, src, sharedTmpBuffer, ascend_sim::count_lanes<isSetMask>(sizeof(T), count), 8, order,
                           order == RepeatOrder::Tree, site);
}

template <class T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               ascend_sim::ConstMask mask, const int32_t repeatTime, const int32_t srcRepStride, ASCEND_SIM_SITE) {
    constexpr uint64_t kMaxRepeats = 0x7fffffff;  // ReduceSum splits more than 255 repeats itself
    ascend_sim::start(ascend_sim::Pipe::V, "ReduceSum", site);
    const auto lanes = ascend_sim::repeat_lanes<true>("ReduceSum", sizeof(T), mask, uint64_t(repeatTime), kMaxRepeats);
    ascend_sim::check_int_stride("srcRepStride", srcRepStride);
    ascend_sim::reduce_sum(dst, src, sharedTmpBuffer, lanes, uint32_t(srcRepStride), ascend_sim::RepeatOrder::Tree,
                           true, site);
}

// The bits of the sum register: the last sum of ReduceSum's count form.
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
