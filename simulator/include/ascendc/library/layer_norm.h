// LayerNorm, Normalize: rows with mean 0 and variance 1, scaled by gamma and shifted by beta.
//
// Rules: half and float. With half (and bfloat16 on Ascend950), Normalize and LayerNorm with rstd also take float gamma
// and beta. Rows have whole 32-byte blocks. In LayerNorm of [B, S, H], output may be inputX; no other operands overlap.
// The struct of the host's tiling function gives the number of rows that sharedTmpBuffer holds.
// Meaning: computed in float. y = (x - mean) * (1 / sqrt(variance + epsilon)) * gamma + beta.
//   LayerNorm of [B, S, H]: mean = sum(x / H), variance = sum((x - mean)^2 / H). H is the original length of a row, but
//   the sums include the filling behind it.
//   LayerNorm of [A, R]: clears the filling in inputX first; the variance does not include it.
//   Normalize: the caller gives mean and variance.
// The filling of output has no meaning.
// Cost: the sum of the instructions; on Ascend950 Normalize and LayerNorm of [A, R] are one instruction.
// Pages: LayerNorm, LayerNorm Tiling, Normalize, Normalize Tiling. The steps are those of asc-devkit's
// impl/adv_api/detail/normalization/layernorm and normalize.
#pragma once

#include <cmath>

#include "ascendc/library/norm_steps.h"
#include "ascendc/library/norm_tiling.h"
#include "ascendc/library/reduce_sizes.h"
#include "ascendc/library/tiling_names.h"

namespace AscendC {

struct LayerNormPara {
    uint32_t aLength, rLength, rLengthWithPadding;
};
using NormalizePara = LayerNormPara;

struct LayerNormConfig {
    bool isNoBeta = false, isNoGamma = false, isOnlyOutput = false, isOutputRstd = true;
};
constexpr LayerNormConfig LNCFG_NORM = {false, false, false, true};

struct NormalizeConfig {
    ReducePattern reducePattern = ReducePattern::AR;
    int32_t aLength = -1;
    bool isNoBeta = false, isNoGamma = false, isOnlyOutput = false;
};
constexpr NormalizeConfig NLCFG_NORM = {ReducePattern::AR, -1, false, false, false};
constexpr NormalizeConfig NLCFG_NOBETA = {ReducePattern::AR, -1, true, false, false};
constexpr NormalizeConfig NLCFG_NOGAMMA = {ReducePattern::AR, -1, false, true, false};
constexpr NormalizeConfig NLCFG_NOOPT = {ReducePattern::AR, -1, true, true, false};

}  // namespace AscendC

