// RmsNorm: rows divided by their root mean square, scaled by gamma.
//
// Rules: half and float. Rows have whole 32-byte blocks; dstLocal may be srcLocal, but not gammaLocal. isBasicBlock: H
// a multiple of 64 less than 2048, and B * S a multiple of 8. The struct of the host's tiling function says how many
// rows sharedTmpBuffer holds. Meaning: in float: y = x * exp(-0.5 * ln(sum(x * x) / H + epsilon)) * gamma; the sum
// takes the original H elements. Pages: RmsNorm, RmsNorm Tiling; the steps are those of asc-devkit's
// impl/adv_api/detail/normalization/rmsnorm.
#pragma once

#include "ascendc/broadcast.h"
#include "ascendc/library/layer_norm.h"

namespace ascend_sim {

// d = s with row r multiplied by factors[r].
inline void scale_rows(NormSteps& steps, const Floats& d, const Floats& s, const Floats& factors, uint32_t rows,
                       uint32_t h, bool basic_block) {
    constexpr uint32_t kGroup = 8;
    if (basic_block && !kIs310p && rows > kGroup && rows > h / NormSteps::kLanes) {
        // Blocks of factors at the beginning of each row, copied along the row, then one product.
        const uint32_t stride = h / 8;
        AscendC::SetMaskNorm(steps.site());
        AscendC::ResetMask(steps.site());
        AscendC::Brcb(d, factors, uint8_t(rows / kGroup), {uint16_t(stride), uint16_t(stride * kGroup)}, steps.site());
        if (!kIs950) barrier(int32_t(Pipe::V), steps.site());
        AscendC::SetMaskCount(steps.site());
        run_instruction("Adds", steps.site(), first_elements("dst", d, rows * h), first_elements("src", d, rows * h),
                        rows * (h / NormSteps::kLanes), Cost::Repeat, [&] {
                            for (uint32_t i = 0; i < rows * h; ++i) d.data()[i] = d.data()[i / h * h];
                        });
        steps.set_count(rows * h);
        steps.mul(d, d, s);
        return;
    }
    const std::vector<float> values = steps.read_scalars(factors, rows);
    steps.set_count(h);
    steps.share_barrier([&] {
        for (uint32_t r = 0; r < rows; ++r) steps.muls(d[r * h], s[r * h], values[r]);
    });
}

// d = s with each row multiplied by v: an instruction for each row, or for each repeat of a row's length.
inline void mul_by_row(NormSteps& steps, const Floats& d, const Floats& s, const Floats& v, uint32_t rows, uint32_t h) {
    constexpr uint32_t kLanes = NormSteps::kLanes;
    if (h / kLanes >= rows || h > 255 * 8) return steps.mul_rows(d, s, v, rows, h);
    const auto stride = uint8_t(h / 8);
    const AscendC::BinaryRepeatParams params(1, 1, 1, stride, stride, 0);
    const uint32_t chunks = h / kLanes, tail = h % kLanes;
    steps.set_count(rows * kLanes);
    steps.share_barrier([&] {
        for (uint32_t i = 0; i < chunks; ++i)
            AscendC::Mul<float, false>(d[i * kLanes], s[i * kLanes], v[i * kLanes], AscendC::MASK_PLACEHOLDER, 1,
                                       params, steps.site());
        if (tail == 0) return;
        AscendC::SetMaskNorm(steps.site());
        for (uint32_t r = 0; r < rows; r += NormSteps::kMaxRepeats) {
            const uint32_t at = r * h + chunks * kLanes;
            AscendC::Mul<float>(d[at], s[at], v[chunks * kLanes], uint64_t(tail),
                                uint8_t(std::min<uint32_t>(rows - r, NormSteps::kMaxRepeats)), params, steps.site());
        }
        AscendC::SetMaskCount(steps.site());
    });
}

template <bool kBasicBlock, class T>
void normalize_rms(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                   const AscendC::LocalTensor<T>& gamma, const AscendC::LocalTensor<uint8_t>* shared, T epsilon,
                   const RmsNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength, round = tiling.mainBsLength;
    if (round == 0)
        call.report(Rule::Count04, "the tiling has no round: mainBsLength is 0. Fill it by GetRmsNormTilingInfo.");
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    if (kBasicBlock && !is_rms_norm_basic_block(rows, h))
        call.report(Rule::Count04,
                    "isBasicBlock needs H a multiple of 64 less than 2048 and B * S a multiple of 8, but "
                    "they are %u and %u.",
                    h, rows);
    const uint32_t bytes = (tiling.mainBsLengthAlign + (kIsHalf ? 2 : 1) * tiling.mainBshLength) * 4;
    const auto memory = call.temporary_memory(shared, {bytes, bytes});
    DisjointOperands operands(call);
    const Range from = operands.add("srcLocal", src, uint64_t(rows) * h);
    operands.add("gammaLocal", gamma, h);
    operands.add("sharedTmpBuffer", range_of(memory));
    const Range to = call.check_operand("dstLocal", dst, uint64_t(rows) * h);
    if (to.begin != from.begin) operands.add("dstLocal", to);

    const Floats sums = memory.template ReinterpretCast<float>(), t = sums[tiling.mainBsLengthAlign];
    NormSteps steps(call.site());
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = std::min<uint32_t>(rows - first, round), at = first * h;
        Floats x;
        steps.set_count(n * h);
        if constexpr (kIsHalf) {
            x = t[tiling.mainBshLength];
            steps.cast(x, src[at], RoundMode::CAST_NONE);
        } else {
            x = src[at];
        }
        steps.mul(t, x, x);
        if (kBasicBlock)
            steps.sum_basic_block_rows(sums, t, n, h);
        else
            steps.sum_rows_by_repeats(sums, t, n, h, tiling.originalHLength);
        steps.set_count(n);
        steps.muls(sums, sums, tiling.reciprocalOfHLength);
        steps.adds(sums, sums, float(epsilon));
        steps.ln(sums, sums);
        steps.muls(sums, sums, -0.5f);
        steps.exp(sums, sums);
        scale_rows(steps, t, x, sums, n, h, kBasicBlock);
        if constexpr (kIsHalf) {
            steps.set_count(h);
            steps.cast(x, gamma, RoundMode::CAST_NONE);
            mul_by_row(steps, t, t, x, n, h);
            steps.set_count(n * h);
            steps.cast(dst[at], t, RoundMode::CAST_NONE);
        } else {
            mul_by_row(steps, dst[at], t, gamma, n, h);
        }
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const T epsilon, const RmsNormTiling& tiling,
             ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(RmsNorm, T);
    ascend_sim::normalize_rms<isBasicBlock>(ascend_sim::Call("RmsNorm", site), dstLocal, srcLocal, gammaLocal,
                                            &sharedTmpBuffer, epsilon, tiling);
}
template <class T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal,
             const T epsilon, const RmsNormTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(RmsNorm, T);
    ascend_sim::normalize_rms<isBasicBlock>(ascend_sim::Call("RmsNorm", site), dstLocal, srcLocal, gammaLocal, nullptr,
                                            epsilon, tiling);
}

}  // namespace AscendC
