// DeepNorm, BatchNorm, GroupNorm: norms of alpha * x + gx by rows, of columns, and of groups of channels.
//
// Rules: half and float; GroupNorm not on Ascend310P. Rows have whole 32-byte blocks (DeepNorm at most 2040 elements,
// BatchNorm S * H); GroupNorm's channels are filled to whole blocks. isBasicBlock: DeepNorm: H a multiple of 64 and
// B * S of 8; BatchNorm: S * H a multiple of 64 and B of 8. DeepNorm's dst may be src with isReuseSrc; BatchNorm's
// output may be inputX. The other operands are apart. The struct of the host's tiling function says how much
// sharedTmpBuffer holds.
// Meaning: in float, with the steps of LayerNorm; BatchNorm: mean and variance over B, gamma and beta by B, and
// exp(-0.5 * ln(variance + epsilon)). The result that DeepNorm's page calls rstdLocal is the variance, as in CANN's own
// sample. GroupNorm's mean takes the filling, its variance does not.
// Cost: that of the instructions of shapes without basic blocks.
// Pages: DeepNorm, BatchNorm, GroupNorm and their Tiling; the steps are those of asc-devkit's
// impl/adv_api/detail/normalization.
#pragma once

#include "ascendc/library/group_norm_tiling.h"
#include "ascendc/library/root_mean_square.h"

namespace ascend_sim {

// d = s + values[r] in row r of h elements, of which n change.
inline void shift_rows(NormSteps& steps, const Floats& d, const Floats& s, const std::vector<float>& values,
                       uint32_t rows, uint32_t h, uint32_t n) {
    steps.set_count(n);
    steps.share_barrier([&] {
        for (uint32_t r = 0; r < rows; ++r) steps.adds(d[r * h], s[r * h], values[r]);
    });
}
inline std::vector<float> negated(std::vector<float> values) {
    for (float& v : values) v = -v;
    return values;
}
// d = 1 / sqrt(d); ones is overwritten.
inline void reciprocal_root(NormSteps& steps, const Floats& d, const Floats& ones) {
    steps.fill(ones, 1.0f);
    steps.sqrt(d, d);
    steps.div(d, ones, d);
}

// ---- DeepNorm -----------------------------------------------------------------------------------------------------

template <class T>
struct DeepNormCall {
    AscendC::LocalTensor<T> dst, mean, variance, src, gx, beta, gamma;
    float alpha, epsilon;
};

template <bool kReusesSource, bool kBasicBlock, class T>
void deep_norm(const Call& call, const DeepNormCall<T>& p, const AscendC::LocalTensor<uint8_t>* shared,
               const DeepNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    constexpr uint32_t kLongest = 2040;
    const uint32_t h = tiling.hLength, rows = tiling.meanVarSize, round = tiling.meanVarRoundSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kSourceIsTmp ? 2 : 3);
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    if (h > kLongest) call.report(Rule::Count04, "H must be at most %u but is %u.", kLongest, h);
    if (kBasicBlock && (h % 64 || tiling.originalHLength != h || rows % 8))
        call.report(Rule::Count04,
                    "isBasicBlock needs H a multiple of 64 and B * S a multiple of 8, but they are %u and "
                    "%u.",
                    h, rows);
    DisjointOperands operands(call);
    const Range from = operands.add("srcLocal", p.src, uint64_t(rows) * h);
    operands.add("gxLocal", p.gx, uint64_t(rows) * h);
    operands.add("betaLocal", p.beta, h);
    operands.add("gammaLocal", p.gamma, h);
    operands.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    operands.add("meanLocal", p.mean, rows);
    operands.add("rstdLocal", p.variance, rows);
    const Range to = call.check_operand("dstLocal", p.dst, uint64_t(rows) * h);
    if (!kReusesSource || to.begin != from.begin) operands.add("dstLocal", to);

