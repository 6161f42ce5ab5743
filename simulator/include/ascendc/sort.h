// Sort32, MrgSort: sort pairs of score and index by descending score; MrgSort4, RpSort16, ProposalConcat and
// ProposalExtract: the same for the region proposals of Ascend310P. GetMrgSortResult: the counts of a merge.
//
// Rules: half and float. Sort32: sources on 32 elements, the destination on 256 bytes. Merges: 2 to 4 lists of 0 ..
// 4095 entries, which do not overlap the destination; several repeats need four adjacent lists of equal length and no
// suspension. Proposals on 32 bytes, a merge's half ones on 16.
// Meaning: the greatest score first; of equal scores, the earlier entry, or that of the earlier list. An entry of
// Sort32 is 8 bytes, the score and then the index; a proposal is eight elements, the fifth of which is the score. With
// ifExhaustedSuspension a merge stops when a list has been used up. The pages do not order NaN: it sorts as the
// greatest here. Cost: 2 entries a cycle (附录, Vector指令理论性能汇总). ProposalConcat and ProposalExtract: a plain
// repeat for 16. Sources: the pages of 排序组合（ISASI）.
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

constexpr uint32_t kPairBytes = 8, kProposalElements = 8, kProposals = 16, kScore = 4;

// Whether a goes before b: a strict order in which NaN is the greatest.
template <class T>
bool goes_first(T a, T b) {
    const float x = float(a), y = float(b);
    return x > y || (x != x && y == y);
}

inline uint32_t checked_repeats(int32_t repeats) {
    if (repeats < 0 || repeats > 255) broken(Rule::Repeat01, "repeatTime must be 0 .. 255 but got %d.", repeats);
    return uint32_t(repeats < 0 ? 0 : repeats > 255 ? 255 : repeats);
}

// An entry of `bytes` bytes, in whichever type it is, and its score.
template <class T>
T score_at(const uint8_t* entry, uint32_t offset) {
    T score;
    std::memcpy(&score, entry + offset, sizeof score);
    return score;
}

// Merges four lists of entries, whose scores are `score` bytes after the entries' begin.
template <class T>
void merge(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::MrgSortSrcList<T>& src,
           const AscendC::MrgSort4Info& p, uint32_t bytes, uint32_t score, uint32_t src_alignment,
           uint32_t dst_alignment, Site site) {
    start(Pipe::V, api, site);
    const AscendC::LocalTensor<T>* const lists[4] = {&src.src1, &src.src2, &src.src3, &src.src4};
    if (p.validBit != 3 && p.validBit != 7 && p.validBit != 15)
        broken(Rule::Mode01, "validBit must be 3, 7 or 15 but got %u.", p.validBit);
    const int n = p.validBit == 3 ? 2 : p.validBit == 7 ? 3 : 4;
    bool repeats_apply = n == 4 && !p.ifExhaustedSuspension;
    uint64_t total = 0;
    for (int i = 0; i < n; ++i) {
        if (p.elementLengths[i] > 4095)
            broken(Rule::Count04, "a list has 0 .. 4095 entries but list %d has %u.", i + 1, p.elementLengths[i]);
        repeats_apply = repeats_apply && p.elementLengths[i] == p.elementLengths[0] &&
                        lists[i]->view().addr == lists[0]->view().addr + i * p.elementLengths[0] * bytes;
        total += p.elementLengths[i];
    }
    if (p.repeatTimes == 0 && kIs310p) broken(Rule::Repeat01, "repeatTimes must be 1 .. 255 but got 0.");
    if (p.repeatTimes > 1 && !repeats_apply)
        broken(Rule::Repeat01,
               "several repeats need four adjacent lists of equal length and no suspension but repeatTimes is %u.",
               p.repeatTimes);
    const uint64_t advance = total * bytes;
    std::vector<uint8_t> out;
    MergeRegister taken = {};
    Range from[4];
    static constexpr const char* kNames[4] = {"src1", "src2", "src3", "src4"};
    for (int i = 0; i < n && p.repeatTimes; ++i) {
        const AscendC::LocalTensor<T>& list = *lists[i];
        check_aligned(kNames[i], list.view().addr, src_alignment);
        const uint64_t length = p.elementLengths[i] * uint64_t(bytes);
        std::vector<Range> ranges;
        for (uint32_t r = 0; r < p.repeatTimes; ++r)
            ranges.push_back(
                {int64_t(list.view().addr + r * advance), int64_t(list.view().addr + r * advance + length)});
        from[i] = {ranges.front().begin, ranges.back().end};
        reads(kNames[i], list.view(), ranges.data(), length ? ranges.size() : 0);
    }
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        taken = {};
        for (;;) {
            int best = -1;
            bool exhausted = false;
            const auto entry = [&](int i) {
                return ub() + lists[i]->view().addr + r * advance + taken.taken[i] * uint64_t(bytes);
            };
            for (int i = 0; i < n; ++i) {
                if (taken.taken[i] == p.elementLengths[i])
                    exhausted = true;
                else if (best < 0 || goes_first(score_at<T>(entry(i), score), score_at<T>(entry(best), score)))
                    best = i;
            }
            if (best < 0 || (exhausted && p.ifExhaustedSuspension)) break;
            out.insert(out.end(), entry(best), entry(best) + bytes);
            ++taken.taken[best];
        }
    }
    check_aligned("dst", dst.view().addr, dst_alignment);
    const Range to{dst.view().addr, int64_t(dst.view().addr + out.size())};
    for (int i = 0; i < n && p.repeatTimes; ++i)
        if (from[i].begin < from[i].end) check_disjoint("dst", to, kNames[i], from[i]);
    writes("dst", dst.view(), &to, out.empty() ? 0 : 1);
    std::copy(out.begin(), out.end(), ub() + to.begin);
    set_merge_register(p.ifExhaustedSuspension ? &taken : nullptr);
    finish_vector(uint32_t(out.size() / bytes), cycles_of(Cost::SortedElement));
}

