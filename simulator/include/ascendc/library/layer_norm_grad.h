// LayerNormGrad, LayerNormGradBeta: the gradients of LayerNorm for x, gamma and beta.
//
// Rules: half and float. Rows have whole 32-byte blocks. LayerNormGrad's results may be inputDy or inputX; no other
// operands overlap. The struct of the host's tiling function gives the number of rows that sharedTmpBuffer holds.
// Meaning: computed in float. The formulas use d = x - mean, r = 1 / sqrt(variance + epsilon) and g = dy * gamma.
//   LayerNormGrad: pd_variance = sum(g * d * -0.5 * r^3), pd_mean = sum(-g * r) + pd_variance * sum(-2 * d) / H,
//   pd_x = g * r + pd_variance * 2 / H * d + pd_mean / H, resForGamma = d * r. The sums include the filling.
//   LayerNormGradBeta: pd_gamma = sum over rows of dy * resForGamma, pd_beta = sum over rows of dy, for the original H
//   elements. The sums stay in float; for half, each round of rows also writes them to the results.
// Cost: the sum of the instructions; LayerNormGrad is one instruction on Ascend950.
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
struct GradOperands {
    AscendC::LocalTensor<T> pd_x, res_for_gamma, dy, x, variance, mean, gamma;
    float epsilon;
};

// Each of the h elements of row r becomes src[r]. One Brcb fills 8 columns.
inline void spread_columns(NormSteps& steps, const Floats& dst, const Floats& src, uint32_t rows, uint32_t h) {
    run_instruction(kIs310p ? "Duplicate" : "Brcb", steps.site(), first_elements("dst", dst, uint64_t(rows) * h),
                    first_elements("src", src, rows),
                    kIs310p ? rows * repeats_of(h * sizeof(float)) : h / 8 * ((rows + 7) / 8), Cost::Repeat, [&] {
                        for (uint32_t i = 0; i < rows * h; ++i) dst.data()[i] = src.data()[i / h];
                    });
}

struct GradArrays {
    // Arrays with an element for each element of the round: x1 is g, x2 is d, x3 is g * r.
    Floats work, pd_variance, pd_mean, x1, x2, x3;
    Floats row_work;  // a value for each row; in the memory of pd_x, which is written last
};

// Computes the gradients of the rows of one round, in float.
inline void layer_norm_grad_rows(NormSteps& steps, const GradArrays& arrays, const Floats& pd_x,
                                 const Floats& res_for_gamma, const Floats& variance, const LayerNormGradTiling& tiling,
                                 float epsilon, uint32_t round_rows) {
    const uint32_t h = tiling.hLength, size = round_rows * h;
    const float reciprocal = bits<float>(tiling.lastDimValueBack),
                twice_reciprocal = bits<float>(tiling.lastDimValueBackMulTwo);
    // work = r, or r^3 if cubed.
    auto load_reciprocal_deviation = [&](bool cubed) {
        steps.set_count(round_rows);
        steps.adds(arrays.row_work, variance, epsilon);
        if (cubed) {
            steps.mul(arrays.work, arrays.row_work, arrays.row_work);
            steps.mul(arrays.row_work, arrays.work, arrays.row_work);
        }
        steps.sqrt(arrays.row_work, arrays.row_work);
        steps.divide_one_by(arrays.row_work, arrays.work, round_rows);
        spread_columns(steps, arrays.work, arrays.row_work, round_rows, h);
        steps.set_count(size);
    };
    load_reciprocal_deviation(true);
    steps.mul(arrays.work, arrays.x2, arrays.work);
    steps.mul(arrays.work, arrays.x1, arrays.work);
    steps.muls(arrays.work, arrays.work, -0.5f);
    steps.sum_rows_by_repeats(arrays.pd_variance, arrays.work, round_rows, h, h);
    load_reciprocal_deviation(false);
    steps.mul(res_for_gamma, arrays.x2, arrays.work);
    steps.mul(arrays.x3, arrays.x1, arrays.work);
    steps.muls(arrays.work, arrays.x3, -1.0f);
    steps.sum_rows_by_repeats(arrays.pd_mean, arrays.work, round_rows, h, h);
    steps.set_count(size);
    steps.muls(arrays.work, arrays.x2, -2.0f);
    steps.sum_rows_by_repeats(arrays.row_work, arrays.work, round_rows, h, h);
    steps.set_count(round_rows);
    steps.muls(arrays.row_work, arrays.row_work, reciprocal);
    steps.mul(arrays.row_work, arrays.pd_variance, arrays.row_work);
    steps.add(arrays.pd_mean, arrays.pd_mean, arrays.row_work);
    steps.muls(arrays.pd_variance, arrays.pd_variance, twice_reciprocal);
    spread_columns(steps, arrays.work, arrays.pd_variance, round_rows, h);
    steps.set_count(size);
    steps.mul(arrays.x1, arrays.work, arrays.x2);
    steps.set_count(round_rows);
    steps.muls(arrays.pd_mean, arrays.pd_mean, reciprocal);
    spread_columns(steps, arrays.work, arrays.pd_mean, round_rows, h);
    steps.set_count(size);
    steps.add(arrays.x1, arrays.x1, arrays.work);
    steps.add(pd_x, arrays.x1, arrays.x3);
}

