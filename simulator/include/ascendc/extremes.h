// WholeReduceMax, WholeReduceMin, BlockReduceMax, BlockReduceMin, ReduceMax, ReduceMin: the largest or smallest of
// lanes. Also the newer names of the reductions of repeats, blocks and pairs: ReduceRepeat, ReduceDataBlock,
// ReducePairElem.
//
// Rules: types by SoC. src is aligned to 32 bytes; dst of whole repeats and of ReduceMax to its result, of blocks to
// eight elements. dst is disjoint from the data that the same or a later repeat reads; for count forms the pages do not
// say so, which only warns. ReduceMax's work tensor holds the pairs of each round, aligned to 32 bytes; it may be dst
// or src, and is not used on Ascend950. An index of half is at most 65535. Ascend310P has no order with one part only.
// Meaning: value and index, in the order's order; the index has the type's bits, ORDER_ONLY_INDEX a uint32. Equal
// values give the smallest index. A NaN wins; where half saturates, infinities count as the largest value, NaN as 0. A
// repeat without active lanes leaves dst unchanged, and so does a block; on Ascend950 a block becomes infinite.
// ReduceMax's work tensor is undefined afterwards. The registers of GetReduceRepeatMaxMinSpr hold the extremum of all
// repeats and its index, if they are contiguous; after ReduceMax, the index is undefined.
// Cost: as the sums. Except on Ascend950, and for the index of a single repeat, ReduceMax waits for the vector unit,
// and the scalar unit stores its result; the index of a single repeat needs no work tensor. Sources: the pages
// ReduceRepeat, ReduceDataBlock, ReduceMax, ReduceMin, GetReduceRepeatMaxMinSpr, the table of boundary values;
// asc-devkit impl/basic_api/dav_c220/kernel_operator_vec_reduce_impl.h for the pipes of ReduceMax.
#pragma once

#include <limits>

#include "ascendc/reduce.h"

namespace AscendC {
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class ReduceType { NONE = -1, SUM = 0, MAX, MIN };
}  // namespace AscendC

namespace ascend_sim {

using AscendC::ReduceOrder;

// An unsigned integer as wide as T.
template <class T>
using IndexOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T, bool kMax>
class Extremum {
public:
    // Offers the next value; a later one must be better.
    void offer(T v, uint64_t index) {
        if constexpr (std::is_same_v<T, half>) v.raw = clamp_half(v.raw, type_.saturate);
        if (any_ && !is_better(type_.widen(v), type_.widen(value_))) return;
        value_ = v;
        index_ = index;
        any_ = true;
    }
    bool any() const { return any_; }
    T value() const { return value_; }
    uint64_t index() const { return index_; }

