// Sort, MrgSort, Extract, Concat, GetSortOffset, GetSortLen: sorting by Sort32 and merges, on Ascend310P by RpSort16.
//
// Rules: half and float. repeatTime is 0 .. 255. Operands start at a 32-byte border, also those of Sort32 inside Sort.
// A full sort needs GetSortTmpSize() bytes of tmp. On Ascend910B, Extract of half reads and writes twice as many
// entries as it extracts, as in asc-devkit's code; the page does not mention this. The other rules of the instructions
// hold. Only Ascend950 has the forms with a SortConfig, and the simulator lacks them.
// Meaning: entries in descending order of score; of equal scores the earlier entry first. A full sort merges four lists
// at a time and copies the result to tmp after each round. GetSortLen returns elements of T: the page says bytes, but
// its code returns elements. On Ascend310P a full sort makes as many rounds as the size of `concat` requires.
// Cost: the sum of the instructions.
// Pages: those of 排序操作. The steps are those of asc-devkit's impl/basic_api/kernel_operator_proposal_intf_impl.h,
// dav_c220 and dav_m200.
#pragma once

#include "ascendc/gather_mask.h"
#include "ascendc/library/call.h"
#include "ascendc/local_copy.h"
#include "ascendc/sort.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// The elements of a sorted entry: a score and an index in 8 bytes, on Ascend310P a region proposal.
template <class T>
constexpr uint32_t kEntryElements = kIs310p ? kProposalElements : kPairBytes / sizeof(T);
constexpr int32_t kY1Field = 1, kScoreField = 4, kLabelField = 5;  // fields of a region proposal
constexpr uint32_t kSortedByRepeat = kIs310p ? kProposalsPerRepeat : kPairsPerRepeat;
constexpr uint32_t kMergedLists = AscendC::MRG_SORT_ELEMENT_LEN;

template <class T>
void check_sort_operands(const Call& call, const AscendC::LocalTensor<T>& entries, int32_t repeats) {
    if (repeats < 0 || repeats > 255) call.report(Rule::Repeat01, "repeatTime must be 0 .. 255 but got %d.", repeats);
    call.check_operand("entries", entries, 0);
}

// Copies the lanes of repeats that a built-in pattern selects.
template <class T>
void select_lanes(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint8_t pattern,
                  uint32_t repeats, Site site) {
    uint64_t selected = 0;
    AscendC::GatherMask(dst, src, pattern, false, 0, {1, uint16_t(repeats), 8, 0}, selected, site);
}

template <class T>
void merge_lists(const AscendC::LocalTensor<T>& dst, const AscendC::MrgSortSrcList<T>& lists,
                 const AscendC::MrgSort4Info& params, Site site) {
    if constexpr (kIs310p)
        AscendC::MrgSort4(dst, lists, params, site);
    else
        AscendC::MrgSort(dst, lists, params, site);
}

// The lists of a round of merges: `count` lists of `length` entries, of which the last one may be shorter.
struct SortedLists {
    uint32_t count, length, entries;
    uint32_t first_entry(uint32_t list) const { return list * length; }
    uint32_t length_of(uint32_t list) const { return list + 1 < count ? length : entries - first_entry(list); }
};

// Merges lists first .. first + list_count - 1, and the following groups of as many lists.
template <class T>
void merge_group(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const SortedLists& lists,
                 uint32_t first, uint32_t list_count, uint32_t groups, Site site) {
    const uint32_t begin = lists.first_entry(first) * kEntryElements<T>;
    if (list_count == 1) {
        AscendC::DataCopy(dst[begin], src[begin], lists.length_of(first) * kEntryElements<T>, site);
        return;
    }
    AscendC::LocalTensor<T> sources[kMergedLists];
    uint16_t lengths[kMergedLists] = {};
    for (uint32_t i = 0; i < list_count; ++i) {
        sources[i] = src[lists.first_entry(first + i) * kEntryElements<T>];
        lengths[i] = uint16_t(lists.length_of(first + i));
    }
    merge_lists(dst[begin], {sources[0], sources[1], sources[2], sources[3]},
                {lengths, false, uint16_t((1u << list_count) - 1), uint16_t(groups)}, site);
}

inline uint32_t merge_rounds(uint32_t repeats, uint32_t concat_elements) {
    uint32_t rounds = 0;
    if (kIs310p)
        for (uint32_t n = concat_elements; n > kSortedByRepeat; n /= kMergedLists) ++rounds;
    else
        for (uint32_t n = repeats; n > 1; n = (n + kMergedLists - 1) / kMergedLists) ++rounds;
    return rounds;
}