// A tensor holds whole proposals, even if an instruction uses one field of each.
inline void check_proposals(const char* name, const UbView& view, uint64_t bytes) {
    if (view.bytes < bytes)
        broken(Rule::Bounds01, "`%s` must hold %llu bytes of Region Proposals but has %u.", name,
               static_cast<unsigned long long>(bytes), view.bytes);
}

// Between elements and one field of the proposals, which a lambda copies: copy(proposal's element, element).
template <class T, class F>
void proposal_fields(bool into_proposals, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                     int32_t repeat, int32_t mode, F copy) {
    const uint32_t repeats = checked_repeats(repeat), n = repeats * kProposals;
    if (mode < 0 || mode > 5) broken(Rule::Mode01, "modeNumber must be 0 .. 5 but got %d.", mode);
    const auto& proposals = into_proposals ? dst : src;
    const char* const name = into_proposals ? "dst" : "src";
    check_aligned(name, proposals.view().addr);
    check_proposals(name, proposals.view(), n * uint64_t(kProposalElements) * sizeof(T));
    std::vector<Range> fields;
    for (uint32_t i = 0; i < n; ++i) {
        const int64_t at = proposals.view().addr + int64_t((i * kProposalElements + mode) * sizeof(T));
        fields.push_back({at, at + int64_t(sizeof(T))});
    }
    Range elements;
    if (into_proposals) {
        elements = checked_range(reads, "src", src, n * sizeof(T));
        writes(name, proposals.view(), fields.data(), n);
    } else {
        reads(name, proposals.view(), fields.data(), n);
        elements = checked_range(writes, "dst", dst, n * sizeof(T));
    }
    if (n) check_disjoint("dst", {fields[0].begin - int64_t(mode * sizeof(T)), fields.back().end}, "src", elements);
    for (uint32_t i = 0; i < n; ++i) copy(i * kProposalElements + mode, i);
    finish_vector(repeats, cycles_of(Cost::Repeat));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& src1,
            const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Sort32, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Sort32", site);
    constexpr uint32_t kEntries = 32;
    const uint32_t n = ascend_sim::checked_repeats(repeatTime) * kEntries;
    ascend_sim::check_aligned("src0", src0.view().addr, kEntries * sizeof(T));
    ascend_sim::check_aligned("src1", src1.view().addr, kEntries * sizeof(uint32_t));
    ascend_sim::check_aligned("dst", dst.view().addr, kEntries * ascend_sim::kPairBytes);
    using ascend_sim::Range;
    const Range scores = ascend_sim::checked_range(ascend_sim::reads, "src0", src0, n * sizeof(T));
    const Range indices = ascend_sim::checked_range(ascend_sim::reads, "src1", src1, n * sizeof(uint32_t));
    const Range to = ascend_sim::checked_range(ascend_sim::writes, "dst", dst, n * ascend_sim::kPairBytes);
    ascend_sim::check_disjoint("dst", to, "src0", scores);
    ascend_sim::check_disjoint("dst", to, "src1", indices);
    uint8_t* const out = ascend_sim::ub() + to.begin;
    for (uint32_t first = 0; first < n; first += kEntries) {
        uint32_t order[kEntries];
        for (uint32_t i = 0; i < kEntries; ++i) order[i] = first + i;
        std::stable_sort(order, order + kEntries, [&](uint32_t a, uint32_t b) {
            return ascend_sim::goes_first(src0.data()[a], src0.data()[b]);
        });
        for (uint32_t i = 0; i < kEntries; ++i) {
            uint8_t entry[ascend_sim::kPairBytes] = {};
            std::memcpy(entry, src0.data() + order[i], sizeof(T));
            std::memcpy(entry + 4, src1.data() + order[i], sizeof(uint32_t));
            std::memcpy(out + (first + i) * sizeof entry, entry, sizeof entry);
        }
    }
    ascend_sim::finish_vector(n, ascend_sim::cycles_of(ascend_sim::Cost::SortedElement));
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
    ascend_sim::merge("MrgSort4", dst, src, params, kBytes, ascend_sim::kScore * sizeof(T), kBytes, kBytes, site);
}