template <bool kReusesSource, class T>
void layer_norm_grad_in_ub(NormSteps& steps, const GradOperands<T>& grad, const Floats& tmp,
                           const LayerNormGradTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    for (uint32_t first_row = 0; first_row < rows; first_row += tiling.nohCalSize) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, tiling.nohCalSize), offset = first_row * h,
                       size = round_rows * h;
        GradArrays arrays{tmp[tiling.tmpTensorBSHPos], tmp[tiling.pdVarTensorPos], tmp[tiling.pdMeanTensorPos],
                          tmp[tiling.x1TensorPos],     tmp[tiling.x2TensorPos],    tmp[tiling.x3TensorPos],
                          tmp[tiling.tmpTensorPos]};
        auto compute_g_and_d = [&](const Floats& dy, const Floats& gamma, auto load_x, const Floats& x,
                                   const Floats& mean) {
            steps.mul_rows(arrays.x1, dy, gamma, round_rows, h);
            load_x();
            spread_columns(steps, arrays.work, mean, round_rows, h);
            steps.set_count(size);
            steps.sub(arrays.x2, x, arrays.work);
        };
        if constexpr (kIsHalf) {
            const Floats first_tmp = tmp[tiling.tmpTensor1Pos], second_tmp = tmp[tiling.tmpTensor2Pos];
            steps.set_count(size);
            steps.cast(first_tmp, grad.dy[offset], RoundMode::CAST_NONE);
            steps.set_count(h);
            steps.cast(second_tmp, grad.gamma, RoundMode::CAST_NONE);
            auto load_x = [&] {
                steps.set_count(size);
                steps.cast(first_tmp, grad.x[offset], RoundMode::CAST_NONE);
                steps.set_count(round_rows);
                steps.cast(second_tmp, grad.mean[first_row], RoundMode::CAST_NONE);
            };
            compute_g_and_d(first_tmp, second_tmp, load_x, first_tmp, second_tmp);
            steps.set_count(round_rows);
            steps.cast(first_tmp, grad.variance[first_row], RoundMode::CAST_NONE);
            layer_norm_grad_rows(steps, arrays, arrays.row_work, second_tmp, first_tmp, tiling, grad.epsilon,
                                 round_rows);
            steps.cast(grad.pd_x[offset], arrays.row_work, RoundMode::CAST_NONE);
            steps.cast(grad.res_for_gamma[offset], second_tmp, RoundMode::CAST_NONE);
        } else {
            arrays.row_work = grad.pd_x[offset];
            if (kReusesSource) arrays.x1 = grad.dy[offset], arrays.x2 = grad.x[offset];
            compute_g_and_d(grad.dy[offset], grad.gamma, [] {}, grad.x[offset], grad.mean[first_row]);
            layer_norm_grad_rows(steps, arrays, grad.pd_x[offset], grad.res_for_gamma[offset], grad.variance[first_row],
                                 tiling, grad.epsilon, round_rows);
        }
    }
}

