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
inline void spread_columns(NormSteps& m, const Floats& d, const Floats& s, uint32_t rows, uint32_t h) {
    move_elements(kIs310p ? "Duplicate" : "Brcb", m.site(), first_of("dst", d, uint64_t(rows) * h),
                  first_of("src", s, rows), kIs310p ? rows * repeats_of(h * sizeof(float)) : h / 8 * ((rows + 7) / 8),
                  Cost::Repeat, [&] {
                      for (uint32_t i = 0; i < rows * h; ++i) d.data()[i] = s.data()[i / h];
                  });
}

struct GradArrays {
    Floats all, pd_variance, pd_mean, x1, x2, x3, rows;  // all: of the round's size; rows: a value for each row
};

// Gradients of n rows, in float.
inline void layer_norm_grad_rows(NormSteps& m, const GradArrays& t, const Floats& pd_x, const Floats& res,
                                 const Floats& variance, const LayerNormGradTiling& tiling, float epsilon, uint32_t n) {
    const uint32_t h = tiling.hLength, size = n * h;
    const float back = bits<float>(tiling.lastDimValueBack), twice = bits<float>(tiling.lastDimValueBackMulTwo);
    auto deviation = [&](bool cubed) {
        m.count(n);
        m.adds(t.rows, variance, epsilon);
        if (cubed) {
            m.mul(t.all, t.rows, t.rows);
            m.mul(t.rows, t.all, t.rows);
        }
        m.sqrt(t.rows, t.rows);
        m.one_over(t.rows, t.all, n);
        spread_columns(m, t.all, t.rows, n, h);
        m.count(size);
    };
    deviation(true);
    m.mul(t.all, t.x2, t.all);
    m.mul(t.all, t.x1, t.all);
    m.muls(t.all, t.all, -0.5f);
    m.repeat_sums(t.pd_variance, t.all, n, h, h);
    deviation(false);
    m.mul(res, t.x2, t.all);
    m.mul(t.x3, t.x1, t.all);
    m.muls(t.all, t.x3, -1.0f);
    m.repeat_sums(t.pd_mean, t.all, n, h, h);
    m.count(size);
    m.muls(t.all, t.x2, -2.0f);
    m.repeat_sums(t.rows, t.all, n, h, h);
    m.count(n);
    m.muls(t.rows, t.rows, back);
    m.mul(t.rows, t.pd_variance, t.rows);
    m.add(t.pd_mean, t.pd_mean, t.rows);
    m.muls(t.pd_variance, t.pd_variance, twice);
    spread_columns(m, t.all, t.pd_variance, n, h);
    m.count(size);
    m.mul(t.x1, t.all, t.x2);
    m.count(n);
    m.muls(t.pd_mean, t.pd_mean, back);
    spread_columns(m, t.all, t.pd_mean, n, h);
    m.count(size);
    m.add(t.x1, t.x1, t.all);
    m.add(pd_x, t.x1, t.x3);
}

