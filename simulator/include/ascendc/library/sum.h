// Sum, Mean: sums and means of rows.
//
// Rules: half and float; Mean of half may add in float (accType). There are `outter` rows. The first n elements of each
// row are added. `inner`, the distance of rows, is n rounded up to 32 bytes. Destination and source do not overlap.
// Meaning: the elements of a repeat are added in pairs, then the pairs' sums in pairs, until one is left. The sums of
// the repeats are added in the same way. Mean multiplies by 1 / n in T, or in accType if that is float.
// Pages: Sum, Mean, GetSumMaxMinTmpSize, GetMeanMaxMinTmpSize. The steps are those of asc-devkit's
// impl/adv_api/detail/reduce/sum and mean.
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
template <class Params, class T>
AscendC::LocalTensor<uint8_t> check_sum(const Call& call, const AscendC::LocalTensor<T>& dst,
                                        const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<uint8_t>* shared,
                                        TmpSizes sizes, const Params& params) {
    if (params.n == 0 || params.outter == 0 || params.inner != round_up(params.n * sizeof(T), kBlockBytes) / sizeof(T))
        call.report(Rule::Count04,
                    "inner must be n rounded up to 32 bytes, and none may be 0, but outter, inner and n are %u, %u and "
                    "%u.",
                    params.outter, params.inner, params.n);
    const Range dst_bytes = call.check_operand("dstTensor", dst, params.outter);
    const Range src_bytes = call.check_operand("srcTensor", src, uint64_t(params.outter) * params.inner);
    call.check_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    const auto tmp = call.temporary_memory(shared, sizes);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "dstTensor", dst_bytes);
    call.check_apart("sharedTmpBuffer", range_of(tmp), "srcTensor", src_bytes);
    return tmp;
}

// sum[0] = the sum of the n elements of src. tmp has an element for each repeat.
template <class T>
void sum_by_repeats(NormSteps& steps, const AscendC::LocalTensor<T>& sum, AscendC::LocalTensor<T> src,
                    const AscendC::LocalTensor<T>& tmp, uint32_t n) {
    constexpr uint32_t kElementsInRepeat = kRepeatBytes / sizeof(T);
    for (; n > kElementsInRepeat; n = (n + kElementsInRepeat - 1) / kElementsInRepeat) {
        steps.reduce_repeats(tmp, src, n);
        src = tmp;
    }
    steps.reduce_repeats(sum, src, n);
}

template <class T>
void sum(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
         const AscendC::LocalTensor<uint8_t>* shared, const AscendC::SumParams& params) {
    const auto tmp = check_sum(call, dst, src, shared, sum_sizes(params.n, sizeof(T)), params);
    NormSteps steps(call.site());
    for (uint32_t row = 0; row < params.outter; ++row)
        sum_by_repeats(steps, dst[row], src[row * params.inner], tmp.template ReinterpretCast<T>(), params.n);
    steps.finish();
}

template <class Accumulator, class T>
void mean(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
          const AscendC::LocalTensor<uint8_t>* shared, const AscendC::MeanParams& params) {
    // The host's size has only one byte, not one element, for each repeat. The function uses all of a larger buffer.
    const auto memory =
        check_sum(call, dst, src, shared, {~0u, mean_sizes(params.n, sizeof(T), sizeof(Accumulator)).least}, params);
    const float factor = 1.0f / float(params.n);
    NormSteps steps(call.site());
    if constexpr (sizeof(Accumulator) == sizeof(T)) {
        const auto tmp = memory.template ReinterpretCast<T>();
        for (uint32_t row = 0; row < params.outter; ++row)
            sum_by_repeats(steps, dst[row], src[row * params.inner], tmp, params.n);
        steps.set_count(params.outter);
        steps.muls(dst, dst, T(factor));
    } else {
        const Floats x = memory.template ReinterpretCast<float>(), sums = x[params.inner];
        const AscendC::LocalTensor<T> result = memory.template ReinterpretCast<T>();
        for (uint32_t row = 0; row < params.outter; ++row) {
            steps.set_count(params.n);
            steps.cast(x, src[row * params.inner], RoundMode::CAST_NONE);
            sum_by_repeats(steps, sums, x, sums, params.n);
            steps.set_count(1);
            steps.muls(sums, sums, factor);
            steps.cast(result, sums, RoundMode::CAST_NONE);
            steps.reduce_repeats(dst[row], result, 1);
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
