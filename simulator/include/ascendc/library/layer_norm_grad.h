// LayerNormGrad, LayerNormGradBeta: the gradients of LayerNorm for x, gamma and beta.
//
// Rules: half and float. Rows have whole 32-byte blocks; LayerNormGrad's results may be inputDy or inputX, all other
// operands are apart. The struct of the host's tiling function says how many rows sharedTmpBuffer holds.
// Meaning: in float. LayerNormGrad: d = x - mean, r = 1 / sqrt(variance + epsilon), g = dy * gamma;
// pd_variance = sum(g * d * -0.5 * r^3); pd_mean = sum(-g * r) + pd_variance * sum(-2 * d) / H;
// pd_x = g * r + pd_variance * 2 / H * d + pd_mean / H; resForGamma = d * r. The sums include the filling.
// LayerNormGradBeta: pd_gamma = sum over rows of dy * resForGamma, pd_beta = sum over rows of dy, for the original H
// elements; in half each round rounds.
// Cost: that of the instructions; LayerNormGrad is one instruction on Ascend950.
// Pages: LayerNormGrad, LayerNormGradBeta and their Tiling; the steps are those of asc-devkit's
// impl/adv_api/detail/normalization/layernormgrad.
#pragma once

#include "ascendc/library/deep_norm.h"

namespace AscendC {

struct LayerNormGradShapeInfo {
    DataFormat dataFormat = DataFormat::ND;
};

}  // namespace AscendC

