// DeepNorm, BatchNorm, GroupNorm: DeepNorm normalizes rows of alpha * x + gx, BatchNorm columns, GroupNorm groups of
// channels.
//
// Rules: half and float; GroupNorm not on Ascend310P. DeepNorm's rows (H, at most 2040 elements) and BatchNorm's rows
// (S * H) have whole 32-byte blocks. GroupNorm's channels are filled to whole blocks.
// With isBasicBlock, H or S * H is a multiple of 64, and the number of rows a multiple of 8.
// DeepNorm's dst may be src if isReuseSrc is true. BatchNorm's output may be inputX. No other operands overlap.
// The struct of the host's tiling function gives the number of elements that sharedTmpBuffer holds.
// Meaning: computed in float, with the steps of LayerNorm. BatchNorm: mean and variance of each column over B; gamma
// and beta have B elements; the factor is exp(-0.5 * ln(variance + epsilon)). DeepNorm writes the variance to
// rstdLocal, although its page names a reciprocal; CANN's own sample does the same. GroupNorm's mean includes the
// filling, its variance does not.
// Cost: the sum of the instructions for shapes without basic blocks.
// Pages: DeepNorm, BatchNorm, GroupNorm and their Tiling. The steps are those of asc-devkit's
// impl/adv_api/detail/normalization.
#pragma once

#include "ascendc/library/group_norm_tiling.h"
#include "ascendc/library/root_mean_square.h"

namespace ascend_sim {

// Adds values[r] to the first `changed` elements of row r. Rows have h elements.
inline void shift_rows(NormSteps& steps, const Floats& dst, const Floats& src, const std::vector<float>& values,
                       uint32_t rows, uint32_t h, uint32_t changed) {
    steps.set_count(changed);
    steps.share_barrier([&] {
        for (uint32_t r = 0; r < rows; ++r) steps.adds(dst[r * h], src[r * h], values[r]);
    });
}
inline std::vector<float> negated(std::vector<float> values) {
    for (float& value : values) value = -value;
    return values;
}
// dst = 1 / sqrt(dst). Overwrites `ones`.
inline void reciprocal_root(NormSteps& steps, const Floats& dst, const Floats& ones) {
    steps.fill(ones, 1.0f);
    steps.sqrt(dst, dst);
    steps.div(dst, ones, dst);
}

// ---- DeepNorm -----------------------------------------------------------------------------------------------------

template <class T>
struct DeepNormCall {
    AscendC::LocalTensor<T> dst, mean, variance, src, gx, beta, gamma;
    float alpha, epsilon;
};

template <bool kReusesSource, bool kBasicBlock, class T>
void deep_norm(const Call& call, const DeepNormCall<T>& norm, const AscendC::LocalTensor<uint8_t>* shared,
               const DeepNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    constexpr uint32_t kLongest = 2040;
    const uint32_t h = tiling.hLength, rows = tiling.meanVarSize, rows_per_round = tiling.meanVarRoundSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kSourceIsTmp ? 2 : 3);
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    if (h > kLongest) call.report(Rule::Count04, "H must be at most %u but is %u.", kLongest, h);
    if (kBasicBlock && (h % 64 || tiling.originalHLength != h || rows % 8))
        call.report(Rule::Count04,
                    "isBasicBlock needs H a multiple of 64 and B * S a multiple of 8, but they are %u and "
                    "%u.",
                    h, rows);
    DisjointOperands operands(call);
    const Range src_bytes = operands.add("srcLocal", norm.src, uint64_t(rows) * h);
    operands.add("gxLocal", norm.gx, uint64_t(rows) * h);
    operands.add("betaLocal", norm.beta, h);
    operands.add("gammaLocal", norm.gamma, h);
    operands.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    operands.add("meanLocal", norm.mean, rows);
    operands.add("rstdLocal", norm.variance, rows);
    const Range dst_bytes = call.check_operand("dstLocal", norm.dst, uint64_t(rows) * h);
    if (!kReusesSource || dst_bytes.begin != src_bytes.begin) operands.add("dstLocal", dst_bytes);