namespace ascend_sim {

// Operands of a norm. add() checks that the new operand overlaps none of the others, and returns its bytes.
class DisjointOperands {
public:
    explicit DisjointOperands(const Call& call) : call_(call) {}
    template <class T>
    Range add(const char* name, const AscendC::LocalTensor<T>& tensor, uint64_t elements) {
        return add(name, call_.check_operand(name, tensor, elements));
    }
    Range add(const char* name, Range range) {
        for (uint32_t i = 0; i < count_; ++i) call_.check_apart(name, range, names_[i], ranges_[i]);
        names_[count_] = name;
        ranges_[count_++] = range;
        return range;
    }

private:
    const Call& call_;
    const char* names_[10] = {};
    Range ranges_[10] = {};
    uint32_t count_ = 0;
};

// Checks that rows with `columns` elements and a distance of `pitch` elements have whole blocks.
inline void check_pitch(const Call& call, uint32_t pitch, uint32_t columns, uint32_t type_bytes) {
    if (pitch * type_bytes % kBlockBytes || columns > pitch || columns == 0)
        call.report(Rule::Count04,
                    "a row must have whole 32-byte blocks, and at least its original elements, but has %u elements "
                    "and %u original ones.",
                    pitch, columns);
}
// Returns the temporary memory of a tiling: `arrays` arrays of oneTmpSize floats from firstTmpStartPos on.
template <class Tiling>
Floats tiled_memory(const Call& call, const AscendC::LocalTensor<uint8_t>* shared, const Tiling& tiling,
                    uint32_t arrays) {
    if (tiling.oneTmpSize == 0)
        call.report(Rule::Count04, "the tiling has no round: oneTmpSize is 0. Fill it by the host's tiling function.");
    const uint32_t bytes = (tiling.firstTmpStartPos + arrays * tiling.oneTmpSize) * 4;
    return call.temporary_memory(shared, {bytes, bytes}).template ReinterpretCast<float>();
}

// ---- [B, S, H] ----------------------------------------------------------------------------------------------------

// Three arrays with the size of the rows of one round. `first` may be the source.
struct NormArrays {
    Floats first, second, third;
};
// work.third = (x - mean) / sqrt(variance + epsilon). Also computes mean and variance.
inline void normalize_rows(NormSteps& steps, const Floats& x, const NormArrays& work, const Floats& mean,
                           const Floats& variance, uint32_t rows, uint32_t h, float factor, float epsilon) {
    const uint32_t elements = rows * h;
    steps.set_count(elements);
    steps.muls(work.third, x, factor);
    steps.sum_rows_by_lanes(mean, work.second, work.third, rows, h);
    steps.spread(work.third, work.second, h, rows, h);
    steps.set_count(elements);
    steps.sub(work.second, x, work.third);
    steps.mul(work.third, work.second, work.second);
    steps.muls(work.first, work.third, factor);
    steps.sum_rows_by_lanes(variance, work.third, work.first, rows, h);
    steps.spread(work.first, work.third, h, rows, h);
    steps.set_count(elements);
    steps.adds(work.third, work.first, epsilon);
    steps.sqrt(work.first, work.third);
    steps.divide_one_by(work.first, work.third, elements);
    steps.mul(work.third, work.first, work.second);
}

template <bool kReusesSource, class T>
void layer_norm(const Call& call, const AscendC::LocalTensor<T>& output, const AscendC::LocalTensor<T>& mean,
                const AscendC::LocalTensor<T>& variance, const AscendC::LocalTensor<T>& x,
                const AscendC::LocalTensor<T>& gamma, const AscendC::LocalTensor<T>& beta,
                const AscendC::LocalTensor<uint8_t>* shared, T epsilon, const LayerNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kSourceIsTmp = kReusesSource && !kIsHalf;
    const uint32_t h = tiling.hLength, rows = tiling.meanVarSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kSourceIsTmp ? 2 : 3);
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    DisjointOperands operands(call);
    const Range x_bytes = operands.add("inputX", x, uint64_t(rows) * h);
    operands.add("gamma", gamma, h);
    operands.add("beta", beta, h);
    operands.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    operands.add("outputMean", mean, rows);
    operands.add("outputVariance", variance, rows);
    const Range output_bytes = call.check_operand("output", output, uint64_t(rows) * h);
    if (output_bytes.begin != x_bytes.begin) operands.add("output", output_bytes);

    NormSteps steps(call.site());
    for (uint32_t first_row = 0; first_row < rows; first_row += tiling.meanVarRoundSize) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, tiling.meanVarRoundSize),
                       offset = first_row * h;
        const Floats first_tmp = tmp[tiling.firstTmpStartPos], second_tmp = tmp[tiling.secondTmpStartPos];
        const Floats third_tmp = kSourceIsTmp ? second_tmp : tmp[tiling.thirdTmpStartPos];
        if constexpr (kIsHalf) {
            const NormArrays work{first_tmp, second_tmp, third_tmp};
            steps.set_count(round_rows * h);
            steps.cast(work.first, x[offset], RoundMode::CAST_NONE);
            normalize_rows(steps, work.first, work, tmp[tiling.meanTmpTensorPos + first_row],
                           tmp[tiling.varianceTmpTensorPos + first_row], round_rows, h, tiling.lastDimValueBack,
                           float(epsilon));
            steps.set_count(h);
            steps.cast(work.first, gamma, RoundMode::CAST_NONE);
            steps.mul_rows(work.second, work.third, work.first, round_rows, h);
            steps.cast(work.third, beta, RoundMode::CAST_NONE);
            steps.add_rows(work.first, work.second, work.third, round_rows, h);
            steps.set_count(round_rows * h);
            steps.cast(output[offset], work.first, RoundMode::CAST_NONE);
        } else {
            const NormArrays work = kSourceIsTmp ? NormArrays{x[offset], first_tmp, second_tmp}
                                                 : NormArrays{first_tmp, second_tmp, third_tmp};
            normalize_rows(steps, x[offset], work, mean[first_row], variance[first_row], round_rows, h,
                           tiling.lastDimValueBack, float(epsilon));
            steps.mul_rows(work.first, work.third, gamma, round_rows, h);
            steps.add_rows(output[offset], work.first, beta, round_rows, h);
        }
    }
    if constexpr (kIsHalf) {
        steps.set_count(rows);
        steps.cast(mean, tmp[tiling.meanTmpTensorPos], RoundMode::CAST_NONE);
        steps.cast(variance, tmp[tiling.varianceTmpTensorPos], RoundMode::CAST_NONE);
    }
    steps.finish();
}