template <class T>
void layer_norm_grad_in_registers(const GradOperands<T>& grad, const LayerNormGradTiling& tiling, Site site) {
    const uint32_t h = tiling.hLength, rows = tiling.bLength * tiling.sLength;
    const float reciprocal = bits<float>(tiling.lastDimValueBack),
                twice_reciprocal = bits<float>(tiling.lastDimValueBackMulTwo);
    start(Pipe::V, "registers", site);
    const Lanes all_elements = Lanes::counted(sizeof(T), rows * h), by_row = Lanes::counted(sizeof(T), rows);
    check_source(Operand<T>{"inputDy", grad.dy}, all_elements);
    check_source(Operand<T>{"inputX", grad.x}, all_elements);
    check_source(Operand<T>{"inputVariance", grad.variance}, by_row);
    check_source(Operand<T>{"inputMean", grad.mean}, by_row);
    check_source(Operand<T>{"inputGamma", grad.gamma}, Lanes::counted(sizeof(T), h));
    check_destination(Operand<T>{"outputPdX", grad.pd_x}, all_elements);
    check_destination(Operand<T>{"resForGamma", grad.res_for_gamma}, all_elements);
    const Arithmetic<T> type;
    std::vector<float> dy_gamma(h), deviation(h), variance_terms(h), mean_terms(h), deviation_terms(h);
    for (uint32_t row = 0; row < rows; ++row) {
        const float mean = float(grad.mean.data()[row]),
                    shifted_variance = float(grad.variance.data()[row]) + grad.epsilon;
        const float rstd = 1.0f / std::sqrt(shifted_variance),
                    rstd_cubed = 1.0f / std::sqrt(shifted_variance * shifted_variance * shifted_variance);
        for (uint32_t i = 0; i < h; ++i) {
            dy_gamma[i] = float(grad.dy.data()[row * h + i]) * float(grad.gamma.data()[i]);
            deviation[i] = float(grad.x.data()[row * h + i]) - mean;
            variance_terms[i] = dy_gamma[i] * (deviation[i] * rstd_cubed) * -0.5f;
            mean_terms[i] = dy_gamma[i] * rstd * -1.0f;
            deviation_terms[i] = deviation[i] * -2.0f;
        }
        const float pd_variance = sum_in_registers(variance_terms.data(), h);
        const float pd_mean = sum_in_registers(mean_terms.data(), h) +
                              pd_variance * (sum_in_registers(deviation_terms.data(), h) * reciprocal);
        for (uint32_t i = 0; i < h; ++i) {
            grad.pd_x.data()[row * h + i] =
                type.narrow(pd_variance * twice_reciprocal * deviation[i] + pd_mean * reciprocal + dy_gamma[i] * rstd);
            grad.res_for_gamma.data()[row * h + i] = type.narrow(deviation[i] * rstd);
        }
    }
    // 23 operations for each 64 elements of a row, and 8 for each row.
    finish_vector(rows * (23 * ((h + 63) / 64) + 8), cycles_of(Cost::Repeat));
}