template <bool kReuse, class T>
void layer_norm_grad_in_ub(NormSteps& m, const GradCall<T>& p, const Floats& tmp, const LayerNormGradTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    for (uint32_t first = 0; first < rows; first += tiling.nohCalSize) {
        const uint32_t n = NormSteps::least(rows - first, tiling.nohCalSize), at = first * h, size = n * h;
        GradArrays t{tmp[tiling.tmpTensorBSHPos], tmp[tiling.pdVarTensorPos], tmp[tiling.pdMeanTensorPos],
                     tmp[tiling.x1TensorPos],     tmp[tiling.x2TensorPos],    tmp[tiling.x3TensorPos],
                     tmp[tiling.tmpTensorPos]};
        auto first_steps = [&](const Floats& dy, const Floats& gamma, auto then, const Floats& x, const Floats& mean) {
            m.mul_rows(t.x1, dy, gamma, n, h);
            then();
            spread_columns(m, t.all, mean, n, h);
            m.count(size);
            m.sub(t.x2, x, t.all);
        };
        if constexpr (kIsHalf) {
            const Floats a = tmp[tiling.tmpTensor1Pos], b = tmp[tiling.tmpTensor2Pos];
            m.count(size);
            m.cast(a, p.dy[at], RoundMode::CAST_NONE);
            m.count(h);
            m.cast(b, p.gamma, RoundMode::CAST_NONE);
            auto then = [&] {
                m.count(size);
                m.cast(a, p.x[at], RoundMode::CAST_NONE);
                m.count(n);
                m.cast(b, p.mean[first], RoundMode::CAST_NONE);
            };
            first_steps(a, b, then, a, b);
            m.count(n);
            m.cast(a, p.variance[first], RoundMode::CAST_NONE);
            layer_norm_grad_rows(m, t, t.rows, b, a, tiling, p.epsilon, n);
            m.cast(p.pd_x[at], t.rows, RoundMode::CAST_NONE);
            m.cast(p.res[at], b, RoundMode::CAST_NONE);
        } else {
            t.rows = p.pd_x[at];
            if (kReuse) t.x1 = p.dy[at], t.x2 = p.x[at];
            first_steps(p.dy[at], p.gamma, [] {}, p.x[at], p.mean[first]);
            layer_norm_grad_rows(m, t, p.pd_x[at], p.res[at], p.variance[first], tiling, p.epsilon, n);
        }
    }
}

template <class T>
void layer_norm_grad_in_registers(const GradCall<T>& p, const LayerNormGradTiling& tiling, Site site) {
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    const float back = bits<float>(tiling.lastDimValueBack), twice = bits<float>(tiling.lastDimValueBackMulTwo);
    start(Pipe::V, "registers", site);
    const Lanes all = Lanes::counted(sizeof(T), rows * h), by_row = Lanes::counted(sizeof(T), rows);
    check_source(Operand<T>{"inputDy", p.dy}, all);
    check_source(Operand<T>{"inputX", p.x}, all);
    check_source(Operand<T>{"inputVariance", p.variance}, by_row);
    check_source(Operand<T>{"inputMean", p.mean}, by_row);
    check_source(Operand<T>{"inputGamma", p.gamma}, Lanes::counted(sizeof(T), h));
    check_destination(Operand<T>{"outputPdX", p.pd_x}, all);
    check_destination(Operand<T>{"resForGamma", p.res}, all);
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
        const float pd_variance = register_sum(a.data(), h);
        const float pd_mean = register_sum(b.data(), h) + pd_variance * (register_sum(c.data(), h) * back);
        for (uint32_t i = 0; i < h; ++i) {
            p.pd_x.data()[r * h + i] = type.narrow(pd_variance * twice * d[i] + pd_mean * back + g[i] * rstd);
            p.res.data()[r * h + i] = type.narrow(d[i] * rstd);
        }
    }
    finish_vector(rows * (23 * ((h + 63) / 64) + 8), cycles_of(Cost::Repeat));
}

