// Interleave: alternate the elements of two tensors. DeInterleave: the inverse.
//
// Rules: Ascend950 only. count is even; operands aligned to 32 bytes, destinations disjoint from all others.
// Meaning: with s = src0[0], src1[0], src0[1], src1[1], ...: dst0 is the first count elements of s, dst1 the
// next. DeInterleave: of the concatenation of src0 and src1 (or of src) dst0 gets the even elements, dst1 the
// odd ones.
// Cost: a plain repeat per 256 bytes written.
#pragma once

#include <initializer_list>
#include <utility>

#include "ascendc/gather.h"

namespace ascend_sim {

inline uint64_t check_even(int32_t count) {
    const uint64_t n = checked_count(count);
    if (n % 2) broken(Rule::Count04, "count must be even but got %d.", count);
    return n;
}

// Checks the instruction's access to the first n elements of an operand; returns their bytes.
template <class T>
Range range_of(decltype(reads)& accesses, const char* name, const AscendC::LocalTensor<T>& t, uint64_t n) {
    check_aligned(name, t.view().addr);
    const Range r = view_range(t.view(), n * sizeof(T));
    accesses(name, t.view(), &r, n ? 1 : 0);
    return r;
}

// Checks that both destinations are disjoint from the sources and from each other.
inline void check_two_apart(const Range (&dst)[2], std::initializer_list<std::pair<const char*, Range>> sources) {
    constexpr const char* kNames[2] = {"dst0", "dst1"};
    for (int d = 0; d < 2; ++d)
        for (const auto& [name, range] : sources) check_disjoint(kNames[d], dst[d], name, range);
    check_disjoint(kNames[0], dst[0], kNames[1], dst[1]);
}

// n elements of each tensor.
template <class T>
void check_two_to_two(const AscendC::LocalTensor<T>& dst0, const AscendC::LocalTensor<T>& dst1,
                      const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, uint64_t n) {
    const Range a = range_of(reads, "src0", src0, n), b = range_of(reads, "src1", src1, n);
    const Range to[2] = {range_of(writes, "dst0", dst0, n), range_of(writes, "dst1", dst1, n)};
    check_two_apart(to, {{"src0", a}, {"src1", b}});
}

inline void finish_two(uint64_t bytes) {
    finish_vector(uint32_t((bytes + kRepeatBytes - 1) / kRepeatBytes), cycles_of(Cost::Repeat),
                  bytes % kRepeatBytes != 0);
}

template <class T>
void deinterleave(const AscendC::LocalTensor<T>& dst0, const AscendC::LocalTensor<T>& dst1, const std::vector<T>& s) {
    for (size_t i = 0; i < s.size() / 2; ++i) {
        dst0.data()[i] = s[2 * i];
        dst1.data()[i] = s[2 * i + 1];
    }
    finish_two(s.size() * sizeof(T));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Interleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0,
                const LocalTensor<T>& src1, const int32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Interleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Interleave", site);
    const uint64_t n = ascend_sim::check_even(count);
    ascend_sim::check_two_to_two(dst0, dst1, src0, src1, n);
    for (uint64_t i = 0; i < 2 * n; ++i) (i < n ? dst0 : dst1).data()[i % n] = (i % 2 ? src1 : src0).data()[i / 2];
    ascend_sim::finish_two(2 * n * sizeof(T));
}

template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0,
                  const LocalTensor<T>& src1, const int32_t count, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(DeInterleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "DeInterleave", site);
    const uint64_t n = ascend_sim::check_even(count);
    ascend_sim::check_two_to_two(dst0, dst1, src0, src1, n);
    std::vector<T> s(src0.data(), src0.data() + n);
    s.insert(s.end(), src1.data(), src1.data() + n);
    ascend_sim::deinterleave(dst0, dst1, s);
}

template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src,
                  const int32_t srcCount, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(DeInterleave, T);
    ascend_sim::start(ascend_sim::Pipe::V, "DeInterleave", site);
    const uint64_t n = ascend_sim::check_even(srcCount);
    const ascend_sim::Range a = ascend_sim::range_of(ascend_sim::reads, "src", src, n);
    const ascend_sim::Range to[2] = {ascend_sim::range_of(ascend_sim::writes, "dst0", dst0, n / 2),
                                     ascend_sim::range_of(ascend_sim::writes, "dst1", dst1, n / 2)};
    ascend_sim::check_two_apart(to, {{"src", a}});
    ascend_sim::deinterleave(dst0, dst1, std::vector<T>(src.data(), src.data() + n));
}

}  // namespace AscendC