template <bool kReusesSource, class T>
void layer_norm_grad(const Call& call, const GradOperands<T>& grad, const AscendC::LocalTensor<uint8_t>* shared,
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
    const Range dy = operands.add("inputDy", grad.dy, size), x = operands.add("inputX", grad.x, size);
    operands.add("inputVariance", grad.variance, rows);
    operands.add("inputMean", grad.mean, rows);
    operands.add("inputGamma", grad.gamma, h);
    if (bytes) operands.add("sharedTmpBuffer", range_of(memory));
    const Range pd_x = call.check_operand("outputPdX", grad.pd_x, size),
                res_for_gamma = call.check_operand("resForGamma", grad.res_for_gamma, size);
    call.check_apart("outputPdX", pd_x, "resForGamma", res_for_gamma);
    if (pd_x.begin != dy.begin && pd_x.begin != x.begin) operands.add("outputPdX", pd_x);
    if (res_for_gamma.begin != dy.begin && res_for_gamma.begin != x.begin) operands.add("resForGamma", res_for_gamma);
    if constexpr (kIs950) {
        layer_norm_grad_in_registers(grad, tiling, call.site());
    } else {
        NormSteps steps(call.site());
        layer_norm_grad_in_ub<kReusesSource>(steps, grad, memory.template ReinterpretCast<float>(), tiling);
        steps.finish();
    }
}

// ---- LayerNormGradBeta --------------------------------------------------------------------------------------------

template <bool kReusesSource, class T>
void layer_norm_grad_beta(const Call& call, const AscendC::LocalTensor<T>& pd_gamma,
                          const AscendC::LocalTensor<T>& pd_beta, const AscendC::LocalTensor<T>& res_for_gamma,
                          const AscendC::LocalTensor<T>& dy, const AscendC::LocalTensor<uint8_t>* shared,
                          const LayerNormGradBetaTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    const uint32_t h = tiling.hLength, columns = tiling.originalHLength, rows = tiling.bsLength;
    const uint32_t rows_per_round = tiling.bsCurLength;
    if (rows_per_round == 0)
        call.report(Rule::Count04, "the tiling has no round. Fill it by GetLayerNormGradBetaNDTilingInfo.");
    check_pitch(call, h, columns, sizeof(T));
    const uint32_t bytes = kSourceIsTmp ? 0 : (tiling.resForGammaTmpTensorPos + tiling.oneCalSize) * 4;
    const auto memory = call.temporary_memory(shared, {bytes, bytes});
    DisjointOperands operands(call);
    operands.add("resForGamma", res_for_gamma, uint64_t(rows) * h);
    operands.add("inputDy", dy, uint64_t(rows) * h);
    if (bytes) operands.add("sharedTmpBuffer", range_of(memory));
    operands.add("outputPdGamma", pd_gamma, columns);
    operands.add("outputPdBeta", pd_beta, columns);
    const Floats tmp = memory.template ReinterpretCast<float>();
    NormSteps steps(call.site());
    for (uint32_t first_row = 0; first_row < rows; first_row += rows_per_round) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, rows_per_round), offset = first_row * h;
        Floats products = tmp[tiling.resForGammaTmpTensorPos], dy_floats, gamma, beta;
        steps.set_count(round_rows * h);
        if constexpr (kIsHalf) {
            dy_floats = tmp[tiling.inputDyTmpTensorPos];
            gamma = tmp[tiling.gammaTempTensorPos];
            beta = tmp[tiling.betaTempTensorPos];
            steps.cast(dy_floats, dy[offset], RoundMode::CAST_NONE);
            steps.cast(products, res_for_gamma[offset], RoundMode::CAST_NONE);
            steps.mul(products, dy_floats, products);
        } else {
            dy_floats = dy[offset];
            gamma = pd_gamma;
            beta = pd_beta;
            if (kSourceIsTmp) products = res_for_gamma[offset];
            steps.mul(products, dy_floats, res_for_gamma[offset]);
        }
        steps.set_count(columns);
        auto sum_rows = [&](const Floats& sums, const Floats& src) {
            if (first_row == 0) steps.adds(sums, src, 0.0f);
            for (uint32_t i = first_row == 0; i < round_rows; ++i) steps.add(sums, src[i * h], sums);
        };
        sum_rows(gamma, products);
        sum_rows(beta, dy_floats);
        if constexpr (kIsHalf) {
            steps.cast(pd_gamma, gamma, RoundMode::CAST_NONE);
            steps.cast(pd_beta, beta, RoundMode::CAST_NONE);
        }
    }
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The overloads with and without sharedTmpBuffer.
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