    NormSteps steps(call.site());
    // Writes the sums of the rows to `results`, and to aligned_sums, which begins at a 32-byte border.
    auto sum_each_row = [&](const Floats& results, const Floats& aligned_sums, const Floats& src, uint32_t round_rows) {
        if (kBasicBlock)
            steps.sum_basic_block_rows(results, src, round_rows, h, &aligned_sums);
        else
            steps.sum_rows_by_repeats(results, src, round_rows, h, tiling.originalHLength, &aligned_sums);
    };
    for (uint32_t first_row = 0; first_row < rows; first_row += rows_per_round) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, rows_per_round), offset = first_row * h;
        const Floats tmp1 = tmp[tiling.firstTmpStartPos], tmp2 = tmp[tiling.secondTmpStartPos];
        const Floats tmp3 = kSourceIsTmp ? tmp2 : tmp[tiling.thirdTmpStartPos];
        Floats first = tmp1, second = tmp2, third = tmp3, mean, variance;
        steps.set_count(round_rows * h);
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first_row];
            variance = tmp[tiling.varianceTmpTensorPos + first_row];
            steps.cast(first, norm.src[offset], RoundMode::CAST_NONE);
            steps.cast(third, norm.gx[offset], RoundMode::CAST_NONE);
            steps.muls(first, first, norm.alpha);
            steps.add(first, third, first);
        } else {
            mean = norm.mean[first_row];
            variance = norm.variance[first_row];
            if (kSourceIsTmp) first = norm.src[offset], second = tmp1, third = tmp2;
            steps.muls(second, norm.src[offset], norm.alpha);
            steps.add(first, norm.gx[offset], second);
        }
        steps.muls(third, first, tiling.lastDimValueBack);
        sum_each_row(mean, second, third, round_rows);
        shift_rows(steps, second, first, negated(steps.read_scalars(mean, round_rows)), round_rows, h, h);
        steps.set_count(round_rows * h);
        steps.mul(third, second, second);
        steps.muls(first, third, tiling.lastDimValueBack);
        sum_each_row(variance, third, first, round_rows);
        steps.set_count(round_rows);
        steps.adds(first, third, norm.epsilon);
        reciprocal_root(steps, first, third);
        scale_rows(steps, third, second, first, round_rows, h, kBasicBlock);
        if constexpr (kIsHalf) {
            steps.set_count(h);
            steps.cast(first, norm.gamma, RoundMode::CAST_NONE);
            steps.mul_rows(second, third, first, round_rows, h);
            steps.cast(third, norm.beta, RoundMode::CAST_NONE);
            steps.add_rows(first, second, third, round_rows, h);
            steps.set_count(round_rows * h);
            steps.cast(norm.dst[offset], first, RoundMode::CAST_NONE);
        } else {
            steps.mul_rows(first, third, norm.gamma, round_rows, h);
            steps.add_rows(norm.dst[offset], first, norm.beta, round_rows, h);
        }
    }
    if constexpr (kIsHalf) {
        steps.set_count(rows);
        steps.cast(norm.mean, tmp[tiling.meanTmpTensorPos], RoundMode::CAST_NONE);
        steps.cast(norm.variance, tmp[tiling.varianceTmpTensorPos], RoundMode::CAST_NONE);
    }
    steps.finish();
}

// ---- BatchNorm and GroupNorm --------------------------------------------------------------------------------------

template <class T>
struct NormCall {
    AscendC::LocalTensor<T> output, mean, variance, x, gamma, beta;
    float epsilon;
};

// Checks the operands. x and output have `size` elements, mean and variance `results`, gamma and beta `factors`.
template <class T>
void check_norm(const Call& call, const NormCall<T>& norm, uint64_t size, uint32_t results, uint32_t factors,
                const Floats& tmp, bool in_place) {
    DisjointOperands operands(call);
    const Range x_bytes = operands.add("inputX", norm.x, size);
    operands.add("gamma", norm.gamma, factors);
    operands.add("beta", norm.beta, factors);
    operands.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    operands.add("outputMean", norm.mean, results);
    operands.add("outputVariance", norm.variance, results);
    const Range output_bytes = call.check_operand("output", norm.output, size);
    if (!in_place || output_bytes.begin != x_bytes.begin) operands.add("output", output_bytes);
}

