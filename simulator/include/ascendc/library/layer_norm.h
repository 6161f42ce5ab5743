// LayerNorm, Normalize: rows with mean 0 and variance 1, scaled by gamma and shifted by beta.
//
// Rules: half and float; Normalize and LayerNorm with rstd also take float gamma and beta with half (and bfloat16 on
// Ascend950). Rows have whole 32-byte blocks. LayerNorm of [B, S, H]: output may be inputX; the other operands are
// apart. The struct of the host's tiling function says how many rows sharedTmpBuffer holds.
// Meaning: in float. LayerNorm of [B, S, H]: mean = sum(x / H), variance = sum((x - mean)^2 / H), where H is the
// original length, although the sums include the filling; y = (x - mean) * (1 / sqrt(variance + epsilon)) * gamma +
// beta. LayerNorm of [A, R] first clears the filling in inputX, and the variance does not take it. Normalize is given
// mean and variance. The filling of output has no meaning. Cost: that of the instructions; on Ascend950 Normalize and
// LayerNorm of [A, R] are one instruction. Pages: LayerNorm, LayerNorm Tiling, Normalize, Normalize Tiling; the steps
// are those of asc-devkit's impl/adv_api/detail/normalization/layernorm and normalize.
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

// Operands of a norm; none overlaps another one.
class Operands {
public:
    explicit Operands(const Call& call) : call_(call) {}
    template <class T>
    Range add(const char* what, const AscendC::LocalTensor<T>& t, uint64_t n) {
        return add(what, call_.check_operand(what, t, n));
    }
    Range add(const char* what, Range range) {
        for (uint32_t i = 0; i < count_; ++i) call_.check_apart(what, range, names_[i], ranges_[i]);
        names_[count_] = what;
        ranges_[count_++] = range;
        return range;
    }

private:
    const Call& call_;
    const char* names_[10] = {};
    Range ranges_[10] = {};
    uint32_t count_ = 0;
};

inline void check_pitch(const Call& call, uint32_t pitch, uint32_t k, uint32_t type_bytes) {
    if (pitch * type_bytes % kBlockBytes || k > pitch || k == 0)
        call.report(Rule::Count04, "a row has %u elements, of which %u count; it must have whole 32-byte blocks.",
                    pitch, k);
}
// The temporary memory of a tiling: `arrays` arrays of oneTmpSize floats from firstTmpStartPos.
template <class S>
Floats tiled_memory(const Call& call, const AscendC::LocalTensor<uint8_t>* shared, const S& tiling, uint32_t arrays) {
    if (tiling.oneTmpSize == 0)
        call.report(Rule::Count04, "the tiling has no round: oneTmpSize is 0. Fill it by the host's tiling function.");
    const uint32_t bytes = (tiling.firstTmpStartPos + arrays * tiling.oneTmpSize) * 4;
    return call.temporary_memory(shared, {bytes, bytes}).template ReinterpretCast<float>();
}

// ---- [B, S, H] ----------------------------------------------------------------------------------------------------

// Normalizes rows: c = (x - mean) / sqrt(variance + epsilon). a may be x.
struct NormArrays {
    Floats a, b, c;
};
inline void normalize_rows(NormSteps& steps, const Floats& x, const NormArrays& t, const Floats& mean,
                           const Floats& variance, uint32_t rows, uint32_t h, float factor, float epsilon) {
    const uint32_t n = rows * h;
    steps.set_count(n);
    steps.muls(t.c, x, factor);
    steps.sum_rows_by_lanes(mean, t.b, t.c, rows, h);
    steps.spread(t.c, t.b, h, rows, h);
    steps.set_count(n);
    steps.sub(t.b, x, t.c);
    steps.mul(t.c, t.b, t.b);
    steps.muls(t.a, t.c, factor);
    steps.sum_rows_by_lanes(variance, t.c, t.a, rows, h);
    steps.spread(t.a, t.c, h, rows, h);
    steps.set_count(n);
    steps.adds(t.c, t.a, epsilon);
    steps.sqrt(t.a, t.c);
    steps.divide_one_by(t.a, t.c, n);
    steps.mul(t.c, t.a, t.b);
}