// ---- [A, R] -------------------------------------------------------------------------------------------------------

// The operands of Normalize and of LayerNorm of [A, R].
template <class U, class T>
struct RowNorm {
    AscendC::LocalTensor<T> out, x;
    Floats mean, rstd, variance;
    AscendC::LocalTensor<U> gamma, beta;
    float epsilon;
    AscendC::LayerNormPara shape;
    bool has_gamma, has_beta;
    bool computes_mean;     // LayerNorm: mean and variance are those of x
    bool outputs_variance;  // `rstd` receives the variance
};
// Ascend950: a loop over vector registers.
template <class U, class T>
void row_norm_in_registers(const RowNorm<U, T>& norm, Site site) {
    start(Pipe::V, "registers", site);
    const uint32_t rows = norm.shape.aLength, columns = norm.shape.rLength, pitch = norm.shape.rLengthWithPadding;
    auto record_access = [&](const char* name, const auto& tensor, uint32_t elements, bool is_written) {
        const Range range = bytes_of(tensor, elements);
        is_written ? writes(name, tensor.view(), &range, 1) : reads(name, tensor.view(), &range, 1);
    };
    record_access("inputX", norm.x, rows * pitch, false);
    if (norm.has_gamma) record_access("gamma", norm.gamma, columns, false);
    if (norm.has_beta) record_access("beta", norm.beta, columns, false);
    record_access("mean", norm.mean, rows, norm.computes_mean);
    if (!norm.computes_mean) record_access("inputVariance", norm.variance, rows, false);
    record_access("outputRstd", norm.rstd, rows, true);
    record_access("output", norm.out, rows * pitch, true);
    std::vector<float> x(columns), y(columns);
    const Arithmetic<T> type;
    for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t j = 0; j < columns; ++j) x[j] = float(norm.x.data()[i * pitch + j]);
        float mean = 0, variance = 0;
        if (norm.computes_mean) {
            const float scale = 1.0f / float(columns);
            for (uint32_t j = 0; j < columns; ++j) y[j] = x[j] * scale;
            mean = sum_in_registers(y.data(), columns);
            for (uint32_t j = 0; j < columns; ++j) y[j] = (x[j] - mean) * (x[j] - mean) * scale;
            variance = sum_in_registers(y.data(), columns);
            norm.mean.data()[i] = mean;
        } else {
            mean = norm.mean.data()[i];
            variance = norm.variance.data()[i];
        }
        const float rstd = 1.0f / std::sqrt(variance + norm.epsilon);
        norm.rstd.data()[i] = norm.outputs_variance ? variance : rstd;
        for (uint32_t j = 0; j < columns; ++j) {
            float value = (x[j] - mean) * rstd;
            if (norm.has_gamma) value *= float(norm.gamma.data()[j]);
            if (norm.has_beta) value += float(norm.beta.data()[j]);
            norm.out.data()[i * pitch + j] = type.narrow(value);
        }
    }
    const uint32_t chunks = (columns + NormSteps::kLanes - 1) / NormSteps::kLanes, steps = norm.computes_mean ? 15 : 8;
    finish_vector(rows * (chunks * steps + 4), cycles_of(Cost::Repeat));
}