template <bool kBasicBlock, class T>
void batch_norm(const Call& call, const NormCall<T>& norm, const AscendC::LocalTensor<uint8_t>* shared,
                const BatchNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t b = tiling.originalBLength, sh = tiling.meanVarSize, columns_per_round = tiling.shCurLength;
    const Floats tmp = tiled_memory(call, shared, tiling, 3);
    check_pitch(call, sh, sh, sizeof(T));
    if (kBasicBlock && !is_batch_norm_basic_block(b, sh))
        call.report(Rule::Count04,
                    "isBasicBlock needs S * H a multiple of 64 and B a multiple of 8, but they are %u and "
                    "%u.",
                    sh, b);
    check_norm(call, norm, uint64_t(b) * sh, sh, b, tmp, true);
    const Floats tmp1 = tmp[tiling.firstTmpStartPos], tmp2 = tmp[tiling.secondTmpStartPos],
                 tmp3 = tmp[tiling.thirdTmpStartPos];
    NormSteps steps(call.site());
    for (uint32_t first_column = 0; first_column < sh; first_column += columns_per_round) {
        const uint32_t columns = std::min<uint32_t>(sh - first_column, columns_per_round);
        // Calls run_step(row, its offset in a temporary array, its offset in x and output).
        auto for_each_row = [&](auto run_step) {
            steps.set_count(columns);
            steps.share_barrier([&] {
                for (uint32_t i = 0; i < b; ++i) run_step(i, i * columns, i * sh + first_column);
            });
        };
        auto sum_rows = [&](const Floats& sums, const Floats& src) {
            steps.copy(sums, src, columns);
            steps.set_count(columns);
            for (uint32_t i = 1; i < b; ++i) steps.add(sums, sums, src[i * columns]);
        };
        Floats mean, variance;
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first_column];
            variance = tmp[tiling.varianceTmpTensorPos + first_column];
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t x_offset) {
                steps.cast(tmp1[tmp_offset], norm.x[x_offset], RoundMode::CAST_NONE);
            });
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t) {
                steps.muls(tmp3[tmp_offset], tmp1[tmp_offset], tiling.firstDimValueBack);
            });
            sum_rows(mean, tmp3);
            for_each_row(
                [&](uint32_t, uint32_t tmp_offset, uint32_t) { steps.sub(tmp3[tmp_offset], tmp1[tmp_offset], mean); });
        } else {
            mean = norm.mean[first_column];
            variance = norm.variance[first_column];
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t x_offset) {
                steps.muls(tmp3[tmp_offset], norm.x[x_offset], tiling.firstDimValueBack);
            });
            sum_rows(mean, tmp3);
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t x_offset) {
                steps.sub(tmp3[tmp_offset], norm.x[x_offset], mean);
            });
        }
        steps.set_count(b * columns);
        steps.mul(tmp2, tmp3, tmp3);
        steps.muls(tmp1, tmp2, tiling.firstDimValueBack);
        sum_rows(variance, tmp1);
        steps.set_count(columns);
        steps.adds(tmp1, variance, norm.epsilon);
        steps.ln(tmp2, tmp1);
        steps.muls(tmp1, tmp2, -0.5f);
        steps.exp(tmp2, tmp1);
        for_each_row(
            [&](uint32_t, uint32_t tmp_offset, uint32_t) { steps.mul(tmp3[tmp_offset], tmp3[tmp_offset], tmp2); });
        // Fills row i of tmp2 with src[i].
        auto load_row_factors = [&](const AscendC::LocalTensor<T>& src) {
            Floats values;
            if constexpr (kIsHalf) {
                values = tmp1;
                steps.set_count(b);
                steps.cast(tmp1, src, RoundMode::CAST_NONE);
            } else {
                values = src;
            }
            const std::vector<float> scalars = steps.read_scalars(values, b);
            for_each_row([&](uint32_t i, uint32_t tmp_offset, uint32_t) { steps.fill(tmp2[tmp_offset], scalars[i]); });
        };
        load_row_factors(norm.gamma);
        steps.set_count(b * columns);
        steps.mul(tmp3, tmp2, tmp3);
        load_row_factors(norm.beta);
        if constexpr (kIsHalf) {
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t) {
                steps.add(tmp2[tmp_offset], tmp2[tmp_offset], tmp3[tmp_offset]);
            });
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t output_offset) {
                steps.cast(norm.output[output_offset], tmp2[tmp_offset], RoundMode::CAST_NONE);
            });
            steps.set_count(columns);
            steps.cast(norm.mean[first_column], mean, RoundMode::CAST_NONE);
            steps.cast(norm.variance[first_column], variance, RoundMode::CAST_NONE);
        } else {
            for_each_row([&](uint32_t, uint32_t tmp_offset, uint32_t output_offset) {
                steps.add(norm.output[output_offset], tmp2[tmp_offset], tmp3[tmp_offset]);
            });
        }
    }
    steps.finish();
}

