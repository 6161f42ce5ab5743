// Sort32, MrgSort: sort pairs of score and index by descending score. MrgSort4, RpSort16, ProposalConcat and
// ProposalExtract: the same for the region proposals of Ascend310P. GetMrgSortResult: the counts of a merge.
//
// Rules: half and float. Sort32's operands are aligned to 32 bytes. A source that is not aligned to 32 elements, or a
// destination not aligned to 256 bytes, gives a warning: Sort32's page requires both alignments. The page of Sort,
// which uses Sort32, requires 32 bytes only, and official kernels align to 32 bytes. A merge takes 2 to 4 lists of 0 ..
// 4095 entries, which do not overlap the destination. Several repeats need four adjacent lists of equal length and no
// suspension. Proposals are aligned to 32 bytes, those of half in a merge to 16.
// Meaning: the order is by descending score. If scores are equal, the earlier entry is first; in a merge, the entry of
// the earlier list. An entry of Sort32 is 8 bytes, the score and then the index. A proposal is eight elements; the
// fifth is the score. With ifExhaustedSuspension a merge stops at the end of any list. The pages do not define an order
// of NaN: here NaN is the greatest score.
// Cost: 2 entries a cycle (附录, Vector指令理论性能汇总). ProposalConcat and ProposalExtract: a plain repeat for 16
// proposals.
// Sources: the pages of 排序组合（ISASI）.
#pragma once

#include <algorithm>

#include "ascendc/transpose.h"

namespace AscendC {

struct MrgSort4Info {
    MrgSort4Info() = default;
    MrgSort4Info(const uint16_t elementLengthsIn[MRG_SORT_ELEMENT_LEN], const bool ifExhaustedSuspensionIn,
                 const uint16_t validBitIn, const uint16_t repeatTimesIn)
        : ifExhaustedSuspension(ifExhaustedSuspensionIn), validBit(validBitIn), repeatTimes(uint8_t(repeatTimesIn)) {
        std::copy_n(elementLengthsIn, MRG_SORT_ELEMENT_LEN, elementLengths);
    }
    uint16_t elementLengths[MRG_SORT_ELEMENT_LEN] = {};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    uint8_t repeatTimes = 1;
};

template <class T>
struct MrgSortSrcList {
    MrgSortSrcList() = default;
    MrgSortSrcList(const LocalTensor<T>& src1In, const LocalTensor<T>& src2In, const LocalTensor<T>& src3In,
                   const LocalTensor<T>& src4In)
        : src1(src1In), src2(src2In), src3(src3In), src4(src4In) {}
    LocalTensor<T> src1, src2, src3, src4;
};

}  // namespace AscendC