// Normalizes all rows, as many at a time as tmp holds.
template <class U, class T>
void normalize_in_ub(NormSteps& steps, const RowNorm<U, T>& norm, const Floats& tmp) {
    constexpr bool kCastsGamma = sizeof(U) == 2;
    const uint32_t rows = norm.shape.aLength, columns = norm.shape.rLength, pitch = norm.shape.rLengthWithPadding;
    const uint32_t rows_per_round =
        std::min<uint32_t>((tmp.GetSize() - (kCastsGamma ? 2 * pitch : 0)) / (2 * pitch), rows);
    const Floats x = tmp, row_values = tmp[rows_per_round * pitch];
    steps.set_count(rows);
    steps.adds(norm.rstd, norm.variance, norm.epsilon);
    steps.fill(tmp, 1.0f);
    steps.sqrt(norm.rstd, norm.rstd);
    steps.div(norm.rstd, tmp, norm.rstd);
    Floats gamma, beta;
    if constexpr (kCastsGamma) {
        gamma = tmp[2 * rows_per_round * pitch];
        beta = tmp[2 * rows_per_round * pitch + pitch];
        steps.set_count(columns);
        if (norm.has_gamma) steps.cast(gamma, norm.gamma, RoundMode::CAST_NONE);
        if (norm.has_beta) steps.cast(beta, norm.beta, RoundMode::CAST_NONE);
    } else {
        gamma = norm.gamma;
        beta = norm.beta;
    }
    const std::vector<float> means = steps.read_scalars(norm.mean, rows), rstds = steps.read_scalars(norm.rstd, rows);
    auto fill_rows = [&](const std::vector<float>& values, uint32_t first_row, uint32_t round_rows) {
        steps.set_count(pitch);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < round_rows; ++i) steps.fill(row_values[i * pitch], values[first_row + i]);
        });
        steps.set_count(round_rows * pitch);
    };
    for (uint32_t first_row = 0; first_row < rows; first_row += rows_per_round) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, rows_per_round), offset = first_row * pitch;
        steps.set_count(round_rows * pitch);
        if constexpr (sizeof(T) == 4)
            steps.adds(x, norm.x[offset], 0.0f);
        else
            steps.cast(x, norm.x[offset], RoundMode::CAST_NONE);
        fill_rows(means, first_row, round_rows);
        steps.sub(x, x, row_values);
        fill_rows(rstds, first_row, round_rows);
        steps.mul(x, x, row_values);
        steps.set_count(columns);
        for (uint32_t i = 0; i < round_rows; ++i) {
            if (norm.has_gamma) steps.mul(x[i * pitch], x[i * pitch], gamma);
            if (norm.has_beta) steps.add(x[i * pitch], x[i * pitch], beta);
        }
        steps.set_count(round_rows * pitch);
        if constexpr (sizeof(T) == 4)
            steps.adds(norm.out[offset], x, 0.0f);
        else
            steps.cast(norm.out[offset], x, RoundMode::CAST_NONE);
    }
}

template <class U, class T>
void check_row_norm(const Call& call, DisjointOperands& operands, const RowNorm<U, T>& norm) {
    const uint64_t elements = uint64_t(norm.shape.aLength) * norm.shape.rLengthWithPadding;
    check_pitch(call, norm.shape.rLengthWithPadding, norm.shape.rLength, sizeof(T));
    operands.add("inputX", norm.x, elements);
    operands.add("output", norm.out, elements);
    operands.add(norm.computes_mean ? "outputMean" : "inputMean", norm.mean, norm.shape.aLength);
    operands.add("outputRstd", norm.rstd, norm.shape.aLength);
    if (!norm.computes_mean) operands.add("inputVariance", norm.variance, norm.shape.aLength);
    if (norm.has_gamma) operands.add("gamma", norm.gamma, norm.shape.rLength);
    if (norm.has_beta) operands.add("beta", norm.beta, norm.shape.rLength);
}

template <class U, class T>
void normalize(const Call& call, const RowNorm<U, T>& norm, const AscendC::LocalTensor<uint8_t>* shared) {
    DisjointOperands operands(call);
    check_row_norm(call, operands, norm);
    if constexpr (kIs950) {
        row_norm_in_registers(norm, call.site());
    } else {
        const auto tmp = call.temporary_memory(
            shared, normalize_sizes(norm.shape.aLength, norm.shape.rLength, sizeof(U), sizeof(T)));
        operands.add("sharedTmpBuffer", range_of(tmp));
        NormSteps steps(call.site());
        normalize_in_ub(steps, norm, tmp.template ReinterpretCast<float>());
        steps.finish();
    }
}

