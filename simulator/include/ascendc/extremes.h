// WholeReduceMax, WholeReduceMin, BlockReduceMax, BlockReduceMin, ReduceMax, ReduceMin: the maximum or minimum of
// lanes. Also the newer names of the reductions of repeats, blocks and pairs: ReduceRepeat, ReduceDataBlock,
// ReducePairElem. "ReduceMax" below includes ReduceMin.
//
// Rules: types by SoC. src is aligned to 32 bytes. In reductions of repeats and in ReduceMax, dst is aligned to the
// size of a result; in reductions of blocks, to eight elements. dst is disjoint from the data that the same or a later
// repeat reads. In count forms an overlap only warns, because their pages do not forbid it. ReduceMax's work tensor
// holds the pairs of each round, aligned to 32 bytes; it may be dst or src, and Ascend950 does not use it. An index of
// half is at most 65535. Ascend310P has neither ORDER_ONLY_VALUE nor ORDER_ONLY_INDEX.
// Meaning: ReduceOrder selects value, index or both. The index has as many bits as the value, but 32 bits with
// ORDER_ONLY_INDEX. If values are equal, the smallest index is the result. A NaN is both maximum and minimum; where
// half saturates, infinities count as the largest value, NaN as 0. A repeat or block without active lanes leaves dst
// unchanged; on Ascend950 such a block becomes infinite. ReduceMax leaves its work tensor undefined. If the repeats are
// contiguous, the registers of GetReduceRepeatMaxMinSpr hold the extremum of all repeats and its index; after
// ReduceMax, the index is undefined.
// Cost: that of the sums. ReduceMax waits for the vector unit, and the scalar unit stores the result. The vector unit
// stores it on Ascend950, and if the result has the index of a single repeat; in that case the work tensor is not used.
// Sources: the pages ReduceRepeat, ReduceDataBlock, ReduceMax, ReduceMin, GetReduceRepeatMaxMinSpr, the table of
// boundary values; asc-devkit impl/basic_api/dav_c220/kernel_operator_vec_reduce_impl.h for the pipes of ReduceMax.
#pragma once

#include <limits>

#include "ascendc/reduce.h"

namespace AscendC {
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class ReduceType { NONE = -1, SUM = 0, MAX, MIN };
}  // namespace AscendC

namespace ascend_sim {

using AscendC::ReduceOrder;

// The unsigned integer with the size of T.
template <class T>
using UnsignedOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T, bool kMax>
class Extremum {
public:
    // Takes the next value into account. The first of equal values remains.
    void add(T value, uint64_t index) {
        if constexpr (std::is_same_v<T, half>) value.raw = clamp_half(value.raw, type_.saturate);
        if (has_value_ && !is_better(type_.widen(value), type_.widen(value_))) return;
        value_ = value;
        index_ = index;
        has_value_ = true;
    }
    bool has_value() const { return has_value_; }
    T value() const { return value_; }
    uint64_t index() const { return index_; }