// Merges the sorted lists that the repeats of a sort have written to dst.
template <class T>
void merge_all(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& tmp, uint32_t repeats,
               uint32_t rounds, Site site) {
    SortedLists lists{repeats, kSortedByRepeat, repeats * kSortedByRepeat};
    const uint32_t elements = lists.entries * kEntryElements<T>;
    AscendC::DataCopy(tmp, dst, elements, site);
    AscendC::PipeBarrier<PIPE_V>(site);
    for (uint32_t round = 0; round < rounds; ++round) {
        // After the first round the last list may be shorter, so the last group is a merge of its own.
        uint32_t rest = lists.count % kMergedLists;
        if (rest == 0 && round > 0) rest = kMergedLists;
        const uint32_t groups = (lists.count - rest) / kMergedLists;
        if (groups) merge_group(dst, tmp, lists, 0, kMergedLists, groups, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        if (rest) merge_group(dst, tmp, lists, lists.count - rest, rest, 1, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        AscendC::DataCopy(tmp, dst, elements, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        lists.length *= kMergedLists;
        lists.count = (lists.count + kMergedLists - 1) / kMergedLists;
    }
}

// Writes the indices into the proposals: into the label of float, into y1 and the label of half. dst is scratch.
template <class T>
void put_indices(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& proposals,
                 const AscendC::LocalTensor<uint32_t>& index, uint32_t repeats, Site site) {
    const auto words = index.template ReinterpretCast<T>();
    if constexpr (sizeof(T) == 2) {
        const uint32_t index_repeats = (repeats * kProposalsPerRepeat * sizeof(uint32_t) + 255) / 256;
        select_lanes(dst, words, 1, index_repeats, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        AscendC::ProposalConcat(proposals, dst, repeats, kY1Field, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        select_lanes(dst, words, 2, index_repeats, site);
        AscendC::PipeBarrier<PIPE_V>(site);
        AscendC::ProposalConcat(proposals, dst, repeats, kLabelField, site);
    } else {
        AscendC::ProposalConcat(proposals, words, repeats, kLabelField, site);
    }
    AscendC::PipeBarrier<PIPE_V>(site);
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
uint32_t GetSortOffset(const uint32_t elemOffset) {
    return elemOffset * ascend_sim::kEntryElements<T>;
}
template <class T>
uint32_t GetSortLen(const uint32_t elemCount) {
    return GetSortOffset<T>(elemCount);
}

// On Ascend310P, writes the scores into the proposals of tmp.
template <class T>
void Concat(LocalTensor<T>& concat, const LocalTensor<T>& src, const LocalTensor<T>& tmp, const int32_t repeatTime,
            ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Concat, T);
    const ascend_sim::Call call("Concat", site);
    ascend_sim::check_sort_operands(call, src, repeatTime);
    if constexpr (ascend_sim::kIs310p) {
        ProposalConcat(tmp, src, repeatTime, ascend_sim::kScoreField, site);
        concat = tmp;
    } else {
        concat = src;
    }
}

template <class T>
void Extract(const LocalTensor<T>& dstValue, const LocalTensor<uint32_t>& dstIndex, const LocalTensor<T>& sorted,
             const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Extract, T);
    const ascend_sim::Call call("Extract", site);
    ascend_sim::check_sort_operands(call, sorted, repeatTime);
    const uint32_t repeats = ascend_sim::checked_repeats(repeatTime);
    if constexpr (ascend_sim::kIs310p) {
        ProposalExtract(dstValue, sorted, repeatTime, ascend_sim::kScoreField, site);
        if (dstIndex.GetSize() == 0) return;
        PipeBarrier<PIPE_V>(site);
        const auto index = dstIndex.template ReinterpretCast<T>();
        if constexpr (sizeof(T) == 2)
            ascend_sim::select_lanes(index, sorted, 4, repeats, site);
        else
            ProposalExtract(index, sorted, repeatTime, ascend_sim::kLabelField, site);
    } else {
        ascend_sim::select_lanes(dstValue, sorted, sizeof(T) == 2 ? 3 : 1, repeats, site);
        PipeBarrier<PIPE_V>(site);
        ascend_sim::select_lanes(dstIndex, sorted.template ReinterpretCast<uint32_t>(), 2,
                                 ascend_sim::kIs910b && sizeof(T) == 2 ? 2 * repeats : repeats, site);
    }
}

template <class T, bool isExhaustedSuspension = false>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& sortList, const uint16_t elementCountList[4],
             uint32_t sortedNum[4], uint16_t validBit, const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(MrgSortLists, T);
    const ascend_sim::Call call("MrgSort", site);
    ascend_sim::merge_lists(dst, sortList, {elementCountList, isExhaustedSuspension, validBit, uint16_t(repeatTime)},
                            site);
    if constexpr (isExhaustedSuspension) {
        const ascend_sim::MergeRegister merged = ascend_sim::merge_register("MrgSort", site);
        for (int i = 0; i < MRG_SORT_ELEMENT_LEN; ++i) sortedNum[i] = merged.taken[i];
    }
}

template <class T, bool isFullSort = false>
void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& concat, const LocalTensor<uint32_t>& index,
          LocalTensor<T>& tmp, const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Sort, T);
    const ascend_sim::Call call("Sort", site);
    ascend_sim::check_sort_operands(call, dst, repeatTime);
    const uint32_t repeats = ascend_sim::checked_repeats(repeatTime);
    if constexpr (ascend_sim::kIs310p) {
        if (index.GetSize() != 0) ascend_sim::put_indices(dst, concat, index, repeats, site);
        RpSort16(dst, concat, repeatTime, site);
    } else {
        ascend_sim::sort_pairs(dst, concat, index, repeatTime, false, site);
    }
    if constexpr (isFullSort) {
        call.check_operand("tmp", tmp, GetSortLen<T>(repeats * ascend_sim::kSortedByRepeat));
        PipeBarrier<PIPE_V>(site);
        if (repeats)
            ascend_sim::merge_all(dst, tmp, repeats, ascend_sim::merge_rounds(repeats, concat.GetSize()), site);
    }
}

}  // namespace AscendC