// LayerNorm with rstd: mean and variance, then Normalize.
template <class U, class T>
void layer_norm_separate(const Call& call, RowNorm<U, T> norm, const AscendC::LocalTensor<uint8_t>* shared,
                         const LayerNormSeparateTiling& tiling) {
    DisjointOperands operands(call);
    check_row_norm(call, operands, norm);
    const uint32_t rows = norm.shape.aLength, columns = norm.shape.rLength, pitch = norm.shape.rLengthWithPadding;
    if constexpr (kIs950) {
        const auto tmp =
            call.temporary_memory(shared, layer_norm_separate_sizes_950(rows, columns, !norm.outputs_variance));
        operands.add("sharedTmpBuffer", range_of(tmp));
        row_norm_in_registers(norm, call.site());
        return;
    }
    tiled_memory(call, shared, tiling, 2);
    const auto memory = call.temporary_memory(shared, layer_norm_separate_sizes(rows, columns, sizeof(T)));
    operands.add("sharedTmpBuffer", range_of(memory));
    const Floats tmp = memory.template ReinterpretCast<float>();
    const Floats x = tmp[tiling.firstTmpStartPos], y = tmp[tiling.secondTmpStartPos];
    norm.variance = tmp[tiling.varianceTmpTensorPos];
    NormSteps steps(call.site());
    if (columns != pitch) {  // clear the filling: a product with ones, and zeros behind them
        const AscendC::LocalTensor<T> ones = tmp.template ReinterpretCast<T>();
        steps.set_count(pitch);
        steps.fill(ones, T(0.0f));
        steps.set_count(columns);
        steps.adds(ones, ones, 1.0f);
        steps.set_count(pitch);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < rows; ++i) steps.mul(norm.x[i * pitch], norm.x[i * pitch], ones);
        });
    }
    for (uint32_t first_row = 0; first_row < rows; first_row += tiling.meanVarRoundSize) {
        const uint32_t round_rows = std::min<uint32_t>(rows - first_row, tiling.meanVarRoundSize),
                       elements = round_rows * pitch;
        auto load = [&] {
            if constexpr (sizeof(T) == 4)
                steps.copy(x, norm.x[first_row * pitch], elements);
            else
                steps.cast(x, norm.x[first_row * pitch], RoundMode::CAST_NONE);
        };
        steps.set_count(elements);
        load();
        steps.muls(x, x, tiling.rValueBack);
        steps.sum_rows_by_lanes(norm.mean[first_row], y, x, round_rows, pitch);
        steps.set_count(elements);
        load();
        const std::vector<float> means = steps.read_scalars(norm.mean[first_row], round_rows);
        steps.set_count(columns);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < round_rows; ++i) steps.adds(x[i * pitch], x[i * pitch], -means[i]);
        });
        steps.set_count(elements);
        steps.mul(x, x, x);
        steps.muls(x, x, tiling.rValueBack);
        steps.sum_rows_by_lanes(norm.variance[first_row], y, x, round_rows, pitch);
    }
    normalize_in_ub(steps, norm, tmp[tiling.firstTmpStartPos]);
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The overloads with and without sharedTmpBuffer.
template <class T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance,
               const LocalTensor<T>& inputX, const LocalTensor<T>& gamma, const LocalTensor<T>& beta,
               const LocalTensor<uint8_t>& sharedTmpBuffer, const T epsilon, LayerNormTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(LayerNorm, T);
    ascend_sim::layer_norm<isReuseSource>(ascend_sim::Call("LayerNorm", site), output, outputMean, outputVariance,
                                          inputX, gamma, beta, &sharedTmpBuffer, epsilon, tiling);
}
template <class T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance,
               const LocalTensor<T>& inputX, const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const T epsilon,
               LayerNormTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(LayerNorm, T);
    ascend_sim::layer_norm<isReuseSource>(ascend_sim::Call("LayerNorm", site), output, outputMean, outputVariance,
                                          inputX, gamma, beta, nullptr, epsilon, tiling);
}