inline void GetMrgSortResult(uint16_t& mrgSortList1, uint16_t& mrgSortList2, uint16_t& mrgSortList3,
                             uint16_t& mrgSortList4, ASCEND_SIM_SITE) {
    const ascend_sim::MergeRegister r = ascend_sim::merge_register("GetMrgSortResult", site);
    mrgSortList1 = r.taken[0];
    mrgSortList2 = r.taken[1];
    mrgSortList3 = r.taken[2];
    mrgSortList4 = r.taken[3];
}

// Reads the scores only: a kernel may leave the other fields unwritten, as the page's example does.
template <class T>
void RpSort16(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(RpSort16, T);
    using namespace ascend_sim;
    start(Pipe::V, "RpSort16", site);
    constexpr uint32_t kBytes = kProposalElements * sizeof(T), kRepeat = kProposals * kBytes;
    const uint32_t repeats = checked_repeats(repeatTime);
    check_aligned("src", src.view().addr);
    check_proposals("src", src.view(), repeats * uint64_t(kRepeat));
    std::vector<Range> scores;
    for (uint32_t i = 0; i < repeats * kProposals; ++i) {
        const int64_t at = src.view().addr + int64_t(i * kBytes + kScore * sizeof(T));
        scores.push_back({at, at + int64_t(sizeof(T))});
    }
    reads("src", src.view(), scores.data(), scores.size());
    const int64_t from = src.view().addr;
    const Range to = checked_range(writes, "dst", dst, repeats * uint64_t(kRepeat));
    if (to.begin != from) check_disjoint("dst", to, "src", {from, from + int64_t(repeats) * kRepeat});
    for (uint32_t r = 0; r < repeats; ++r) {
        std::vector<uint8_t> in(ub() + from + r * kRepeat, ub() + from + (r + 1) * kRepeat);
        uint32_t order[kProposals];
        for (uint32_t i = 0; i < kProposals; ++i) order[i] = i;
        const auto score = [&](uint32_t i) { return score_at<T>(in.data() + i * kBytes, kScore * sizeof(T)); };
        std::stable_sort(order, order + kProposals,
                         [&](uint32_t a, uint32_t b) { return goes_first(score(a), score(b)); });
        for (uint32_t i = 0; i < kProposals; ++i)
            std::copy_n(in.data() + order[i] * kBytes, kBytes, ub() + to.begin + r * kRepeat + i * kBytes);
    }
    finish_vector(repeats * kProposals, cycles_of(Cost::SortedElement));
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