template <bool kReusesSource, class T>
void group_norm(const Call& call, const NormCall<T>& norm, const AscendC::LocalTensor<uint8_t>* shared,
                const GroupNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    const uint32_t group_elements = tiling.dhwAlignSize, channel_pitch = tiling.hwAlignSize, group_channels = tiling.d,
                   channel_elements = tiling.hw;
    const uint32_t groups = tiling.meanVarSize, groups_per_round = tiling.meanVarRoundSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kSourceIsTmp ? 2 : 3);
    check_norm(call, norm, uint64_t(groups) * group_elements, groups, tiling.c, tmp, false);
    const Site site = call.site();
    const Floats tmp1 = tmp[tiling.firstTmpStartPos], tmp2 = tmp[tiling.secondTmpStartPos],
                 tmp3 = kSourceIsTmp ? tmp2 : tmp[tiling.thirdTmpStartPos];
    NormSteps steps(site);
    for (uint32_t first_group = 0; first_group < groups; first_group += groups_per_round) {
        const uint32_t round_groups = std::min<uint32_t>(groups - first_group, groups_per_round),
                       round_elements = round_groups * group_elements, offset = first_group * group_elements;
        Floats x, y, work = tmp1, products = tmp3, mean, variance;  // y: intermediate values, then the result
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first_group];
            variance = tmp[tiling.varianceTmpTensorPos + first_group];
            x = y = tmp2;
            steps.set_count(round_elements);
            steps.cast(x, norm.x[offset], RoundMode::CAST_NONE);
        } else {
            mean = norm.mean[first_group];
            variance = norm.variance[first_group];
            x = norm.x[offset];
            y = norm.output[offset];
        }
        // Computes a value for each group of the round. The values need not start at a 32-byte border, so the
        // instruction has a mask.
        auto run_masked = [&](const char* api, const Floats& dst, const Floats& src, auto function) {
            run_instruction(api, site, first_elements("dst", dst, round_groups),
                            first_elements("src", src, round_groups), round_groups, Cost::Repeat, [&] {
                                for (uint32_t i = 0; i < round_groups; ++i) dst.data()[i] = function(src.data()[i]);
                            });
        };
        auto sum_each_group = [&](const Floats& dst, const Floats& src, const Floats& sum_tmp) {
            AscendC::SetMaskNorm(site);
            AscendC::ResetMask(site);
            for (uint32_t i = 0; i < round_groups; ++i) {
                AscendC::ReduceSum<float>(dst[i], src[i * group_elements], sum_tmp[i * group_elements],
                                          int32_t(group_elements), site);
                if (!kIs950) barrier(int32_t(Pipe::V), site);
            }
            AscendC::SetMaskCount(site);
            run_masked("Muls", dst, dst, [&](float value) { return value * tiling.factor; });
        };
        sum_each_group(mean, x, products);
        steps.set_count(round_elements);
        if (!kIsHalf) steps.fill(y, 0.0f);
        const std::vector<float> means = steps.read_scalars(mean, round_groups);
        std::vector<float> channel_shifts(round_groups * group_channels);
        for (uint32_t i = 0; i < round_groups * group_channels; ++i) channel_shifts[i] = -means[i / group_channels];
        shift_rows(steps, y, x, channel_shifts, round_groups * group_channels, channel_pitch, channel_elements);
        steps.set_count(round_elements);
        steps.mul(products, y, y);
        sum_each_group(variance, products, work);
        run_masked("Adds", work, variance, [&](float value) { return value + norm.epsilon; });
        steps.set_count(round_groups);
        reciprocal_root(steps, work, products);
        scale_rows(steps, y, y, work, round_groups, group_elements, false);
        std::vector<float> channel_gammas, channel_betas;
        if constexpr (kIsHalf) {
            steps.set_count(tiling.c);
            steps.cast(work, norm.gamma, RoundMode::CAST_NONE);
            steps.cast(products, norm.beta, RoundMode::CAST_NONE);
            channel_gammas = steps.read_scalars(work, tiling.c);
            channel_betas = steps.read_scalars(products, tiling.c);
        } else {
            channel_gammas = steps.read_scalars(norm.gamma, tiling.c);
            channel_betas = steps.read_scalars(norm.beta, tiling.c);
        }
        steps.set_count(channel_elements);
        auto channel_of = [&](uint32_t i) { return (first_group * group_channels + i) % tiling.c; };
        for (uint32_t i = 0; i < round_groups * group_channels; ++i)
            steps.muls(y[i * channel_pitch], y[i * channel_pitch], channel_gammas[channel_of(i)]);
        for (uint32_t i = 0; i < round_groups * group_channels; ++i)
            steps.adds(y[i * channel_pitch], y[i * channel_pitch], channel_betas[channel_of(i)]);
        if constexpr (kIsHalf) {
            steps.set_count(round_elements);
            steps.cast(norm.output[offset], y, RoundMode::CAST_NONE);
        }
    }
    if constexpr (kIsHalf) {
        steps.set_count(groups);
        steps.cast(norm.mean, tmp[tiling.meanTmpTensorPos], RoundMode::CAST_NONE);
        steps.cast(norm.variance, tmp[tiling.varianceTmpTensorPos], RoundMode::CAST_NONE);
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The overloads with and without sharedTmpBuffer.
#define ASCEND_SIM_DEEP_NORM(memory)                                                                              \
    ASCEND_SIM_NEEDS(DeepNorm, T);                                                                                \
    ascend_sim::deep_norm<isReuseSrc, isBasicBlock, T>(                                                           \
        ascend_sim::Call("DeepNorm", site),                                                                       \
        {dstLocal, meanLocal, rstdLocal, srcLocal, gxLocal, betaLocal, gammaLocal, float(alpha), float(epsilon)}, \
        memory, tiling)
template <class T, bool isReuseSrc = false, bool isBasicBlock = false>
void DeepNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& meanLocal, const LocalTensor<T>& rstdLocal,
              const LocalTensor<T>& srcLocal, const LocalTensor<T>& gxLocal, const LocalTensor<T>& betaLocal,
              const LocalTensor<T>& gammaLocal, const LocalTensor<uint8_t>& sharedTmpBuffer, const T alpha,
              const T epsilon, DeepNormTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_DEEP_NORM(&sharedTmpBuffer);
}
template <class T, bool isReuseSrc = false, bool isBasicBlock = false>
void DeepNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& meanLocal, const LocalTensor<T>& rstdLocal,
              const LocalTensor<T>& srcLocal, const LocalTensor<T>& gxLocal, const LocalTensor<T>& betaLocal,
              const LocalTensor<T>& gammaLocal, const T alpha, const T epsilon, DeepNormTiling& tiling,
              ASCEND_SIM_SITE) {
    ASCEND_SIM_DEEP_NORM(nullptr);
}
#undef ASCEND_SIM_DEEP_NORM