namespace ascend_sim {

template <class T>
struct GradCall {
    AscendC::LocalTensor<T> pd_x, res, dy, x, variance, mean, gamma;
    float epsilon;
};

// d (rows of h) = s[r] in row r: instructions of 8 columns each.
inline void spread_columns(NormSteps& steps, const Floats& d, const Floats& s, uint32_t rows, uint32_t h) {
    run_instruction(kIs310p ? "Duplicate" : "Brcb", steps.site(), first_elements("dst", d, uint64_t(rows) * h),
                    first_elements("src", s, rows),
                    kIs310p ? rows * repeats_of(h * sizeof(float)) : h / 8 * ((rows + 7) / 8), Cost::Repeat, [&] {
                        for (uint32_t i = 0; i < rows * h; ++i) d.data()[i] = s.data()[i / h];
                    });
}

struct GradArrays {
    Floats work, pd_variance, pd_mean, x1, x2, x3,
        row_work;  // work: an array of the round; row_work: a value for each row
};

// Gradients of n rows, in float.
inline void layer_norm_grad_rows(NormSteps& steps, const GradArrays& t, const Floats& pd_x, const Floats& res,
                                 const Floats& variance, const LayerNormGradTiling& tiling, float epsilon, uint32_t n) {
    const uint32_t h = tiling.hLength, size = n * h;
    const float back = bits<float>(tiling.lastDimValueBack), twice = bits<float>(tiling.lastDimValueBackMulTwo);
    auto deviation = [&](bool cubed) {
        steps.set_count(n);
        steps.adds(t.row_work, variance, epsilon);
        if (cubed) {
            steps.mul(t.work, t.row_work, t.row_work);
            steps.mul(t.row_work, t.work, t.row_work);
        }
        steps.sqrt(t.row_work, t.row_work);
        steps.divide_one_by(t.row_work, t.work, n);
        spread_columns(steps, t.work, t.row_work, n, h);
        steps.set_count(size);
    };
    deviation(true);
    steps.mul(t.work, t.x2, t.work);
    steps.mul(t.work, t.x1, t.work);
    steps.muls(t.work, t.work, -0.5f);
    steps.sum_rows_by_repeats(t.pd_variance, t.work, n, h, h);
    deviation(false);
    steps.mul(res, t.x2, t.work);
    steps.mul(t.x3, t.x1, t.work);
    steps.muls(t.work, t.x3, -1.0f);
    steps.sum_rows_by_repeats(t.pd_mean, t.work, n, h, h);
    steps.set_count(size);
    steps.muls(t.work, t.x2, -2.0f);
    steps.sum_rows_by_repeats(t.row_work, t.work, n, h, h);
    steps.set_count(n);
    steps.muls(t.row_work, t.row_work, back);
    steps.mul(t.row_work, t.pd_variance, t.row_work);
    steps.add(t.pd_mean, t.pd_mean, t.row_work);
    steps.muls(t.pd_variance, t.pd_variance, twice);
    spread_columns(steps, t.work, t.pd_variance, n, h);
    steps.set_count(size);
    steps.mul(t.x1, t.work, t.x2);
    steps.set_count(n);
    steps.muls(t.pd_mean, t.pd_mean, back);
    spread_columns(steps, t.work, t.pd_mean, n, h);
    steps.set_count(size);
    steps.add(t.x1, t.x1, t.work);
    steps.add(pd_x, t.x1, t.x3);
}

template <bool kReusesSource, class T>
void layer_norm_grad_in_ub(NormSteps& steps, const GradCall<T>& p, const Floats& tmp,
                           const LayerNormGradTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    for (uint32_t first = 0; first < rows; first += tiling.nohCalSize) {
        const uint32_t n = std::min<uint32_t>(rows - first, tiling.nohCalSize), at = first * h, size = n * h;
        GradArrays t{tmp[tiling.tmpTensorBSHPos], tmp[tiling.pdVarTensorPos], tmp[tiling.pdMeanTensorPos],
                     tmp[tiling.x1TensorPos],     tmp[tiling.x2TensorPos],    tmp[tiling.x3TensorPos],
                     tmp[tiling.tmpTensorPos]};
        auto first_steps = [&](const Floats& dy, const Floats& gamma, auto then, const Floats& x, const Floats& mean) {
            steps.mul_rows(t.x1, dy, gamma, n, h);
            then();
            spread_columns(steps, t.work, mean, n, h);
            steps.set_count(size);
            steps.sub(t.x2, x, t.work);
        };
        if constexpr (kIsHalf) {
            const Floats a = tmp[tiling.tmpTensor1Pos], b = tmp[tiling.tmpTensor2Pos];
            steps.set_count(size);
            steps.cast(a, p.dy[at], RoundMode::CAST_NONE);
            steps.set_count(h);
            steps.cast(b, p.gamma, RoundMode::CAST_NONE);
            auto then = [&] {
                steps.set_count(size);
                steps.cast(a, p.x[at], RoundMode::CAST_NONE);
                steps.set_count(n);
                steps.cast(b, p.mean[first], RoundMode::CAST_NONE);
            };
            first_steps(a, b, then, a, b);
            steps.set_count(n);
            steps.cast(a, p.variance[first], RoundMode::CAST_NONE);
            layer_norm_grad_rows(steps, t, t.row_work, b, a, tiling, p.epsilon, n);
            steps.cast(p.pd_x[at], t.row_work, RoundMode::CAST_NONE);
            steps.cast(p.res[at], b, RoundMode::CAST_NONE);
        } else {
            t.row_work = p.pd_x[at];
            if (kReusesSource) t.x1 = p.dy[at], t.x2 = p.x[at];
            first_steps(p.dy[at], p.gamma, [] {}, p.x[at], p.mean[first]);
            layer_norm_grad_rows(steps, t, p.pd_x[at], p.res[at], p.variance[first], tiling, p.epsilon, n);
        }
    }
}

template <class T>
void layer_norm_grad_in_registers(const GradCall<T>& p, const LayerNormGradTiling& tiling, Site site) {
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    const float back = bits<float>(tiling.lastDimValueBack), twice = bits<float>(tiling.lastDimValueBackMulTwo);
    start(Pipe::V, "registers", site);
    const Lanes all_elements = Lanes::counted(sizeof(T), rows * h), by_row = Lanes::counted(sizeof(T), rows);
    check_source(Operand<T>{"inputDy", p.dy}, all_elements);
    check_source(Operand<T>{"inputX", p.x}, all_elements);
    check_source(Operand<T>{"inputVariance", p.variance}, by_row);
    check_source(Operand<T>{"inputMean", p.mean}, by_row);
    check_source(Operand<T>{"inputGamma", p.gamma}, Lanes::counted(sizeof(T), h));
    check_destination(Operand<T>{"outputPdX", p.pd_x}, all_elements);
    check_destination(Operand<T>{"resForGamma", p.res}, all_elements);
    const Arithmetic<T> type;
    std::vector<float> g(h), d(h), a(h), b(h), c(h);
    for (uint32_t r = 0; r < rows; ++r) {
        const float mean = float(p.mean.data()[r]), v = float(p.variance.data()[r]) + p.epsilon;
        const float rstd = 1.0f / std::sqrt(v), cubed = 1.0f / std::sqrt(v * v * v);
        for (uint32_t i = 0; i < h; ++i) {
            g[i] = float(p.dy.data()[r * h + i]) * float(p.gamma.data()[i]);
            d[i] = float(p.x.data()[r * h + i]) - mean;
            a[i] = g[i] * (d[i] * cubed) * -0.5f;
            b[i] = g[i] * rstd * -1.0f;
            c[i] = d[i] * -2.0f;
        }
        const float pd_variance = sum_in_registers(a.data(), h);
        const float pd_mean = sum_in_registers(b.data(), h) + pd_variance * (sum_in_registers(c.data(), h) * back);
        for (uint32_t i = 0; i < h; ++i) {
            p.pd_x.data()[r * h + i] = type.narrow(pd_variance * twice * d[i] + pd_mean * back + g[i] * rstd);
            p.res.data()[r * h + i] = type.narrow(d[i] * rstd);
        }
    }
    finish_vector(rows * (23 * ((h + 63) / 64) + 8), cycles_of(Cost::Repeat));
}

template <bool kReusesSource, class T>
void layer_norm_grad(const Call& call, const GradCall<T>& p, const AscendC::LocalTensor<uint8_t>* shared,
                     const LayerNormGradTiling& tiling) {
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    if (tiling.oneCalSize == 0 || tiling.nohCalSize == 0)
        call.report(Rule::Count04, "the tiling has no round. Fill it by GetLayerNormGradNDTilingInfo.");
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    const uint32_t last = sizeof(T) == 2 ? tiling.tmpTensor2Pos : tiling.x3TensorPos;
    const uint32_t bytes = kIs950 ? layer_norm_grad_sizes(rows, h, sizeof(T), kReusesSource, true).least
                                  : (last + std::min<uint32_t>(tiling.oneCalSize, rows * h)) * 4;
    const auto memory = call.temporary_memory(shared, {bytes, bytes});
    const uint64_t size = uint64_t(rows) * h;
    DisjointOperands operands(call);
    const Range dy = operands.add("inputDy", p.dy, size), x = operands.add("inputX", p.x, size);
    operands.add("inputVariance", p.variance, rows);
    operands.add("inputMean", p.mean, rows);
    operands.add("inputGamma", p.gamma, h);
    if (bytes) operands.add("sharedTmpBuffer", range_of(memory));
    const Range pd_x = call.check_operand("outputPdX", p.pd_x, size),
                res = call.check_operand("resForGamma", p.res, size);
    call.check_apart("outputPdX", pd_x, "resForGamma", res);
    if (pd_x.begin != dy.begin && pd_x.begin != x.begin) operands.add("outputPdX", pd_x);
    if (res.begin != dy.begin && res.begin != x.begin) operands.add("resForGamma", res);
    if constexpr (kIs950) {
        layer_norm_grad_in_registers(p, tiling, call.site());
    } else {
        NormSteps steps(call.site());
        layer_norm_grad_in_ub<kReusesSource>(steps, p, memory.template ReinterpretCast<float>(), tiling);
        steps.finish();
    }
}

// ---- LayerNormGradBeta --------------------------------------------------------------------------------------------

template <bool kReusesSource, class T>
void layer_norm_grad_beta(const Call& call, const AscendC::LocalTensor<T>& pd_gamma,
                          const AscendC::LocalTensor<T>& pd_beta, const AscendC::LocalTensor<T>& res,
                          const AscendC::LocalTensor<T>& dy, const AscendC::LocalTensor<uint8_t>* shared,
                          const LayerNormGradBetaTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    const uint32_t h = tiling.hLength, columns = tiling.originalHLength, rows = tiling.bsLength;
    const uint32_t round = tiling.bsCurLength;
    if (round == 0) call.report(Rule::Count04, "the tiling has no round. Fill it by GetLayerNormGradBetaNDTilingInfo.");
    check_pitch(call, h, columns, sizeof(T));
    const uint32_t bytes = kSourceIsTmp ? 0 : (tiling.resForGammaTmpTensorPos + tiling.oneCalSize) * 4;
    const auto memory = call.temporary_memory(shared, {bytes, bytes});
    DisjointOperands operands(call);
    operands.add("resForGamma", res, uint64_t(rows) * h);
    operands.add("inputDy", dy, uint64_t(rows) * h);
    if (bytes) operands.add("sharedTmpBuffer", range_of(memory));
    operands.add("outputPdGamma", pd_gamma, columns);
    operands.add("outputPdBeta", pd_beta, columns);
    const Floats tmp = memory.template ReinterpretCast<float>();
    NormSteps steps(call.site());
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = std::min<uint32_t>(rows - first, round), at = first * h;
        Floats products = tmp[tiling.resForGammaTmpTensorPos], d, gamma, beta;
        steps.set_count(n * h);
        if constexpr (kIsHalf) {
            d = tmp[tiling.inputDyTmpTensorPos];
            gamma = tmp[tiling.gammaTempTensorPos];
            beta = tmp[tiling.betaTempTensorPos];
            steps.cast(d, dy[at], RoundMode::CAST_NONE);
            steps.cast(products, res[at], RoundMode::CAST_NONE);
            steps.mul(products, d, products);
        } else {
            d = dy[at];
            gamma = pd_gamma;
            beta = pd_beta;
            if (kSourceIsTmp) products = res[at];
            steps.mul(products, d, res[at]);
        }
        steps.set_count(columns);
        auto sum_rows = [&](const Floats& to, const Floats& s) {
            if (first == 0) steps.adds(to, s, 0.0f);
            for (uint32_t i = first == 0; i < n; ++i) steps.add(to, s[i * h], to);
        };
        sum_rows(gamma, products);
        sum_rows(beta, d);
        if constexpr (kIsHalf) {
            steps.cast(pd_gamma, gamma, RoundMode::CAST_NONE);
            steps.cast(pd_beta, beta, RoundMode::CAST_NONE);
        }
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The forms with and without sharedTmpBuffer.
#define ASCEND_SIM_LAYER_NORM_GRAD(memory)                                                                       \
    ASCEND_SIM_NEEDS(LayerNormGrad, T);                                                                          \
    ascend_sim::layer_norm_grad<isReuseSource, T>(                                                               \
        ascend_sim::Call("LayerNormGrad", site),                                                                 \
        {outputPdX, resForGamma, inputDy, inputX, inputVariance, inputMean, inputGamma, float(epsilon)}, memory, \
        tiling)
template <class T, bool isReuseSource = false>
void LayerNormGrad(const LocalTensor<T>& outputPdX, const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy,
                   const LocalTensor<T>& inputX, const LocalTensor<T>& inputVariance, const LocalTensor<T>& inputMean,
                   const LocalTensor<T>& inputGamma, LocalTensor<uint8_t>& sharedTmpBuffer, T epsilon,
                   LayerNormGradTiling& tiling, const LayerNormGradShapeInfo& = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_LAYER_NORM_GRAD(&sharedTmpBuffer);
}
template <class T, bool isReuseSource = false>
void LayerNormGrad(const LocalTensor<T>& outputPdX, const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy,
                   const LocalTensor<T>& inputX, const LocalTensor<T>& inputVariance, const LocalTensor<T>& inputMean,
                   const LocalTensor<T>& inputGamma, T epsilon, LayerNormGradTiling& tiling,
                   const LayerNormGradShapeInfo& = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_LAYER_NORM_GRAD(nullptr);
}
#undef ASCEND_SIM_LAYER_NORM_GRAD

template <class T, bool isReuseSource = false>
void LayerNormGradBeta(const LocalTensor<T>& outputPdGamma, const LocalTensor<T>& outputPdBeta,
                       const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy,
                       const LocalTensor<uint8_t>& sharedTmpBuffer, const LayerNormGradBetaTiling& tiling,
                       ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(LayerNormGradBeta, T);
    ascend_sim::layer_norm_grad_beta<isReuseSource>(ascend_sim::Call("LayerNormGradBeta", site), outputPdGamma,
                                                    outputPdBeta, resForGamma, inputDy, &sharedTmpBuffer, tiling);
}
template <class T, bool isReuseSource = false>
void LayerNormGradBeta(const LocalTensor<T>& outputPdGamma, const LocalTensor<T>& outputPdBeta,
                       const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy,
                       LayerNormGradBetaTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(LayerNormGradBeta, T);
    ascend_sim::layer_norm_grad_beta<isReuseSource>(ascend_sim::Call("LayerNormGradBeta", site), outputPdGamma,
                                                    outputPdBeta, resForGamma, inputDy, nullptr, tiling);
}

}  // namespace AscendC