    // The value of no lanes, on Ascend950.
    static T of_nothing() {
        if constexpr (std::is_integral_v<T>)
            return kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
        else
            return T(kMax ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity());
    }

private:
    template <class W>
    static bool is_better(W v, W than) {
        if (than != than) return false;
        return v != v || (kMax ? v > than : v < than);
    }
    Arithmetic<T> type_;
    bool any_ = false;
    T value_{};
    uint64_t index_ = 0;
};

template <class T>
void note_extremum(T value, uint64_t index) {
    ExtremumRegister r{0, index};
    std::memcpy(&r.value, &value, sizeof value);
    set_extremum_register(&r);
}

// Bytes of a result.
template <class T>
uint32_t unit_of(ReduceOrder order) {
    if (order == ReduceOrder::ORDER_ONLY_VALUE) return sizeof(T);
    return order == ReduceOrder::ORDER_ONLY_INDEX ? 4 : 2 * sizeof(T);
}

template <class T>
void store_extremum(uint8_t* to, ReduceOrder order, T value, uint64_t index) {
    const IndexOf<T> in_type = IndexOf<T>(index);
    const uint32_t alone = uint32_t(index);
    if (order == ReduceOrder::ORDER_ONLY_INDEX) return void(std::memcpy(to, &alone, sizeof alone));
    const bool index_first = order == ReduceOrder::ORDER_INDEX_VALUE;
    std::memcpy(to + (index_first ? sizeof(T) : 0), &value, sizeof value);
    if (order != ReduceOrder::ORDER_ONLY_VALUE)
        std::memcpy(to + (index_first ? 0 : sizeof(T)), &in_type, sizeof in_type);
}

template <Group group, bool kMax, class T>
void extreme_groups(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Lanes& lanes,
                    int64_t dst_stride, int64_t src_block, int64_t src_repeat, ReduceOrder order) {
    constexpr bool kWhole = group == Group::Repeat;
    constexpr uint32_t kGroup = kGroupLanes<T, group>;
    if (uint32_t(order) > 3 || (kIs310p && kWhole && order > ReduceOrder::ORDER_INDEX_VALUE))
        broken(Rule::Mode01, "ReduceOrder %d is none of this SoC's.", int(order));
    Extremum<T, kMax> all;
    uint64_t groups = 0;
    reduce_groups<group>(dst, src, lanes, dst_stride, src_block, src_repeat, kWhole ? unit_of<T>(order) : sizeof(T),
                         [&](const T* values, auto is_active, uint8_t* to) {
                             Extremum<T, kMax> found;
                             for (uint32_t i = 0; i < kGroup; ++i)
                                 if (is_active(i)) found.offer(values[i], i);
                             const T value = found.any() ? found.value() : Extremum<T, kMax>::of_nothing();
                             store_extremum(to, kWhole ? order : ReduceOrder::ORDER_ONLY_VALUE, value, found.index());
                             if (found.any()) all.offer(value, groups * kGroup + found.index());
                             ++groups;
                         });
    if (!kWhole) return;
    if (all.any() && src_block == 1 && src_repeat == 8 && !mask_register().counter)
        note_extremum(all.value(), all.index());
    else
        set_extremum_register(nullptr);
}

// ---- ReduceMax, ReduceMin ------------------------------------------------------------------------------

// The elements of ReduceMax's work tensor for this number of repeats.
template <class T>
uint32_t extremum_work(uint32_t repeats, bool with_index) {
    constexpr uint32_t kInBlock = kBlockBytes / sizeof(T), kLanes = kRepeatBytes / sizeof(T);
    auto aligned = [](uint32_t n) { return (n + kInBlock - 1) / kInBlock * kInBlock; };
    uint32_t output = 2 * repeats, elements = aligned(output);
    if (!with_index) return elements;
    do {  // a further round, at least one
        output = (output + kLanes - 1) / kLanes * 2;
        elements += aligned(output);
    } while (output > 2);
    return elements;
}

// The repeats of the body, which the page's sizes of the work tensor use: whole ones of a count form.
inline uint32_t body_repeats(const Lanes& lanes) {
    const uint64_t whole = lanes.is_count_form() ? lanes.count() / lanes.per_repeat() : lanes.repeats();
    return whole ? uint32_t(whole) : 1;
}

template <class T>
void check_extremum_work(const AscendC::LocalTensor<T>& work, const Lanes& lanes, bool with_index, bool is_used) {
    const uint32_t at = work.view().addr;
    const uint32_t needed = extremum_work<T>(body_repeats(lanes), with_index) * uint32_t(sizeof(T));
    check_aligned("sharedTmpBuffer", at);
    if (work.view().bytes < needed)
        broken(Rule::Work01, "`sharedTmpBuffer` must have %u bytes but has %u.", needed, work.view().bytes);
    if (!is_used) return;
    const Range used{at, int64_t(at) + (needed < work.view().bytes ? needed : work.view().bytes)};
    writes("sharedTmpBuffer", work.view(), &used, 1);
    poison(used);
}

template <bool kMax, class T>
void extreme_of_all(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<T>& work, const Lanes& lanes, uint32_t src_repeat, bool with_index,
                    Site site) {
    const uint32_t at = dst.view().addr, unit = uint32_t(sizeof(T)) * (with_index ? 2 : 1);
    check_aligned("dst", at, unit, Rule::Align02);
    const Operand<T> from{"src", src, 1, src_repeat};
    check_source(from, lanes);
    if (lanes.empty()) return finish_vector(0, 0);
    const Layout layout = layout_of(from, lanes);
    const auto& read = ranges_of(lanes, layout, src.view().addr);
    const Range result{at, int64_t(at) + unit}, all{read.front().begin, read.back().end};
    if (!lanes.is_count_form())
        check_apart("dst", result, "src", all);
    else if (result.begin < all.end && all.begin < result.end)
        broken(Rule::Overlap03, "`dst` (UB bytes [%u, %u)) overlaps `src`.", unsigned(result.begin),
               unsigned(result.end));
    Extremum<T, kMax> found;
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_stretch(r, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t n) {
            const uint32_t first = layout.offset(r, lane) / uint32_t(sizeof(T));
            for (uint32_t i = 0; i < n; ++i) found.offer(src.data()[first + i], first + i);
        });
    if (std::is_same_v<T, half> && with_index && found.index() > 65535)
        broken(Rule::Count04, "an index of half is at most 65535 but this one is %llu.",
               static_cast<unsigned long long>(found.index()));
    const bool contiguous = src_repeat == 8 && !mask_register().counter;
    const bool by_vector = kIs950 || (with_index && lanes.repeats() == 1);
    if (!kIs950) check_extremum_work(work, lanes, with_index, !by_vector);
    if (kIs950 || !contiguous)
        set_extremum_register(nullptr);
    else
        note_extremum(found.value(), ~0ull);
    const auto store = [&] {
        writes("dst", dst.view(), &result, 1);
        store_extremum(ub() + at, with_index ? ReduceOrder::ORDER_VALUE_INDEX : ReduceOrder::ORDER_ONLY_VALUE,
                       found.value(), found.index());
    };
    if (by_vector) store();
    finish_vector(lanes.repeats() + (lanes.repeats() > 1), cycles_of(Cost::WholeReduce), lanes.has_tail(),
                  Cost::WholeReduce);
    if (by_vector) return;
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
        constexpr uint64_t kMostRepeats = 0x7fffffff; /* it splits more than 255 repeats itself */                     \
        ascend_sim::start(ascend_sim::Pipe::V, "Reduce" #Kind, site);                                                  \
        ascend_sim::check_int_stride("srcRepStride", srcRepStride);                                                    \
        ascend_sim::extreme_of_all<kMax>(                                                                              \
            "Reduce" #Kind, dst, src, sharedTmpBuffer,                                                                 \
            ascend_sim::repeat_lanes<true>("Reduce" #Kind, sizeof(T), mask, uint64_t(repeatTime), kMostRepeats),       \
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
        const ascend_sim::ExtremumRegister r = ascend_sim::extremum_register(#Name, site);        \
        maxMinValue = ascend_sim::from_bits<T>(r.value);                                          \
        maxMinIndex = ascend_sim::from_bits<T>(r.index);                                          \
    }                                                                                             \
    template <class T>                                                                            \
    void Name(T& maxMinValue, ASCEND_SIM_SITE) {                                                  \
        ASCEND_SIM_NEEDS(GetExtremum, T);                                                         \
        maxMinValue = ascend_sim::from_bits<T>(ascend_sim::extremum_register(#Name, site).value); \
    }

ASCEND_SIM_EXTREMUM_REGISTER(GetReduceRepeatMaxMinSpr)
ASCEND_SIM_EXTREMUM_REGISTER(GetReduceMaxMinCount)

}  // namespace AscendC