template <bool kReuse, class T>
void layer_norm_grad(const Call& call, const GradCall<T>& p, const AscendC::LocalTensor<uint8_t>* shared,
                     const LayerNormGradTiling& tiling) {
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    if (tiling.oneCalSize == 0 || tiling.nohCalSize == 0)
        call.report(Rule::Count04, "the tiling has no round. Fill it by GetLayerNormGradNDTilingInfo.");
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    const uint32_t last = sizeof(T) == 2 ? tiling.tmpTensor2Pos : tiling.x3TensorPos;
    const uint32_t bytes = kIs950 ? layer_norm_grad_sizes(rows, h, sizeof(T), kReuse, true).least
                                  : (last + NormSteps::least(tiling.oneCalSize, rows * h)) * 4;
    const auto memory = call.temporary(shared, {bytes, bytes});
    const uint64_t size = uint64_t(rows) * h;
    Operands all(call);
    const Range dy = all.add("inputDy", p.dy, size), x = all.add("inputX", p.x, size);
    all.add("inputVariance", p.variance, rows);
    all.add("inputMean", p.mean, rows);
    all.add("inputGamma", p.gamma, h);
    if (bytes) all.add("sharedTmpBuffer", range_of(memory));
    const Range pd_x = call.operand("outputPdX", p.pd_x, size), res = call.operand("resForGamma", p.res, size);
    call.apart("outputPdX", pd_x, "resForGamma", res);
    if (pd_x.begin != dy.begin && pd_x.begin != x.begin) all.add("outputPdX", pd_x);
    if (res.begin != dy.begin && res.begin != x.begin) all.add("resForGamma", res);
    if constexpr (kIs950) {
        layer_norm_grad_in_registers(p, tiling, call.site());
    } else {
        NormSteps m(call.site());
        layer_norm_grad_in_ub<kReuse>(m, p, memory.template ReinterpretCast<float>(), tiling);
        m.finish();
    }
}

// ---- LayerNormGradBeta --------------------------------------------------------------------------------------------

template <bool kReuse, class T>
void layer_norm_grad_beta(const Call& call, const AscendC::LocalTensor<T>& pd_gamma,
                          const AscendC::LocalTensor<T>& pd_beta, const AscendC::LocalTensor<T>& res,
                          const AscendC::LocalTensor<T>& dy, const AscendC::LocalTensor<uint8_t>* shared,
                          const LayerNormGradBetaTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kInSource = kReuse && !kIsHalf;
    const uint32_t h = tiling.hLength, columns = tiling.originalHLength, rows = tiling.bsLength;
    const uint32_t round = tiling.bsCurLength;
    if (round == 0) call.report(Rule::Count04, "the tiling has no round. Fill it by GetLayerNormGradBetaNDTilingInfo.");
    check_pitch(call, h, columns, sizeof(T));
    const uint32_t bytes = kInSource ? 0 : (tiling.resForGammaTmpTensorPos + tiling.oneCalSize) * 4;
    const auto memory = call.temporary(shared, {bytes, bytes});
    Operands all(call);
    all.add("resForGamma", res, uint64_t(rows) * h);
    all.add("inputDy", dy, uint64_t(rows) * h);
    if (bytes) all.add("sharedTmpBuffer", range_of(memory));
    all.add("outputPdGamma", pd_gamma, columns);
    all.add("outputPdBeta", pd_beta, columns);
    const Floats tmp = memory.template ReinterpretCast<float>();
    NormSteps m(call.site());
    for (uint32_t first = 0; first < rows; first += round) {
        const uint32_t n = NormSteps::least(rows - first, round), at = first * h;
        Floats products = tmp[tiling.resForGammaTmpTensorPos], d, gamma, beta;
        m.count(n * h);
        if constexpr (kIsHalf) {
            d = tmp[tiling.inputDyTmpTensorPos];
            gamma = tmp[tiling.gammaTempTensorPos];
            beta = tmp[tiling.betaTempTensorPos];
            m.cast(d, dy[at], RoundMode::CAST_NONE);
            m.cast(products, res[at], RoundMode::CAST_NONE);
            m.mul(products, d, products);
        } else {
            d = dy[at];
            gamma = pd_gamma;
            beta = pd_beta;
            if (kInSource) products = res[at];
            m.mul(products, d, res[at]);
        }
        m.count(columns);
        auto sum_rows = [&](const Floats& to, const Floats& s) {
            if (first == 0) m.adds(to, s, 0.0f);
            for (uint32_t i = first == 0; i < n; ++i) m.add(to, s[i * h], to);
        };
        sum_rows(gamma, products);
        sum_rows(beta, d);
        if constexpr (kIsHalf) {
            m.cast(pd_gamma, gamma, RoundMode::CAST_NONE);
            m.cast(pd_beta, beta, RoundMode::CAST_NONE);
        }
    }
    m.finish();
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