    NormSteps steps(call.site());
    auto sums = [&](const Floats& d, const Floats& also, const Floats& s, uint32_t n) {
        if (kBasicBlock)
            steps.sum_basic_block_rows(d, s, n, h, &also);
        else
            steps.sum_rows_by_repeats(d, s, n, h, tiling.originalHLength, &also);
    };
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = std::min<uint32_t>(rows - first, round), at = first * h;
        const Floats t1 = tmp[tiling.firstTmpStartPos], t2 = tmp[tiling.secondTmpStartPos];
        const Floats t3 = kSourceIsTmp ? t2 : tmp[tiling.thirdTmpStartPos];
        Floats a = t1, b = t2, c = t3, mean, variance;
        steps.set_count(n * h);
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first];
            variance = tmp[tiling.varianceTmpTensorPos + first];
            steps.cast(a, p.src[at], RoundMode::CAST_NONE);
            steps.cast(c, p.gx[at], RoundMode::CAST_NONE);
            steps.muls(a, a, p.alpha);
            steps.add(a, c, a);
        } else {
            mean = p.mean[first];
            variance = p.variance[first];
            if (kSourceIsTmp) a = p.src[at], b = t1, c = t2;
            steps.muls(b, p.src[at], p.alpha);
            steps.add(a, p.gx[at], b);
        }
        steps.muls(c, a, tiling.lastDimValueBack);
        sums(mean, b, c, n);
        shift_rows(steps, b, a, negated(steps.read_scalars(mean, n)), n, h, h);
        steps.set_count(n * h);
        steps.mul(c, b, b);
        steps.muls(a, c, tiling.lastDimValueBack);
        sums(variance, c, a, n);
        steps.set_count(n);
        steps.adds(a, c, p.epsilon);
        reciprocal_root(steps, a, c);
        scale_rows(steps, c, b, a, n, h, kBasicBlock);
        if constexpr (kIsHalf) {
            steps.set_count(h);
            steps.cast(a, p.gamma, RoundMode::CAST_NONE);
            steps.mul_rows(b, c, a, n, h);
            steps.cast(c, p.beta, RoundMode::CAST_NONE);
            steps.add_rows(a, b, c, n, h);
            steps.set_count(n * h);
            steps.cast(p.dst[at], a, RoundMode::CAST_NONE);
        } else {
            steps.mul_rows(a, c, p.gamma, n, h);
            steps.add_rows(p.dst[at], a, p.beta, n, h);
        }
    }
    if constexpr (kIsHalf) {
        steps.set_count(rows);
        steps.cast(p.mean, tmp[tiling.meanTmpTensorPos], RoundMode::CAST_NONE);
        steps.cast(p.variance, tmp[tiling.varianceTmpTensorPos], RoundMode::CAST_NONE);
    }
    steps.finish();
}

// ---- BatchNorm and GroupNorm --------------------------------------------------------------------------------------

template <class T>
struct NormCall {
    AscendC::LocalTensor<T> out, mean, variance, x, gamma, beta;
    float epsilon;
};

// Checks the operands: `size` elements of x and output, `results` means and variances, `factors` of gamma and beta.
template <class T>
void check_norm(const Call& call, const NormCall<T>& p, uint64_t size, uint32_t results, uint32_t factors,
                const Floats& tmp, bool in_place) {
    DisjointOperands operands(call);
    const Range from = operands.add("inputX", p.x, size);
    operands.add("gamma", p.gamma, factors);
    operands.add("beta", p.beta, factors);
    operands.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    operands.add("outputMean", p.mean, results);
    operands.add("outputVariance", p.variance, results);
    const Range to = call.check_operand("output", p.out, size);
    if (!in_place || to.begin != from.begin) operands.add("output", to);
}

