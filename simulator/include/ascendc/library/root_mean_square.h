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
inline void scale_rows(NormSteps& m, const Floats& d, const Floats& s, const Floats& factors, uint32_t rows, uint32_t h,
                       bool basic_block) {
    constexpr uint32_t kGroup = 8;
    if (basic_block && !kIs310p && rows > kGroup && rows > h / NormSteps::kLanes) {
        // Blocks of factors at the beginning of each row, copied along the row, then one product.
        const uint32_t stride = h / 8;
        AscendC::SetMaskNorm(m.site());
        AscendC::ResetMask(m.site());
        AscendC::Brcb(d, factors, uint8_t(rows / kGroup), {uint16_t(stride), uint16_t(stride * kGroup)}, m.site());
        if (!kIs950) barrier(int32_t(Pipe::V), m.site());
        AscendC::SetMaskCount(m.site());
        move_elements("Adds", m.site(), first_of("dst", d, rows * h), first_of("src", d, rows * h),
                      rows * (h / NormSteps::kLanes), Cost::Repeat, [&] {
                          for (uint32_t i = 0; i < rows * h; ++i) d.data()[i] = d.data()[i / h * h];
                      });
        m.count(rows * h);
        m.mul(d, d, s);
        return;
    }
    const std::vector<float> values = m.scalars(factors, rows);
    m.count(h);
    m.together([&] {
        for (uint32_t r = 0; r < rows; ++r) m.muls(d[r * h], s[r * h], values[r]);
    });
}

// d = s with each row multiplied by v: an instruction for each row, or for each repeat of a row's length.
inline void mul_by_row(NormSteps& m, const Floats& d, const Floats& s, const Floats& v, uint32_t rows, uint32_t h) {
    constexpr uint32_t kLanes = NormSteps::kLanes;
    if (h / kLanes >= rows || h > 255 * 8) return m.mul_rows(d, s, v, rows, h);
    const auto stride = uint8_t(h / 8);
    const AscendC::BinaryRepeatParams params(1, 1, 1, stride, stride, 0);
    const uint32_t chunks = h / kLanes, tail = h % kLanes;
    m.count(rows * kLanes);
    m.together([&] {
        for (uint32_t i = 0; i < chunks; ++i)
            AscendC::Mul<float, false>(d[i * kLanes], s[i * kLanes], v[i * kLanes], AscendC::MASK_PLACEHOLDER, 1,
                                       params, m.site());
        if (tail == 0) return;
        AscendC::SetMaskNorm(m.site());
        for (uint32_t r = 0; r < rows; r += NormSteps::kMostRepeats) {
            const uint32_t at = r * h + chunks * kLanes;
            AscendC::Mul<float>(d[at], s[at], v[chunks * kLanes], uint64_t(tail),
                                uint8_t(NormSteps::least(rows - r, NormSteps::kMostRepeats)), params, m.site());
        }
        AscendC::SetMaskCount(m.site());
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
    const auto memory = call.temporary(shared, {bytes, bytes});
    Operands all(call);
    const Range from = all.add("srcLocal", src, uint64_t(rows) * h);
    all.add("gammaLocal", gamma, h);
    all.add("sharedTmpBuffer", range_of(memory));
    const Range to = call.operand("dstLocal", dst, uint64_t(rows) * h);
    if (to.begin != from.begin) all.add("dstLocal", to);

    const Floats sums = memory.template ReinterpretCast<float>(), t = sums[tiling.mainBsLengthAlign];
    NormSteps m(call.site());
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = NormSteps::least(rows - first, round), at = first * h;
        Floats x;
        m.count(n * h);
        if constexpr (kIsHalf) {
            x = t[tiling.mainBshLength];
            m.cast(x, src[at], RoundMode::CAST_NONE);
        } else {
            x = src[at];
        }
        m.mul(t, x, x);
        if (kBasicBlock)
            m.basic_block_sums(sums, t, n, h);
        else
            m.repeat_sums(sums, t, n, h, tiling.originalHLength);
        m.count(n);
        m.muls(sums, sums, tiling.reciprocalOfHLength);
        m.adds(sums, sums, float(epsilon));
        m.ln(sums, sums);
        m.muls(sums, sums, -0.5f);
        m.exp(sums, sums);
        scale_rows(m, t, x, sums, n, h, kBasicBlock);
        if constexpr (kIsHalf) {
            m.count(h);
            m.cast(x, gamma, RoundMode::CAST_NONE);
            mul_by_row(m, t, t, x, n, h);
            m.count(n * h);
            m.cast(dst[at], t, RoundMode::CAST_NONE);
        } else {
            mul_by_row(m, dst[at], t, gamma, n, h);
        }
    }
    m.finish();
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
