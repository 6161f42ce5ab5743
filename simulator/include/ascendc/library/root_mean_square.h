// RmsNorm: rows divided by their root mean square, scaled by gamma.
//
// Rules: half and float. Rows have whole 32-byte blocks. dstLocal may be srcLocal, but not gammaLocal. isBasicBlock
// needs H a multiple of 64 less than 2048, and B * S a multiple of 8. The struct of the host's tiling function gives
// the number of rows that sharedTmpBuffer holds.
// Meaning: y = x * exp(-0.5 * ln(sum(x * x) / H + epsilon)) * gamma, computed in float. The sum has the original H
// elements.
// Pages: RmsNorm, RmsNorm Tiling. The steps are those of asc-devkit's impl/adv_api/detail/normalization/rmsnorm.
#pragma once

#include "ascendc/broadcast.h"
#include "ascendc/library/layer_norm.h"

namespace ascend_sim {

// Row r of dst = row r of src * factors[r].
inline void scale_rows(NormSteps& steps, const Floats& dst, const Floats& src, const Floats& factors, uint32_t rows,
                       uint32_t h, bool basic_block) {
    constexpr uint32_t kGroupRows = 8;
    if (basic_block && !kIs310p && rows > kGroupRows && rows > h / NormSteps::kLanes) {
        // Each row of dst begins with a block of its factor. The block is copied along the row; then one product
        // follows.
        const uint32_t stride = h / 8;
        AscendC::SetMaskNorm(steps.site());
        AscendC::ResetMask(steps.site());
        AscendC::Brcb(dst, factors, uint8_t(rows / kGroupRows), {uint16_t(stride), uint16_t(stride * kGroupRows)},
                      steps.site());
        if (!kIs950) barrier(int32_t(Pipe::V), steps.site());
        AscendC::SetMaskCount(steps.site());
        run_instruction("Adds", steps.site(), first_elements("dst", dst, rows * h),
                        first_elements("src", dst, rows * h), rows * (h / NormSteps::kLanes), Cost::Repeat, [&] {
                            for (uint32_t i = 0; i < rows * h; ++i) dst.data()[i] = dst.data()[i / h * h];
                        });
        steps.set_count(rows * h);
        steps.mul(dst, dst, src);
        return;
    }
    const std::vector<float> values = steps.read_scalars(factors, rows);
    steps.set_count(h);
    steps.share_barrier([&] {
        for (uint32_t r = 0; r < rows; ++r) steps.muls(dst[r * h], src[r * h], values[r]);
    });
}

// Row r of dst = row r of src * row. Runs one instruction for each row, or for each repeat in a row.
inline void mul_each_row(NormSteps& steps, const Floats& dst, const Floats& src, const Floats& row, uint32_t rows,
                         uint32_t h) {
    constexpr uint32_t kLanes = NormSteps::kLanes;
    if (h / kLanes >= rows || h > 255 * 8) return steps.mul_rows(dst, src, row, rows, h);
    const auto stride = uint8_t(h / 8);
    const AscendC::BinaryRepeatParams params(1, 1, 1, stride, stride, 0);
    const uint32_t chunks = h / kLanes, tail = h % kLanes;
    steps.set_count(rows * kLanes);
    steps.share_barrier([&] {
        for (uint32_t i = 0; i < chunks; ++i)
            AscendC::Mul<float, false>(dst[i * kLanes], src[i * kLanes], row[i * kLanes], AscendC::MASK_PLACEHOLDER, 1,
                                       params, steps.site());
        if (tail == 0) return;
        AscendC::SetMaskNorm(steps.site());
        for (uint32_t r = 0; r < rows; r += NormSteps::kMaxRepeats) {
            const uint32_t offset = r * h + chunks * kLanes;
            AscendC::Mul<float>(dst[offset], src[offset], row[chunks * kLanes], uint64_t(tail),
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
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength, rows_per_round = tiling.mainBsLength;
    if (rows_per_round == 0)
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
    const Range src_bytes = operands.add("srcLocal", src, uint64_t(rows) * h);
    operands.add("gammaLocal", gamma, h);
    operands.add("sharedTmpBuffer", range_of(memory));
    const Range dst_bytes = call.check_operand("dstLocal", dst, uint64_t(rows) * h);
    if (dst_bytes.begin != src_bytes.begin) operands.add("dstLocal", dst_bytes);

    const Floats sums = memory.template ReinterpretCast<float>(), products = sums[tiling.mainBsLengthAlign];
    NormSteps steps(call.site());
    for (uint32_t first_row = 0; first_row < rows; first_row += rows_per_round) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, rows_per_round), offset = first_row * h;
        Floats x;
        steps.set_count(round_rows * h);
        if constexpr (kIsHalf) {
            x = products[tiling.mainBshLength];
            steps.cast(x, src[offset], RoundMode::CAST_NONE);
        } else {
            x = src[offset];
        }
        steps.mul(products, x, x);
        if (kBasicBlock)
            steps.sum_basic_block_rows(sums, products, round_rows, h);
        else
            steps.sum_rows_by_repeats(sums, products, round_rows, h, tiling.originalHLength);
        steps.set_count(round_rows);
        steps.muls(sums, sums, tiling.reciprocalOfHLength);
        steps.adds(sums, sums, float(epsilon));
        steps.ln(sums, sums);
        steps.muls(sums, sums, -0.5f);
        steps.exp(sums, sums);
        scale_rows(steps, products, x, sums, round_rows, h, kBasicBlock);
        if constexpr (kIsHalf) {
            steps.set_count(h);
            steps.cast(x, gamma, RoundMode::CAST_NONE);
            mul_each_row(steps, products, products, x, round_rows, h);
            steps.set_count(round_rows * h);
            steps.cast(dst[offset], products, RoundMode::CAST_NONE);
        } else {
            mul_each_row(steps, dst[offset], products, gamma, round_rows, h);
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