template <bool kBasicBlock, class T>
void batch_norm(const Call& call, const NormCall<T>& p, const AscendC::LocalTensor<uint8_t>* shared,
                const BatchNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t b = tiling.originalBLength, sh = tiling.meanVarSize, round = tiling.shCurLength;
    const Floats tmp = tiled_memory(call, shared, tiling, 3);
    check_pitch(call, sh, sh, sizeof(T));
    if (kBasicBlock && !is_batch_norm_basic_block(b, sh))
        call.report(Rule::Count04,
                    "isBasicBlock needs S * H a multiple of 64 and B a multiple of 8, but they are %u and "
                    "%u.",
                    sh, b);
    check_norm(call, p, uint64_t(b) * sh, sh, b, tmp, true);
    const Floats t1 = tmp[tiling.firstTmpStartPos], t2 = tmp[tiling.secondTmpStartPos],
                 t3 = tmp[tiling.thirdTmpStartPos];
    NormSteps steps(call.site());
    for (uint32_t first = 0; first < sh; first += round) {
        const uint32_t n = std::min<uint32_t>(sh - first, round);
        auto by_rows = [&](auto one) {
            steps.set_count(n);
            steps.share_barrier([&] {
                for (uint32_t i = 0; i < b; ++i) one(i, i * n, i * sh + first);
            });
        };
        auto sum_rows = [&](const Floats& d, const Floats& s) {
            steps.copy(d, s, n);
            steps.set_count(n);
            for (uint32_t i = 1; i < b; ++i) steps.add(d, d, s[i * n]);
        };
        Floats mean, variance;
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first];
            variance = tmp[tiling.varianceTmpTensorPos + first];
            by_rows([&](uint32_t, uint32_t at, uint32_t in) { steps.cast(t1[at], p.x[in], RoundMode::CAST_NONE); });
            by_rows([&](uint32_t, uint32_t at, uint32_t) { steps.muls(t3[at], t1[at], tiling.firstDimValueBack); });
            sum_rows(mean, t3);
            by_rows([&](uint32_t, uint32_t at, uint32_t) { steps.sub(t3[at], t1[at], mean); });
        } else {
            mean = p.mean[first];
            variance = p.variance[first];
            by_rows([&](uint32_t, uint32_t at, uint32_t in) { steps.muls(t3[at], p.x[in], tiling.firstDimValueBack); });
            sum_rows(mean, t3);
            by_rows([&](uint32_t, uint32_t at, uint32_t in) { steps.sub(t3[at], p.x[in], mean); });
        }
        steps.set_count(b * n);
        steps.mul(t2, t3, t3);
        steps.muls(t1, t2, tiling.firstDimValueBack);
        sum_rows(variance, t1);
        steps.set_count(n);
        steps.adds(t1, variance, p.epsilon);
        steps.ln(t2, t1);
        steps.muls(t1, t2, -0.5f);
        steps.exp(t2, t1);
        by_rows([&](uint32_t, uint32_t at, uint32_t) { steps.mul(t3[at], t3[at], t2); });
        // Factors of rows become rows.
        auto factors = [&](const AscendC::LocalTensor<T>& s) {
            Floats values;
            if constexpr (kIsHalf) {
                values = t1;
                steps.set_count(b);
                steps.cast(t1, s, RoundMode::CAST_NONE);
            } else {
                values = s;
            }
            const std::vector<float> scalars = steps.read_scalars(values, b);
            by_rows([&](uint32_t i, uint32_t at, uint32_t) { steps.fill(t2[at], scalars[i]); });
        };
        factors(p.gamma);
        steps.set_count(b * n);
        steps.mul(t3, t2, t3);
        factors(p.beta);
        if constexpr (kIsHalf) {
            by_rows([&](uint32_t, uint32_t at, uint32_t) { steps.add(t2[at], t2[at], t3[at]); });
            by_rows([&](uint32_t, uint32_t at, uint32_t out) { steps.cast(p.out[out], t2[at], RoundMode::CAST_NONE); });
            steps.set_count(n);
            steps.cast(p.mean[first], mean, RoundMode::CAST_NONE);
            steps.cast(p.variance[first], variance, RoundMode::CAST_NONE);
        } else {
            by_rows([&](uint32_t, uint32_t at, uint32_t out) { steps.add(p.out[out], t2[at], t3[at]); });
        }
    }
    steps.finish();
}