#define ASCEND_SIM_ROW_NORM_CHECKS(Name)                                                                         \
    ASCEND_SIM_NEEDS(Name, T);                                                                                   \
    static_assert(std::is_same_v<U, T> || std::is_same_v<U, float>, #Name ": gamma and beta are of T or float"); \
    static_assert(!config.isOnlyOutput, #Name ": isOnlyOutput must be false")
#define ASCEND_SIM_LAYER_NORM_RSTD(memory)                                                                   \
    ASCEND_SIM_ROW_NORM_CHECKS(LayerNormRstd);                                                               \
    static_assert(config.isOutputRstd || ascend_sim::kIs950, "LayerNorm: a variance is for Ascend950 only"); \
    ascend_sim::layer_norm_separate<U, T>(ascend_sim::Call("LayerNorm", site),                               \
                                          {output,                                                           \
                                           inputX,                                                           \
                                           outputMean,                                                       \
                                           outputRstd,                                                       \
                                           {},                                                               \
                                           gamma,                                                            \
                                           beta,                                                             \
                                           epsilon,                                                          \
                                           para,                                                             \
                                           !config.isNoGamma,                                                \
                                           !config.isNoBeta,                                                 \
                                           true,                                                             \
                                           !config.isOutputRstd},                                            \
                                          memory, tiling)

template <class U, class T, bool isReuseSource = false, const LayerNormConfig& config = LNCFG_NORM>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<float>& outputMean, const LocalTensor<float>& outputRstd,
               const LocalTensor<T>& inputX, const LocalTensor<U>& gamma, const LocalTensor<U>& beta,
               const float epsilon, const LocalTensor<uint8_t>& sharedTmpBuffer, const LayerNormPara& para,
               const LayerNormSeparateTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_LAYER_NORM_RSTD(&sharedTmpBuffer);
}
template <class U, class T, bool isReuseSource = false, const LayerNormConfig& config = LNCFG_NORM>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<float>& outputMean, const LocalTensor<float>& outputRstd,
               const LocalTensor<T>& inputX, const LocalTensor<U>& gamma, const LocalTensor<U>& beta,
               const float epsilon, const LayerNormPara& para, const LayerNormSeparateTiling& tiling, ASCEND_SIM_SITE) {
    ASCEND_SIM_LAYER_NORM_RSTD(nullptr);
}
#undef ASCEND_SIM_LAYER_NORM_RSTD

#define ASCEND_SIM_NORMALIZE(memory)                                                                               \
    ASCEND_SIM_ROW_NORM_CHECKS(Normalize);                                                                         \
    static_assert(config.reducePattern == ReducePattern::AR, "Normalize: the pattern must be AR");                 \
    static_assert(config.aLength != 1, "Normalize: aLength of the configuration must not be 1");                   \
    ascend_sim::normalize<U, T>(ascend_sim::Call("Normalize", site),                                               \
                                {output, inputX, inputMean, outputRstd, inputVariance, gamma, beta, epsilon, para, \
                                 !config.isNoGamma, !config.isNoBeta, false, false},                               \
                                memory)
template <class U, class T, bool isReuseSource = false, const NormalizeConfig& config = NLCFG_NORM>
void Normalize(const LocalTensor<T>& output, const LocalTensor<float>& outputRstd, const LocalTensor<float>& inputMean,
               const LocalTensor<float>& inputVariance, const LocalTensor<T>& inputX, const LocalTensor<U>& gamma,
               const LocalTensor<U>& beta, const LocalTensor<uint8_t>& sharedTmpBuffer, const float epsilon,
               const NormalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_NORMALIZE(&sharedTmpBuffer);
}
template <class U, class T, bool isReuseSource = false, const NormalizeConfig& config = NLCFG_NORM>
void Normalize(const LocalTensor<T>& output, const LocalTensor<float>& outputRstd, const LocalTensor<float>& inputMean,
               const LocalTensor<float>& inputVariance, const LocalTensor<T>& inputX, const LocalTensor<U>& gamma,
               const LocalTensor<U>& beta, const float epsilon, const NormalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_NORMALIZE(nullptr);
}
#undef ASCEND_SIM_NORMALIZE
#undef ASCEND_SIM_ROW_NORM_CHECKS

}  // namespace AscendC