namespace ascend_sim {

constexpr uint32_t kPairBytes = 8;  // a score and an index
// A region proposal, and the number of proposals in a repeat.
constexpr uint32_t kProposalElements = 8, kScoreElement = 4, kProposalsPerRepeat = 16;

// Whether the first score goes before the second: a strict order in which NaN is the greatest.
template <class T>
bool goes_first(T first, T second) {
    const float first_value = float(first), second_value = float(second);
    return first_value > second_value || (first_value != first_value && second_value == second_value);
}

inline uint32_t checked_repeats(int32_t repeats) {
    if (repeats < 0 || repeats > 255) broken(Rule::Repeat01, "repeatTime must be 0 .. 255 but got %d.", repeats);
    return uint32_t(repeats < 0 ? 0 : repeats > 255 ? 255 : repeats);
}

// The score of an entry; it begins `offset` bytes after the entry.
template <class T>
T score_at(const uint8_t* entry, uint32_t offset) {
    T score;
    std::memcpy(&score, entry + offset, sizeof score);
    return score;
}

// Merges two to four lists of entries of entry_bytes bytes. A score begins score_offset bytes after its entry.
template <class T>
void merge(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::MrgSortSrcList<T>& src,
           const AscendC::MrgSort4Info& params, uint32_t entry_bytes, uint32_t score_offset, uint32_t src_alignment,
           uint32_t dst_alignment, Site site) {
    start(Pipe::V, api, site);
    const AscendC::LocalTensor<T>* const lists[4] = {&src.src1, &src.src2, &src.src3, &src.src4};
    if (params.validBit != 3 && params.validBit != 7 && params.validBit != 15)
        broken(Rule::Mode01, "validBit must be 3, 7 or 15 but got %u.", params.validBit);
    const int list_count = params.validBit == 3 ? 2 : params.validBit == 7 ? 3 : 4;
    bool repeats_apply = list_count == 4 && !params.ifExhaustedSuspension;
    uint64_t total = 0;
    for (int i = 0; i < list_count; ++i) {
        if (params.elementLengths[i] > 4095)
            broken(Rule::Count04, "a list has 0 .. 4095 entries but list %d has %u.", i + 1, params.elementLengths[i]);
        repeats_apply = repeats_apply && params.elementLengths[i] == params.elementLengths[0] &&
                        lists[i]->view().addr == lists[0]->view().addr + i * params.elementLengths[0] * entry_bytes;
        total += params.elementLengths[i];
    }
    if (params.repeatTimes == 0 && kIs310p) broken(Rule::Repeat01, "repeatTimes must be 1 .. 255 but got 0.");
    if (params.repeatTimes > 1 && !repeats_apply)
        broken(Rule::Repeat01,
               "several repeats need four adjacent lists of equal length and no suspension but repeatTimes is %u.",
               params.repeatTimes);
    const uint64_t repeat_bytes = total * entry_bytes;
    std::vector<uint8_t> merged;
    MergeRegister taken = {};
    Range source_ranges[4];
    static constexpr const char* kNames[4] = {"src1", "src2", "src3", "src4"};
    for (int i = 0; i < list_count && params.repeatTimes; ++i) {
        const AscendC::LocalTensor<T>& list = *lists[i];
        check_aligned(kNames[i], list.view().addr, src_alignment);
        const uint64_t list_bytes = params.elementLengths[i] * uint64_t(entry_bytes);
        std::vector<Range> ranges;
        for (uint32_t repeat = 0; repeat < params.repeatTimes; ++repeat)
            ranges.push_back({int64_t(list.view().addr + repeat * repeat_bytes),
                              int64_t(list.view().addr + repeat * repeat_bytes + list_bytes)});
        source_ranges[i] = {ranges.front().begin, ranges.back().end};
        reads(kNames[i], list.view(), ranges.data(), list_bytes ? ranges.size() : 0);
    }
    for (uint32_t repeat = 0; repeat < params.repeatTimes; ++repeat) {
        taken = {};
        for (;;) {
            int best = -1;
            bool exhausted = false;
            const auto entry = [&](int i) {
                return ub() + lists[i]->view().addr + repeat * repeat_bytes + taken.taken[i] * uint64_t(entry_bytes);
            };
            for (int i = 0; i < list_count; ++i) {
                if (taken.taken[i] == params.elementLengths[i])
                    exhausted = true;
                else if (best < 0 ||
                         goes_first(score_at<T>(entry(i), score_offset), score_at<T>(entry(best), score_offset)))
                    best = i;
            }
            if (best < 0 || (exhausted && params.ifExhaustedSuspension)) break;
            merged.insert(merged.end(), entry(best), entry(best) + entry_bytes);
            ++taken.taken[best];
        }
    }
    check_aligned("dst", dst.view().addr, dst_alignment);
    const Range written{dst.view().addr, int64_t(dst.view().addr + merged.size())};
    for (int i = 0; i < list_count && params.repeatTimes; ++i)
        if (source_ranges[i].begin < source_ranges[i].end) check_disjoint("dst", written, kNames[i], source_ranges[i]);
    writes("dst", dst.view(), &written, merged.empty() ? 0 : 1);
    std::copy(merged.begin(), merged.end(), ub() + written.begin);
    set_merge_register(params.ifExhaustedSuspension ? &taken : nullptr);
    finish_vector(uint32_t(merged.size() / entry_bytes), cycles_of(Cost::SortedElement));
}

constexpr uint32_t kPairsPerRepeat = 32;

// An operand starts at a 32-byte border. Sort32's page also requires the alignment of a repeat, `bytes`.
inline void check_sort_alignment(const char* name, uint32_t address, uint32_t bytes) {
    check_aligned(name, address);
    if (address % bytes)
        broken(Rule::Align04, "`%s` starts at UB byte %u, which is no multiple of %u.", name, address, bytes);
}

// Sorts the pairs of each repeat. warns_of_repeats: warns if the operands do not have the alignment of a repeat.
template <class T>
void sort_pairs(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                const AscendC::LocalTensor<uint32_t>& src1, int32_t repeat_count, bool warns_of_repeats, Site site) {
    start(Pipe::V, "Sort32", site);
    const uint32_t count = checked_repeats(repeat_count) * kPairsPerRepeat;
    check_sort_alignment("src0", src0.view().addr, warns_of_repeats ? kPairsPerRepeat * sizeof(T) : 1);
    check_sort_alignment("src1", src1.view().addr, warns_of_repeats ? kPairsPerRepeat * sizeof(uint32_t) : 1);
    check_sort_alignment("dst", dst.view().addr, warns_of_repeats ? kPairsPerRepeat * kPairBytes : 1);
    const Range scores = check_access(reads, "src0", src0, count * sizeof(T));
    const Range indices = check_access(reads, "src1", src1, count * sizeof(uint32_t));
    const Range sorted = check_access(writes, "dst", dst, count * kPairBytes);
    check_disjoint("dst", sorted, "src0", scores);
    check_disjoint("dst", sorted, "src1", indices);
    uint8_t* const sorted_bytes = ub() + sorted.begin;
    for (uint32_t first = 0; first < count; first += kPairsPerRepeat) {
        uint32_t order[kPairsPerRepeat];
        for (uint32_t i = 0; i < kPairsPerRepeat; ++i) order[i] = first + i;
        std::stable_sort(order, order + kPairsPerRepeat, [&](uint32_t left, uint32_t right) {
            return goes_first(src0.data()[left], src0.data()[right]);
        });
        for (uint32_t i = 0; i < kPairsPerRepeat; ++i) {
            uint8_t entry[kPairBytes] = {};
            std::memcpy(entry, src0.data() + order[i], sizeof(T));
            std::memcpy(entry + 4, src1.data() + order[i], sizeof(uint32_t));
            std::memcpy(sorted_bytes + (first + i) * sizeof entry, entry, sizeof entry);
        }
    }
    finish_vector(count, cycles_of(Cost::SortedElement));
}

// Checks that a tensor holds whole proposals, even if the instruction uses only one field of each.
inline void check_proposals(const char* name, const UbView& view, uint64_t bytes) {
    if (view.bytes < bytes)
        broken(Rule::Bounds01, "`%s` must hold %llu bytes of Region Proposals but has %u.", name,
               static_cast<unsigned long long>(bytes), view.bytes);
}

// Copies between elements and one field of the proposals: copy(index of the field's element, index of the element).
template <class T, class F>
void proposal_fields(bool into_proposals, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                     int32_t repeat_count, int32_t field, F copy) {
    const uint32_t repeats = checked_repeats(repeat_count), count = repeats * kProposalsPerRepeat;
    if (field < 0 || field > 5) broken(Rule::Mode01, "modeNumber must be 0 .. 5 but got %d.", field);
    const auto& proposals = into_proposals ? dst : src;
    const char* const name = into_proposals ? "dst" : "src";
    check_aligned(name, proposals.view().addr);
    check_proposals(name, proposals.view(), count * uint64_t(kProposalElements) * sizeof(T));
    std::vector<Range> fields;
    for (uint32_t i = 0; i < count; ++i) {
        const int64_t at = proposals.view().addr + int64_t((i * kProposalElements + field) * sizeof(T));
        fields.push_back({at, at + int64_t(sizeof(T))});
    }
    Range elements;
    if (into_proposals) {
        elements = check_access(reads, "src", src, count * sizeof(T));
        writes(name, proposals.view(), fields.data(), count);
    } else {
        reads(name, proposals.view(), fields.data(), count);
        elements = check_access(writes, "dst", dst, count * sizeof(T));
    }
    if (count)
        check_disjoint("dst", {fields[0].begin - int64_t(field * sizeof(T)), fields.back().end}, "src", elements);
    for (uint32_t i = 0; i < count; ++i) copy(i * kProposalElements + field, i);
    finish_vector(repeats, cycles_of(Cost::Repeat));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& src1,
            const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Sort32, T);
    ascend_sim::sort_pairs(dst, src0, src1, repeatTime, true, site);
}

