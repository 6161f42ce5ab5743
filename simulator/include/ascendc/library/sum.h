// Sum, Mean: sums and means of rows.
//
// Rules: half and float; Mean of half may add in float (accType). A row has `inner` elements of which n count: n
// rounded up to 32 bytes. Destination and source are apart. Meaning: each repeat is a tree of neighbours, then the
// repeats' sums are reduced the same way; Mean multiplies by 1 / n in T, or in float if it adds in float. Pages: Sum,
// Mean, GetSumMaxMinTmpSize, GetMeanMaxMinTmpSize; the steps are those of asc-devkit's impl/adv_api/detail/reduce/sum
// and mean.
#pragma once

#include "ascendc/library/norm_steps.h"
#include "ascendc/library/reduce_sizes.h"

namespace AscendC {

struct SumParams {
    uint32_t outter = 1;
    uint32_t inner = 0;
    uint32_t n = 0;
};
struct MeanParams {
    uint32_t outter = 1;
    uint32_t inner = 0;
    uint32_t n = 0;
};

}  // namespace AscendC

namespace ascend_sim {

// Checks a call; returns the temporary memory.
template <class P, class T>
AscendC::LocalTensor<uint8_t> check_sum(const Call& call, const AscendC::LocalTensor<T>& dst,
                                        const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<uint8_t>* shared,
                                        TmpSizes sizes, const P& p) {
    if (p.n == 0 || p.outter == 0 || p.inner != in_units(p.n * sizeof(T), kBlockBytes) / sizeof(T))
        call.report(Rule::Count04,
                    "inner must be n rounded up to 32 bytes, and none may be 0, but outter, inner and n are %u, %u and "
                    "%u.",
                    p.outter, p.inner, p.n);
    const Range to = call.check_operand("dstTensor", dst, p.outter);
    const Range from = call.check_operand("srcTensor", src, uint64_t(p.outter) * p.inner);
    call.check_apart("dstTensor", to, "srcTensor", from);
    const auto tmp = call.temporary_memory(shared, sizes);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", to);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", from);
    return tmp;
}

// to[0] = sum of the n elements of s; tmp has an element for each repeat.
template <class T>
void sum_by_repeats(NormSteps& steps, const AscendC::LocalTensor<T>& to, AscendC::LocalTensor<T> s,
                    const AscendC::LocalTensor<T>& tmp, uint32_t n) {
    constexpr uint32_t kInRepeat = kRepeatBytes / sizeof(T);
    for (; n > kInRepeat; n = (n + kInRepeat - 1) / kInRepeat) {
        steps.reduce_repeats(tmp, s, n);
        s = tmp;
    }
    steps.reduce_repeats(to, s, n);
}

template <class T>
void sum(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
         const AscendC::LocalTensor<uint8_t>* shared, const AscendC::SumParams& p) {
    const auto tmp = check_sum(call, dst, src, shared, sum_sizes(p.n, sizeof(T)), p);
    NormSteps steps(call.site());
    for (uint32_t r = 0; r < p.outter; ++r)
        sum_by_repeats(steps, dst[r], src[r * p.inner], tmp.template ReinterpretCast<T>(), p.n);
    steps.finish();
}

template <class A, class T>
void mean(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
          const AscendC::LocalTensor<uint8_t>* shared, const AscendC::MeanParams& p) {
    // The host's size has a byte for each repeat, not an element; a larger buffer is used.
    const auto memory = check_sum(call, dst, src, shared, {~0u, mean_sizes(p.n, sizeof(T), sizeof(A)).least}, p);
    const float factor = 1.0f / float(p.n);
    NormSteps steps(call.site());
    if constexpr (sizeof(A) == sizeof(T)) {
        const auto tmp = memory.template ReinterpretCast<T>();
        for (uint32_t r = 0; r < p.outter; ++r) sum_by_repeats(steps, dst[r], src[r * p.inner], tmp, p.n);
        steps.set_count(p.outter);
        steps.muls(dst, dst, T(factor));
    } else {
        const Floats x = memory.template ReinterpretCast<float>(), sums = x[p.inner];
        const AscendC::LocalTensor<T> result = memory.template ReinterpretCast<T>();
        for (uint32_t r = 0; r < p.outter; ++r) {
            steps.set_count(p.n);
            steps.cast(x, src[r * p.inner], RoundMode::CAST_NONE);
            sum_by_repeats(steps, sums, x, sums, p.n);
            steps.set_count(1);
            steps.muls(sums, sums, factor);
            steps.cast(result, sums, RoundMode::CAST_NONE);
            steps.reduce_repeats(dst[r], result, 1);
        }
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
void Sum(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
         const SumParams& sumParams, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Sum, T);
    ascend_sim::sum(ascend_sim::Call("Sum", site), dstTensor, srcTensor, &sharedTmpBuffer, sumParams);
}
template <class T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
void Sum(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SumParams& sumParams,
         ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Sum, T);
    ascend_sim::sum(ascend_sim::Call("Sum", site), dstTensor, srcTensor, nullptr, sumParams);
}

template <class T, class accType = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
void Mean(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
          const MeanParams& meanParams, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Mean, T);
    static_assert(std::is_same_v<accType, T> || std::is_same_v<accType, float>, "Mean: accType is T or float");
    ascend_sim::mean<accType>(ascend_sim::Call("Mean", site), dstTensor, srcTensor, &sharedTmpBuffer, meanParams);
}
template <class T, class accType = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
void Mean(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const MeanParams& meanParams,
          ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Mean, T);
    static_assert(std::is_same_v<accType, T> || std::is_same_v<accType, float>, "Mean: accType is T or float");
    ascend_sim::mean<accType>(ascend_sim::Call("Mean", site), dstTensor, srcTensor, nullptr, meanParams);
}

}  // namespace AscendC