#define ASCEND_SIM_NORM(Name, function, ...)                                                                           \
    template <class T, bool isReuseSource = false __VA_ARGS__>                                                         \
    void Name(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance,    \
              const LocalTensor<T>& inputX, const LocalTensor<T>& gamma, const LocalTensor<T>& beta,                   \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const T epsilon, Name##Tiling& tiling, ASCEND_SIM_SITE) {   \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::function(                                                                                          \
            ascend_sim::Call(#Name, site),                                                                             \
            ascend_sim::NormCall<T>{output, outputMean, outputVariance, inputX, gamma, beta, float(epsilon)},          \
            &sharedTmpBuffer, tiling);                                                                                 \
    }                                                                                                                  \
    template <class T, bool isReuseSource = false __VA_ARGS__>                                                         \
    void Name(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance,    \
              const LocalTensor<T>& inputX, const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const T epsilon,  \
              Name##Tiling& tiling, ASCEND_SIM_SITE) {                                                                 \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::function(                                                                                          \
            ascend_sim::Call(#Name, site),                                                                             \
            ascend_sim::NormCall<T>{output, outputMean, outputVariance, inputX, gamma, beta, float(epsilon)}, nullptr, \
            tiling);                                                                                                   \
    }
ASCEND_SIM_NORM(BatchNorm, batch_norm<isBasicBlock>, , bool isBasicBlock = false)
ASCEND_SIM_NORM(GroupNorm, group_norm<isReuseSource>)
#undef ASCEND_SIM_NORM

}  // namespace AscendC