template <class T>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(MrgSort, T);
    ascend_sim::merge("MrgSort", dst, src, params, ascend_sim::kPairBytes, 0, 8, ascend_sim::kBlockBytes, site);
}

template <class T>
void MrgSort4(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(MrgSort4, T);
    constexpr uint32_t kBytes = ascend_sim::kProposalElements * sizeof(T);
    ascend_sim::merge("MrgSort4", dst, src, params, kBytes, ascend_sim::kScoreElement * sizeof(T), kBytes, kBytes,
                      site);
}

inline void GetMrgSortResult(uint16_t& mrgSortList1, uint16_t& mrgSortList2, uint16_t& mrgSortList3,
                             uint16_t& mrgSortList4, ASCEND_SIM_SITE) {
    const ascend_sim::MergeRegister contents = ascend_sim::merge_register("GetMrgSortResult", site);
    mrgSortList1 = contents.taken[0];
    mrgSortList2 = contents.taken[1];
    mrgSortList3 = contents.taken[2];
    mrgSortList4 = contents.taken[3];
}

// Reads the scores only: a kernel may leave the other fields unwritten, as the page's example does.
template <class T>
void RpSort16(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(RpSort16, T);
    using namespace ascend_sim;
    start(Pipe::V, "RpSort16", site);
    constexpr uint32_t kBytes = kProposalElements * sizeof(T), kRepeatSize = kProposalsPerRepeat * kBytes;
    const uint32_t repeats = checked_repeats(repeatTime);
    check_aligned("src", src.view().addr);
    check_proposals("src", src.view(), repeats * uint64_t(kRepeatSize));
    std::vector<Range> scores;
    for (uint32_t i = 0; i < repeats * kProposalsPerRepeat; ++i) {
        const int64_t at = src.view().addr + int64_t(i * kBytes + kScoreElement * sizeof(T));
        scores.push_back({at, at + int64_t(sizeof(T))});
    }
    reads("src", src.view(), scores.data(), scores.size());
    const int64_t src_addr = src.view().addr;
    const Range written = check_access(writes, "dst", dst, repeats * uint64_t(kRepeatSize));
    if (written.begin != src_addr)
        check_disjoint("dst", written, "src", {src_addr, src_addr + int64_t(repeats) * kRepeatSize});
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        std::vector<uint8_t> proposals(ub() + src_addr + repeat * kRepeatSize,
                                       ub() + src_addr + (repeat + 1) * kRepeatSize);
        uint32_t order[kProposalsPerRepeat];
        for (uint32_t i = 0; i < kProposalsPerRepeat; ++i) order[i] = i;
        const auto score = [&](uint32_t i) {
            return score_at<T>(proposals.data() + i * kBytes, kScoreElement * sizeof(T));
        };
        std::stable_sort(order, order + kProposalsPerRepeat,
                         [&](uint32_t left, uint32_t right) { return goes_first(score(left), score(right)); });
        for (uint32_t i = 0; i < kProposalsPerRepeat; ++i)
            std::copy_n(proposals.data() + order[i] * kBytes, kBytes,
                        ub() + written.begin + repeat * kRepeatSize + i * kBytes);
    }
    finish_vector(repeats * kProposalsPerRepeat, cycles_of(Cost::SortedElement));
}

// modeNumber: the field x1, y1, x2, y2, score or label.
template <class T>
void ProposalConcat(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,
                    const int32_t modeNumber, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(ProposalConcat, T);
    ascend_sim::start(ascend_sim::Pipe::V, "ProposalConcat", site);
    ascend_sim::proposal_fields(true, dst, src, repeatTime, modeNumber,
                                [&](uint32_t field, uint32_t i) { dst.data()[field] = src.data()[i]; });
}
template <class T>
void ProposalExtract(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,
                     const int32_t modeNumber, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(ProposalExtract, T);
    ascend_sim::start(ascend_sim::Pipe::V, "ProposalExtract", site);
    ascend_sim::proposal_fields(false, dst, src, repeatTime, modeNumber,
                                [&](uint32_t field, uint32_t i) { dst.data()[i] = src.data()[field]; });
}

}  // namespace AscendC
