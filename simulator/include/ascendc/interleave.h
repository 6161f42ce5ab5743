// Interleave: alternate the elements of two tensors. DeInterleave: the inverse.
//
// Rules: Ascend950 only. count is even; operands are aligned to 32 bytes. The destinations are disjoint from each other
// and from the sources.
// Meaning: with s = src0[0], src1[0], src0[1], src1[1], ...: dst0 is the first count elements of s, dst1 the next count
// elements. DeInterleave: with s = src0 followed by src1 (or src alone), dst0 gets the even elements of s, dst1 the
// odd ones.
// Cost: a plain repeat per 256 bytes written.
#pragma once

#include <initializer_list>
#include <utility>

#include "ascendc/gather.h"

namespace ascend_sim {

// Checks that a count is even and not negative, and returns it.
inline uint64_t check_even(int32_t count) {
    const uint64_t checked = checked_count(count);
    if (checked % 2) broken(Rule::Count04, "count must be even but got %d.", count);
    return checked;
}

// Checks the access to the first `count` elements of an operand by reads() or writes(), and returns their range.
template <class T>
Range check_operand(decltype(reads)& reads_or_writes, const char* name, const AscendC::LocalTensor<T>& tensor,
                    uint64_t count) {
    check_aligned(name, tensor.view().addr);
    const Range range = view_range(tensor.view(), count * sizeof(T));
    reads_or_writes(name, tensor.view(), &range, count ? 1 : 0);
    return range;
}

// Checks that both destinations are disjoint from the sources and from each other.
inline void check_two_disjoint(const Range (&dst)[2], std::initializer_list<std::pair<const char*, Range>> sources) {
    constexpr const char* kNames[2] = {"dst0", "dst1"};
    for (int i = 0; i < 2; ++i)
        for (const auto& [name, range] : sources) check_disjoint(kNames[i], dst[i], name, range);
    check_disjoint(kNames[0], dst[0], kNames[1], dst[1]);
}

// Checks the accesses to the first `count` elements of each tensor.
template <class T>
void check_four_operands(const AscendC::LocalTensor<T>& dst0, const AscendC::LocalTensor<T>& dst1,
                         const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, uint64_t count) {
    const Range range0 = check_operand(reads, "src0", src0, count), range1 = check_operand(reads, "src1", src1, count);
    const Range dst_ranges[2] = {check_operand(writes, "dst0", dst0, count),
                                 check_operand(writes, "dst1", dst1, count)};
    check_two_disjoint(dst_ranges, {{"src0", range0}, {"src1", range1}});
}

inline void finish_two_results(uint64_t bytes) {
    finish_vector(uint32_t((bytes + kRepeatBytes - 1) / kRepeatBytes), cycles_of(Cost::Repeat),
                  bytes % kRepeatBytes != 0);
}

template <class T>
void deinterleave(const AscendC::LocalTensor<T>& dst0, const AscendC::LocalTensor<T>& dst1, const std::vector<T>& s) {
    for (size_t i = 0; i < s.size() / 2; ++i) {
        dst0.data()[i] = s[2 * i];
        dst1.data()[i] = s[2 * i + 1];
    }
    finish_two_results(s.size() * sizeof(T));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Interleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0,
                const LocalTensor<T>& src1, const int32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Interleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Interleave", site);
    const uint64_t elements = ascend_sim::check_even(count);
    ascend_sim::check_four_operands(dst0, dst1, src0, src1, elements);
    for (uint64_t i = 0; i < 2 * elements; ++i)
        (i < elements ? dst0 : dst1).data()[i % elements] = (i % 2 ? src1 : src0).data()[i / 2];
    ascend_sim::finish_two_results(2 * elements * sizeof(T));
}

template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0,
                  const LocalTensor<T>& src1, const int32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(DeInterleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "DeInterleave", site);
    const uint64_t elements = ascend_sim::check_even(count);
    ascend_sim::check_four_operands(dst0, dst1, src0, src1, elements);
    std::vector<T> s(src0.data(), src0.data() + elements);
    s.insert(s.end(), src1.data(), src1.data() + elements);
    ascend_sim::deinterleave(dst0, dst1, s);
}

template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src,
                  const int32_t srcCount, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(DeInterleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "DeInterleave", site);
    const uint64_t elements = ascend_sim::check_even(srcCount);
    const ascend_sim::Range src_range = ascend_sim::check_operand(ascend_sim::reads, "src", src, elements);
    const ascend_sim::Range dst_ranges[2] = {ascend_sim::check_operand(ascend_sim::writes, "dst0", dst0, elements / 2),
                                             ascend_sim::check_operand(ascend_sim::writes, "dst1", dst1, elements / 2)};
    ascend_sim::check_two_disjoint(dst_ranges, {{"src", src_range}});
    ascend_sim::deinterleave(dst0, dst1, std::vector<T>(src.data(), src.data() + elements));
}

}  // namespace AscendC