template <bool kReuse, class T>
void layer_norm(const Call& call, const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& mean,
                const AscendC::LocalTensor<T>& variance, const AscendC::LocalTensor<T>& x,
                const AscendC::LocalTensor<T>& gamma, const AscendC::LocalTensor<T>& beta,
                const AscendC::LocalTensor<uint8_t>* shared, T epsilon, const LayerNormTiling& tiling) {
    constexpr bool kIsHalf = sizeof(T) == 2, kInSource = kReuse && !kIsHalf;
    const uint32_t h = tiling.hLength, rows = tiling.meanVarSize;
    const Floats tmp = tiled_memory(call, shared, tiling, kInSource ? 2 : 3);
    check_pitch(call, h, tiling.originalHLength, sizeof(T));
    Operands all(call);
    const Range from = all.add("inputX", x, uint64_t(rows) * h);
    all.add("gamma", gamma, h);
    all.add("beta", beta, h);
    all.add("sharedTmpBuffer", {tmp.view().addr, int64_t(tmp.view().addr) + tmp.view().bytes});
    all.add("outputMean", mean, rows);
    all.add("outputVariance", variance, rows);
    const Range to = call.check_operand("output", out, uint64_t(rows) * h);
    if (to.begin != from.begin) all.add("output", to);

    NormSteps steps(call.site());
    for (uint32_t first = 0; first < rows; first += tiling.meanVarRoundSize) {
        const uint32_t n = std::min<uint32_t>(rows - first, tiling.meanVarRoundSize), at = first * h;
        const Floats first_tmp = tmp[tiling.firstTmpStartPos], second = tmp[tiling.secondTmpStartPos];
        const Floats third = kInSource ? second : tmp[tiling.thirdTmpStartPos];
        const float e = float(epsilon);
        if constexpr (kIsHalf) {
            const NormArrays t{first_tmp, second, third};
            steps.set_count(n * h);
            steps.cast(t.a, x[at], RoundMode::CAST_NONE);
            normalize_rows(steps, t.a, t, tmp[tiling.meanTmpTensorPos + first],
                           tmp[tiling.varianceTmpTensorPos + first], n, h, tiling.lastDimValueBack, e);
            steps.set_count(h);
            steps.cast(t.a, gamma, RoundMode::CAST_NONE);
            steps.mul_rows(t.b, t.c, t.a, n, h);
            steps.cast(t.c, beta, RoundMode::CAST_NONE);
            steps.add_rows(t.a, t.b, t.c, n, h);
            steps.set_count(n * h);
            steps.cast(out[at], t.a, RoundMode::CAST_NONE);
        } else {
            const NormArrays t =
                kInSource ? NormArrays{x[at], first_tmp, second} : NormArrays{first_tmp, second, third};
            normalize_rows(steps, x[at], t, mean[first], variance[first], n, h, tiling.lastDimValueBack, e);
            steps.mul_rows(t.a, t.c, gamma, n, h);
            steps.add_rows(out[at], t.a, beta, n, h);
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

// Ascend950: a loop over vector registers; with `from_x`, mean and variance come from x.
template <class U, class T>
struct RowNorm {
    AscendC::LocalTensor<T> out, x;
    Floats mean, rstd, variance;
    AscendC::LocalTensor<U> gamma, beta;
    float epsilon;
    AscendC::LayerNormPara shape;
    bool has_gamma, has_beta, from_x, gives_variance;
};
template <class U, class T>
void row_norm_in_registers(const RowNorm<U, T>& p, Site site) {
    start(Pipe::V, "registers", site);
    const uint32_t a = p.shape.aLength, r = p.shape.rLength, pitch = p.shape.rLengthWithPadding;
    auto uses = [&](const char* name, const auto& t, uint32_t n, bool is_written) {
        const Range range = bytes_of(t, n);
        is_written ? writes(name, t.view(), &range, 1) : reads(name, t.view(), &range, 1);
    };
    uses("inputX", p.x, a * pitch, false);
    if (p.has_gamma) uses("gamma", p.gamma, r, false);
    if (p.has_beta) uses("beta", p.beta, r, false);
    uses("mean", p.mean, a, p.from_x);
    if (!p.from_x) uses("inputVariance", p.variance, a, false);
    uses("outputRstd", p.rstd, a, true);
    uses("output", p.out, a * pitch, true);
    std::vector<float> x(r), y(r);
    const Arithmetic<T> type;
    for (uint32_t i = 0; i < a; ++i) {
        for (uint32_t j = 0; j < r; ++j) x[j] = float(p.x.data()[i * pitch + j]);
        float mean = 0, variance = 0;
        if (p.from_x) {
            const float scale = 1.0f / float(r);
            for (uint32_t j = 0; j < r; ++j) y[j] = x[j] * scale;
            mean = sum_in_registers(y.data(), r);
            for (uint32_t j = 0; j < r; ++j) y[j] = (x[j] - mean) * (x[j] - mean) * scale;
            variance = sum_in_registers(y.data(), r);
            p.mean.data()[i] = mean;
        } else {
            mean = p.mean.data()[i];
            variance = p.variance.data()[i];
        }
        const float rstd = 1.0f / std::sqrt(variance + p.epsilon);
        p.rstd.data()[i] = p.gives_variance ? variance : rstd;
        for (uint32_t j = 0; j < r; ++j) {
            float v = (x[j] - mean) * rstd;
            if (p.has_gamma) v *= float(p.gamma.data()[j]);
            if (p.has_beta) v += float(p.beta.data()[j]);
            p.out.data()[i * pitch + j] = type.narrow(v);
        }
    }
    const uint32_t chunks = (r + NormSteps::kLanes - 1) / NormSteps::kLanes, steps = p.from_x ? 15 : 8;
    finish_vector(a * (chunks * steps + 4), cycles_of(Cost::Repeat));
}

// Normalize with its memory, on rows that tmp holds.
template <class U, class T>
void normalize_in_ub(NormSteps& steps, const RowNorm<U, T>& p, const Floats& tmp) {
    constexpr bool kCastsGamma = sizeof(U) == 2;
    const uint32_t a = p.shape.aLength, r = p.shape.rLength, pitch = p.shape.rLengthWithPadding;
    const uint32_t rows = std::min<uint32_t>((tmp.GetSize() - (kCastsGamma ? 2 * pitch : 0)) / (2 * pitch), a);
    const Floats xs = tmp, ys = tmp[rows * pitch];
    steps.set_count(a);
    steps.adds(p.rstd, p.variance, p.epsilon);
    steps.fill(tmp, 1.0f);
    steps.sqrt(p.rstd, p.rstd);
    steps.div(p.rstd, tmp, p.rstd);
    Floats gamma, beta;
    if constexpr (kCastsGamma) {
        gamma = tmp[2 * rows * pitch];
        beta = tmp[2 * rows * pitch + pitch];
        steps.set_count(r);
        if (p.has_gamma) steps.cast(gamma, p.gamma, RoundMode::CAST_NONE);
        if (p.has_beta) steps.cast(beta, p.beta, RoundMode::CAST_NONE);
    } else {
        gamma = p.gamma;
        beta = p.beta;
    }
    const std::vector<float> means = steps.read_scalars(p.mean, a), rstds = steps.read_scalars(p.rstd, a);
    auto fill_rows = [&](const std::vector<float>& values, uint32_t first, uint32_t n) {
        steps.set_count(pitch);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < n; ++i) steps.fill(ys[i * pitch], values[first + i]);
        });
        steps.set_count(n * pitch);
    };
    for (uint32_t first = 0; first < a; first += rows) {
        const uint32_t n = std::min<uint32_t>(a - first, rows), at = first * pitch;
        steps.set_count(n * pitch);
        if constexpr (sizeof(T) == 4)
            steps.adds(xs, p.x[at], 0.0f);
        else
            steps.cast(xs, p.x[at], RoundMode::CAST_NONE);
        fill_rows(means, first, n);
        steps.sub(xs, xs, ys);
        fill_rows(rstds, first, n);
        steps.mul(xs, xs, ys);
        steps.set_count(r);
        for (uint32_t i = 0; i < n; ++i) {
            if (p.has_gamma) steps.mul(xs[i * pitch], xs[i * pitch], gamma);
            if (p.has_beta) steps.add(xs[i * pitch], xs[i * pitch], beta);
        }
        steps.set_count(n * pitch);
        if constexpr (sizeof(T) == 4)
            steps.adds(p.out[at], xs, 0.0f);
        else
            steps.cast(p.out[at], xs, RoundMode::CAST_NONE);
    }
}