template <bool kReusesSource, class T>
void group_norm(const Call& call, const NormCall<T>& p, const AscendC::LocalTensor<uint8_t>* shared,
                const GroupNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    const uint32_t group = tiling.dhwAlignSize, channel = tiling.hwAlignSize, d = tiling.d, hw = tiling.hw;
    const uint32_t rows = tiling.meanVarSize, round = tiling.meanVarRoundSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kSourceIsTmp ? 2 : 3);
    check_norm(call, p, uint64_t(rows) * group, rows, tiling.c, tmp, false);
    const Site site = call.site();
    const Floats t1 = tmp[tiling.firstTmpStartPos], t2 = tmp[tiling.secondTmpStartPos],
                 t3 = kSourceIsTmp ? t2 : tmp[tiling.thirdTmpStartPos];
    NormSteps steps(site);
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = std::min<uint32_t>(rows - first, round), size = n * group, at = first * group;
        Floats x, y, a = t1, c = t3, mean, variance;  // y: the values on their way to the result
        if constexpr (kIsHalf) {
            mean = tmp[tiling.meanTmpTensorPos + first];
            variance = tmp[tiling.varianceTmpTensorPos + first];
            x = y = t2;
            steps.set_count(size);
            steps.cast(x, p.x[at], RoundMode::CAST_NONE);
        } else {
            mean = p.mean[first];
            variance = p.variance[first];
            x = p.x[at];
            y = p.out[at];
            if (kSourceIsTmp) a = t1, c = t2;
        }
        // The lanes of n results, which need not start a block: an instruction with a mask.
        auto masked = [&](const char* api, const Floats& to, const Floats& s, auto f) {
            run_instruction(api, site, first_elements("dst", to, n), first_elements("src", s, n), n, Cost::Repeat, [&] {
                for (uint32_t i = 0; i < n; ++i) to.data()[i] = f(s.data()[i]);
            });
        };
        auto sums = [&](const Floats& to, const Floats& s, const Floats& work) {
            AscendC::SetMaskNorm(site);
            AscendC::ResetMask(site);
            for (uint32_t i = 0; i < n; ++i) {
                AscendC::ReduceSum<float>(to[i], s[i * group], work[i * group], int32_t(group), site);
                if (!kIs950) barrier(int32_t(Pipe::V), site);
            }
            AscendC::SetMaskCount(site);
            masked("Muls", to, to, [&](float v) { return v * tiling.factor; });
        };
        sums(mean, x, c);
        steps.set_count(size);
        if (!kIsHalf) steps.fill(y, 0.0f);
        const std::vector<float> means = steps.read_scalars(mean, n);
        std::vector<float> by_channel(n * d);
        for (uint32_t i = 0; i < n * d; ++i) by_channel[i] = -means[i / d];
        shift_rows(steps, y, x, by_channel, n * d, channel, hw);
        steps.set_count(size);
        steps.mul(c, y, y);
        sums(variance, c, a);
        masked("Adds", a, variance, [&](float v) { return v + p.epsilon; });
        steps.set_count(n);
        reciprocal_root(steps, a, c);
        scale_rows(steps, y, y, a, n, group, false);
        std::vector<float> gammas, betas;
        if constexpr (kIsHalf) {
            steps.set_count(tiling.c);
            steps.cast(a, p.gamma, RoundMode::CAST_NONE);
            steps.cast(c, p.beta, RoundMode::CAST_NONE);
            gammas = steps.read_scalars(a, tiling.c);
            betas = steps.read_scalars(c, tiling.c);
        } else {
            gammas = steps.read_scalars(p.gamma, tiling.c);
            betas = steps.read_scalars(p.beta, tiling.c);
        }
        steps.set_count(hw);
        auto of_channel = [&](uint32_t i) { return (first * d + i) % tiling.c; };
        for (uint32_t i = 0; i < n * d; ++i) steps.muls(y[i * channel], y[i * channel], gammas[of_channel(i)]);
        for (uint32_t i = 0; i < n * d; ++i) steps.adds(y[i * channel], y[i * channel], betas[of_channel(i)]);
        if constexpr (kIsHalf) {
            steps.set_count(size);
            steps.cast(p.out[at], y, RoundMode::CAST_NONE);
        }
    }
    if constexpr (kIsHalf) {
        steps.set_count(rows);
        steps.cast(p.mean, tmp[tiling.meanTmpTensorPos], RoundMode::CAST_NONE);
        steps.cast(p.variance, tmp[tiling.varianceTmpTensorPos], RoundMode::CAST_NONE);
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The forms with and without sharedTmpBuffer.
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