    // The result without active lanes, on Ascend950.
    static T of_no_lanes() {
        if constexpr (std::is_integral_v<T>)
            return kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
        else
            return T(kMax ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity());
    }

private:
    template <class Wide>
    static bool is_better(Wide value, Wide best) {
        if (best != best) return false;  // NaN
        return value != value || (kMax ? value > best : value < best);
    }
    Arithmetic<T> type_;
    bool has_value_ = false;
    T value_{};
    uint64_t index_ = 0;
};

template <class T>
void store_extremum_register(T value, uint64_t index) {
    ExtremumRegister contents{0, index};
    std::memcpy(&contents.value, &value, sizeof value);
    set_extremum_register(&contents);
}

// The bytes of a result.
template <class T>
uint32_t result_bytes(ReduceOrder order) {
    if (order == ReduceOrder::ORDER_ONLY_VALUE) return sizeof(T);
    return order == ReduceOrder::ORDER_ONLY_INDEX ? 4 : 2 * sizeof(T);
}

template <class T>
void store_extremum(uint8_t* to, ReduceOrder order, T value, uint64_t index) {
    const UnsignedOf<T> index_beside_value = UnsignedOf<T>(index);
    const uint32_t index_alone = uint32_t(index);
    if (order == ReduceOrder::ORDER_ONLY_INDEX) return void(std::memcpy(to, &index_alone, sizeof index_alone));
    const bool index_first = order == ReduceOrder::ORDER_INDEX_VALUE;
    std::memcpy(to + (index_first ? sizeof(T) : 0), &value, sizeof value);
    if (order != ReduceOrder::ORDER_ONLY_VALUE)
        std::memcpy(to + (index_first ? 0 : sizeof(T)), &index_beside_value, sizeof index_beside_value);
}

template <Group group, bool kMax, class T>
void extreme_groups(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Lanes& lanes,
                    int64_t dst_repeat_stride, int64_t src_block_stride, int64_t src_repeat_stride, ReduceOrder order) {
    constexpr bool kIsRepeat = group == Group::Repeat;
    constexpr uint32_t kGroupSize = kGroupLanes<T, group>;
    if (uint32_t(order) > 3 || (kIs310p && kIsRepeat && order > ReduceOrder::ORDER_INDEX_VALUE))
        broken(Rule::Mode01, "this SoC does not have ReduceOrder %d.", int(order));
    Extremum<T, kMax> all_repeats;
    uint64_t groups = 0;
    reduce_groups<group>(
        dst, src, lanes, dst_repeat_stride, src_block_stride, src_repeat_stride,
        kIsRepeat ? result_bytes<T>(order) : sizeof(T), [&](const T* values, auto is_active, uint8_t* to) {
            Extremum<T, kMax> found;
            for (uint32_t i = 0; i < kGroupSize; ++i)
                if (is_active(i)) found.add(values[i], i);
            const T value = found.has_value() ? found.value() : Extremum<T, kMax>::of_no_lanes();
            store_extremum(to, kIsRepeat ? order : ReduceOrder::ORDER_ONLY_VALUE, value, found.index());
            if (found.has_value()) all_repeats.add(value, groups * kGroupSize + found.index());
            ++groups;
        });
    if (!kIsRepeat) return;
    if (all_repeats.has_value() && src_block_stride == 1 && src_repeat_stride == 8 && !mask_register().counter)
        store_extremum_register(all_repeats.value(), all_repeats.index());
    else
        set_extremum_register(nullptr);
}

// ---- ReduceMax, ReduceMin ------------------------------------------------------------------------------

// The number of elements of ReduceMax's work tensor for this number of repeats.
template <class T>
uint32_t extremum_work(uint32_t repeats, bool has_index) {
    constexpr uint32_t kElementsPerBlock = kBlockBytes / sizeof(T), kLanes = kRepeatBytes / sizeof(T);
    auto whole_blocks = [](uint32_t count) {
        return (count + kElementsPerBlock - 1) / kElementsPerBlock * kElementsPerBlock;
    };
    uint32_t round_output = 2 * repeats, elements = whole_blocks(round_output);
    if (!has_index) return elements;
    do {  // at least one further round
        round_output = (round_output + kLanes - 1) / kLanes * 2;
        elements += whole_blocks(round_output);
    } while (round_output > 2);
    return elements;
}

// The number of repeats in the page's formula for the work tensor: only whole ones of a count form, but at least one.
inline uint32_t whole_repeats(const Lanes& lanes) {
    const uint64_t whole = lanes.is_count_form() ? lanes.count() / lanes.per_repeat() : lanes.repeats();
    return whole ? uint32_t(whole) : 1;
}

template <class T>
void check_extremum_work(const AscendC::LocalTensor<T>& work, const Lanes& lanes, bool has_index, bool is_used) {
    const uint32_t work_addr = work.view().addr;
    const uint32_t needed = extremum_work<T>(whole_repeats(lanes), has_index) * uint32_t(sizeof(T));
    check_aligned("sharedTmpBuffer", work_addr);
    if (work.view().bytes < needed)
        broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", needed, work.view().bytes);
    if (!is_used) return;
    const Range used{work_addr, int64_t(work_addr) + (needed < work.view().bytes ? needed : work.view().bytes)};
    writes("sharedTmpBuffer", work.view(), &used, 1);
    poison(used);
}

template <bool kMax, class T>
void extreme_of_all(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<T>& work, const Lanes& lanes, uint32_t src_repeat_stride, bool has_index,
                    Site site) {
    const uint32_t dst_addr = dst.view().addr, dst_bytes = uint32_t(sizeof(T)) * (has_index ? 2 : 1);
    check_aligned("dst", dst_addr, dst_bytes, Rule::Align02);
    const Operand<T> from{"src", src, 1, src_repeat_stride};
    check_source(from, lanes);
    if (lanes.empty()) return finish_vector(0, 0);
    const Layout layout = layout_of(from, lanes);
    const auto& read = ranges_of(lanes, layout, src.view().addr);
    const Range result{dst_addr, int64_t(dst_addr) + dst_bytes}, read_range{read.front().begin, read.back().end};
    check_reduced(result, read_range, lanes);
    Extremum<T, kMax> found;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t lane_count) {
            const uint32_t first_element = layout.offset(repeat, lane) / uint32_t(sizeof(T));
            for (uint32_t i = 0; i < lane_count; ++i) found.add(src.data()[first_element + i], first_element + i);
        });
    if (std::is_same_v<T, half> && has_index && found.index() > 65535)
        broken(Rule::Count04, "an index of half is at most 65535 but this one is %llu.",
               static_cast<unsigned long long>(found.index()));
    const bool contiguous = src_repeat_stride == 8 && !mask_register().counter;
    const bool vector_stores = kIs950 || (has_index && lanes.repeats() == 1);
    if (!kIs950) check_extremum_work(work, lanes, has_index, !vector_stores);
    if (kIs950 || !contiguous)
        set_extremum_register(nullptr);
    else
        store_extremum_register(found.value(), ~0ull);
    const auto store = [&] {
        writes("dst", dst.view(), &result, 1);
        store_extremum(ub() + dst_addr, has_index ? ReduceOrder::ORDER_VALUE_INDEX : ReduceOrder::ORDER_ONLY_VALUE,
                       found.value(), found.index());
    };
    if (vector_stores) store();
    finish_vector(lanes.repeats() + (lanes.repeats() > 1), cycles_of(Cost::WholeReduce), lanes.has_tail(),
                  Cost::WholeReduce);
    if (vector_stores) return;
    hand_over(Pipe::V, Pipe::S, api, site);
    start(Pipe::S, api, site);
    store();
    finish_scalar(cycles_of(Cost::ScalarUb));
    hand_over(Pipe::S, Pipe::V, api, site);
    hand_over(Pipe::S, Pipe::MTE3, api, site);
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_EXTREMUM(Kind, kMax)                                                                                \
    template <class T, bool isSetMask = true>                                                                          \
    void WholeReduce##Kind(const LocalTensor<T>& dst, const LocalTensor<T>& src, ascend_sim::ConstMask mask,           \
                           const int32_t repeatTime, const int32_t dstRepStride, const int32_t srcBlkStride,           \
                           const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX,             \
                           ASCEND_SIM_SITE) {                                                                          \
        ASCEND_SIM_NEEDS(WholeReduce##Kind, T);                                                                        \
        ascend_sim::start(ascend_sim::Pipe::V, "WholeReduce" #Kind, site);                                             \
        ascend_sim::extreme_groups<ascend_sim::Group::Repeat, kMax>(                                                   \
            dst, src, ascend_sim::repeat_lanes<isSetMask>("WholeReduce" #Kind, sizeof(T), mask, uint64_t(repeatTime)), \
            dstRepStride, srcBlkStride, srcRepStride, order);                                                          \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void BlockReduce##Kind(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,             \
                           ascend_sim::ConstMask mask, const int32_t dstRepStride, const int32_t srcBlkStride,         \
                           const int32_t srcRepStride, ASCEND_SIM_SITE) {                                              \
        ASCEND_SIM_NEEDS(BlockReduce##Kind, T);                                                                        \
        ascend_sim::start(ascend_sim::Pipe::V, "BlockReduce" #Kind, site);                                             \
        ascend_sim::extreme_groups<ascend_sim::Group::Block, kMax>(                                                    \
            dst, src, ascend_sim::repeat_lanes<isSetMask>("BlockReduce" #Kind, sizeof(T), mask, uint64_t(repeatTime)), \
            dstRepStride, srcBlkStride, srcRepStride, ReduceOrder::ORDER_ONLY_VALUE);                                  \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Reduce##Kind(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,     \
                      const int32_t count, bool calIndex = false, ASCEND_SIM_SITE) {                                   \
        ASCEND_SIM_NEEDS(Reduce##Kind, T);                                                                             \
        ascend_sim::start(ascend_sim::Pipe::V, "Reduce" #Kind, site);                                                  \
        ascend_sim::extreme_of_all<kMax>("Reduce" #Kind, dst, src, sharedTmpBuffer,                                    \
                                         ascend_sim::count_lanes<true>(sizeof(T), count), 8, calIndex, site);          \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Reduce##Kind(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,     \
                      ascend_sim::ConstMask mask, const int32_t repeatTime, const int32_t srcRepStride,                \
                      bool calIndex = false, ASCEND_SIM_SITE) {                                                        \
        static_assert(sizeof(T) < 8 && ascend_sim::kTakes<T, ascend_sim::Api::Reduce##Kind>,                           \
                      "Reduce" #Kind ": this SoC does not have it for this type");                                     \
        constexpr uint64_t kMaxRepeats = 0x7fffffff; /* the API splits more than 255 repeats itself */                 \
        ascend_sim::start(ascend_sim::Pipe::V, "Reduce" #Kind, site);                                                  \
        ascend_sim::check_int_stride("srcRepStride", srcRepStride);                                                    \
        ascend_sim::extreme_of_all<kMax>(                                                                              \
            "Reduce" #Kind, dst, src, sharedTmpBuffer,                                                                 \
            ascend_sim::repeat_lanes<true>("Reduce" #Kind, sizeof(T), mask, uint64_t(repeatTime), kMaxRepeats),        \
            uint32_t(srcRepStride), calIndex, site);                                                                   \
    }

ASCEND_SIM_EXTREMUM(Max, true)
ASCEND_SIM_EXTREMUM(Min, false)

// ---- the newer names of reductions of repeats, blocks and pairs -------------------------------------------

namespace sim_detail {

template <ReduceType type, ascend_sim::Group group, class T, class U>
void reduce(const LocalTensor<T>& dst, const LocalTensor<U>& src, const ascend_sim::Lanes& lanes, int32_t dstRepStride,
            int32_t srcBlkStride, int32_t srcRepStride, ReduceOrder order) {
    static_assert(std::is_same_v<T, U>, "the simulator reduces to the type of the source");
    if constexpr (type == ReduceType::SUM)
        ascend_sim::sum_groups<group>(dst, src, lanes, dstRepStride, srcBlkStride, srcRepStride);
    else
        ascend_sim::extreme_groups<group, type == ReduceType::MAX>(dst, src, lanes, dstRepStride, srcBlkStride,
                                                                   srcRepStride, order);
}

}  // namespace sim_detail

#define ASCEND_SIM_REDUCE_ALIAS(Name, group, condition)                                                                \
    template <ReduceType reduceType, class T, class U = T, bool isSetMask = true>                                      \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, ascend_sim::Mask mask, const int32_t repeatTime,   \
              const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                      \
              ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ASCEND_SIM_SITE) {                                   \
        static_assert(condition, #Name ": this SoC does not have it for this type and reduction");                     \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::reduce<reduceType, ascend_sim::Group::group>(                                                      \
            dst, src, ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(U), mask, uint64_t(repeatTime)), dstRepStride, \
            srcBlkStride, srcRepStride, order);                                                                        \
    }

ASCEND_SIM_REDUCE_ALIAS(ReduceRepeat, Repeat,
                        (ascend_sim::kTakes < U, reduceType == ReduceType::SUM
                                                     ? ascend_sim::Api::ReduceRepeat
                                                     : ascend_sim::Api::ReduceRepeatExtremum >))
ASCEND_SIM_REDUCE_ALIAS(ReduceDataBlock, Block, (ascend_sim::kTakes<U, ascend_sim::Api::ReduceDataBlock>))
ASCEND_SIM_REDUCE_ALIAS(ReducePairElem, Pair,
                        (reduceType == ReduceType::SUM && ascend_sim::kTakes<U, ascend_sim::Api::ReducePairElem>))

// ---- the registers -----------------------------------------------------------------------------------------

#define ASCEND_SIM_EXTREMUM_REGISTER(Name)                                                        \
    template <class T>                                                                            \
    void Name(T& maxMinValue, T& maxMinIndex, ASCEND_SIM_SITE) {                                  \
        ASCEND_SIM_NEEDS(GetExtremumAndIndex, T);                                                 \
        const ascend_sim::ExtremumRegister contents = ascend_sim::extremum_register(#Name, site); \
        maxMinValue = ascend_sim::from_bits<T>(contents.value);                                   \
        maxMinIndex = ascend_sim::from_bits<T>(contents.index);                                   \
    }                                                                                             \
    template <class T>                                                                            \
    void Name(T& maxMinValue, ASCEND_SIM_SITE) {                                                  \
        ASCEND_SIM_NEEDS(GetExtremum, T);                                                         \
        maxMinValue = ascend_sim::from_bits<T>(ascend_sim::extremum_register(#Name, site).value); \
    }

ASCEND_SIM_EXTREMUM_REGISTER(GetReduceRepeatMaxMinSpr)
ASCEND_SIM_EXTREMUM_REGISTER(GetReduceMaxMinCount)

}  // namespace AscendC