template <class U, class T>
void check_row_norm(const Call& call, Operands& all, const RowNorm<U, T>& p) {
    const uint64_t n = uint64_t(p.shape.aLength) * p.shape.rLengthWithPadding;
    check_pitch(call, p.shape.rLengthWithPadding, p.shape.rLength, sizeof(T));
    all.add("inputX", p.x, n);
    all.add("output", p.out, n);
    all.add(p.from_x ? "outputMean" : "inputMean", p.mean, p.shape.aLength);
    all.add("outputRstd", p.rstd, p.shape.aLength);
    if (!p.from_x) all.add("inputVariance", p.variance, p.shape.aLength);
    if (p.has_gamma) all.add("gamma", p.gamma, p.shape.rLength);
    if (p.has_beta) all.add("beta", p.beta, p.shape.rLength);
}

template <class U, class T>
void normalize(const Call& call, const RowNorm<U, T>& p, const AscendC::LocalTensor<uint8_t>* shared) {
    Operands all(call);
    check_row_norm(call, all, p);
    if constexpr (kIs950) {
        row_norm_in_registers(p, call.site());
    } else {
        const auto tmp =
            call.temporary_memory(shared, normalize_sizes(p.shape.aLength, p.shape.rLength, sizeof(U), sizeof(T)));
        all.add("sharedTmpBuffer", range_of(tmp));
        NormSteps steps(call.site());
        normalize_in_ub(steps, p, tmp.template ReinterpretCast<float>());
        steps.finish();
    }
}

// LayerNorm with rstd: mean and variance, then Normalize.
template <class U, class T>
void layer_norm_separate(const Call& call, RowNorm<U, T> p, const AscendC::LocalTensor<uint8_t>* shared,
                         const LayerNormSeparateTiling& tiling) {
    Operands all(call);
    check_row_norm(call, all, p);
    const uint32_t a = p.shape.aLength, r = p.shape.rLength, pitch = p.shape.rLengthWithPadding;
    if constexpr (kIs950) {
        const auto tmp = call.temporary_memory(shared, layer_norm_separate_sizes_950(a, r, !p.gives_variance));
        all.add("sharedTmpBuffer", range_of(tmp));
        row_norm_in_registers(p, call.site());
        return;
    }
    tiled_memory(call, shared, tiling, 2);
    const auto memory = call.temporary_memory(shared, layer_norm_separate_sizes(a, r, sizeof(T)));
    all.add("sharedTmpBuffer", range_of(memory));
    const Floats tmp = memory.template ReinterpretCast<float>();
    const Floats x = tmp[tiling.firstTmpStartPos], y = tmp[tiling.secondTmpStartPos];
    p.variance = tmp[tiling.varianceTmpTensorPos];
    NormSteps steps(call.site());
    if (r != pitch) {  // clears the filling
        const AscendC::LocalTensor<T> ones = tmp.template ReinterpretCast<T>();
        steps.set_count(pitch);
        steps.fill(ones, T(0.0f));
        steps.set_count(r);
        steps.adds(ones, ones, 1.0f);
        steps.set_count(pitch);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < a; ++i) steps.mul(p.x[i * pitch], p.x[i * pitch], ones);
        });
    }
    for (uint32_t first = 0; first < a; first += tiling.meanVarRoundSize) {
        const uint32_t rows = std::min<uint32_t>(a - first, tiling.meanVarRoundSize), n = rows * pitch;
        auto load = [&] {
            if constexpr (sizeof(T) == 4)
                steps.copy(x, p.x[first * pitch], n);
            else
                steps.cast(x, p.x[first * pitch], RoundMode::CAST_NONE);
        };
        steps.set_count(n);
        load();
        steps.muls(x, x, tiling.rValueBack);
        steps.sum_rows_by_lanes(p.mean[first], y, x, rows, pitch);
        steps.set_count(n);
        load();
        const std::vector<float> means = steps.read_scalars(p.mean[first], rows);
        steps.set_count(r);
        steps.share_barrier([&] {
            for (uint32_t i = 0; i < rows; ++i) steps.adds(x[i * pitch], x[i * pitch], -means[i]);
        });
        steps.set_count(n);
        steps.mul(x, x, x);
        steps.muls(x, x, tiling.rValueBack);
        steps.sum_rows_by_lanes(p.variance[first], y, x, rows, pitch);
    }
    normalize_in_ub(steps, p, tmp[tiling.firstTmpStartPos]);
    steps.finish();
}

}  // namespace ascend_sim

namespace AscendC {

// The forms with and without sharedTmpBuffer.
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
