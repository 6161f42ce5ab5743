// WelfordUpdate, WelfordFinalize: mean and variance of data that comes in parts.
//
// Rules: WelfordUpdate: x half or float (also bfloat16 on Ascend950), means and variances float; rnLength 1, abLength
// whole 32-byte blocks of x, abComputeLength at least 1. WelfordFinalize: float; abLength a multiple of 8 and the sum
// of headCountLength and tailCountLength; tailCountLength is 0 if tailCount is (not on Ascend950). Operands are apart.
// Meaning: update: mean' = mean + (x - mean) * nRec; m2' = m2 + (x - mean) * (x - mean'). Elements past abComputeLength
// are copied with isInplace, else unchanged. Finalize: mean = sum(mean_i * count_i) * rRec; variance =
// sum(m2_i + count_i * (mean_i - mean)^2) * rRec, in the order of the instructions; without a tail the mean takes abRec
// instead of counts, and the variance rnLength. Both results are the first elements of 8, the others are 0.
// Cost: that of the instructions; one instruction on Ascend950.
// Pages: WelfordUpdate, WelfordFinalize and their Tiling; the steps are those of asc-devkit's
// impl/adv_api/detail/normalization.
#pragma once

#include "ascendc/library/layer_norm.h"

namespace AscendC {

struct WelfordUpdateParam {
    uint32_t rnLength, abLength, abComputeLength;
    float nRec;
};
struct WelfordUpdateConfig {
    constexpr WelfordUpdateConfig(const bool inplace) : isInplace(inplace) {}
    bool isInplace = false;
};
constexpr WelfordUpdateConfig WFUPDATE_DEFAULT_CFG = {false};

struct WelfordFinalizePara {
    uint32_t rnLength, abLength, headCount, headCountLength, tailCount, tailCountLength;
    float abRec, rRec, rRecWithCorrection;
};
struct WelfordFinalizeConfig {
    bool isCorrection = false;
};
constexpr WelfordFinalizeConfig WFFINALIZE_DEFAULT_CFG = {false};

}  // namespace AscendC

namespace ascend_sim {

template <class T>
struct Welford {
    Floats out_mean, out_m2, mean, m2;
    AscendC::LocalTensor<T> x;
};

template <bool kReusesSource, class T>
void welford_update_in_ub(NormSteps& steps, const Welford<T>& w, const Floats& tmp, uint32_t n, float rec) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    constexpr uint32_t kArrays = kIsHalf ? 3 : kReusesSource ? 1 : 2;
    const uint32_t chunk = tmp.GetSize() / (64 * kArrays) * 64;
    for (uint32_t first = 0; first < n; first += chunk) {
        const uint32_t part = std::min<uint32_t>(n - first, chunk);
        const Floats delta = tmp[kIsHalf ? chunk : 0],
                     other = kReusesSource && !kIsHalf ? delta : tmp[(kArrays - 1) * chunk];
        Floats x;
        steps.set_count(part);
        if constexpr (kIsHalf) {
            x = tmp;
            steps.cast(x, w.x[first], RoundMode::CAST_NONE);
        } else {
            x = w.x[first];
        }
        steps.sub(delta, x, w.mean[first]);
        steps.muls(other, delta, rec);
        steps.add(w.out_mean[first], other, w.mean[first]);
        steps.sub(other, x, w.out_mean[first]);
        if (kReusesSource && !kIsHalf) {
            steps.sub(x, x, w.mean[first]);
            steps.mul(delta, delta, x);
        } else {
            steps.mul(delta, delta, other);
        }
        steps.add(w.out_m2[first], delta, w.m2[first]);
    }
}

template <class T>
void welford_update_in_registers(const Welford<T>& w, uint32_t n, float rec, Site site) {
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(float), n);
    check_source(Operand<T>{"inputX", w.x}, lanes);
    check_source(Operand<float>{"inputMean", w.mean}, lanes);
    check_source(Operand<float>{"inputVariance", w.m2}, lanes);
    check_destination(Operand<float>{"outputMean", w.out_mean}, lanes);
    check_destination(Operand<float>{"outputVariance", w.out_m2}, lanes);
    for (uint32_t i = 0; i < n; ++i) {
        const float x = float(w.x.data()[i]), mean = w.mean.data()[i], delta = x - mean, step = delta * rec;
        w.out_mean.data()[i] = step + mean;
        w.out_m2.data()[i] = delta * (x - w.out_mean.data()[i]) + w.m2.data()[i];
    }
    finish_vector(lanes.repeats(), 11 * cycles_of(Cost::Repeat));
}

template <bool kReusesSource, bool kInPlace, class T>
void welford_update(const Call& call, const Welford<T>& w, const AscendC::LocalTensor<uint8_t>* shared,
                    const AscendC::WelfordUpdateParam& p) {
    if (p.rnLength != 1) call.report(Rule::Count04, "para.rnLength must be 1 but is %u.", p.rnLength);
    if (p.abLength * sizeof(T) % kBlockBytes || p.abComputeLength == 0 || p.abComputeLength > p.abLength)
        call.report(Rule::Count04,
                    "para.abLength (%u) must be whole 32-byte blocks, and para.abComputeLength (%u) 1 .. abLength.",
                    p.abLength, p.abComputeLength);
    DisjointOperands operands(call);
    operands.add("inputX", w.x, p.abLength);
    operands.add("inputMean", w.mean, p.abLength);
    operands.add("inputVariance", w.m2, p.abLength);
    operands.add("outputMean", w.out_mean, p.abLength);
    operands.add("outputVariance", w.out_m2, p.abLength);
    NormSteps steps(call.site());
    if (kInPlace && p.abComputeLength < p.abLength) {
        const uint32_t n = round_up(p.abLength - p.abComputeLength, 8), at = p.abLength - n;
        steps.copy(w.out_mean[at], w.mean[at], n);
        steps.copy(w.out_m2[at], w.m2[at], n);
    }
    if constexpr (kIs950) {
        welford_update_in_registers(w, p.abComputeLength, p.nRec, call.site());
    } else {
        const auto tmp = call.temporary_memory(shared, welford_update_sizes(1, p.abLength, sizeof(T), kReusesSource));
        operands.add("sharedTmpBuffer", range_of(tmp));
        welford_update_in_ub<kReusesSource>(steps, w, tmp.template ReinterpretCast<float>(), p.abComputeLength, p.nRec);
    }
    steps.finish();
}

// ---- WelfordFinalize ----------------------------------------------------------------------------------------------

struct WelfordParts {
    Floats out_mean, out_variance, mean, m2;
    const AscendC::LocalTensor<int32_t>* counts;  // or null
    AscendC::WelfordFinalizePara para;
    bool has_tail() const { return para.tailCountLength && para.tailCount; }
};

// d[0, n) scaled by the counts of head and tail; `first` is the position of d[0] in the input.
inline void scale_by_counts(NormSteps& steps, const Floats& d, const Floats& s, const AscendC::WelfordFinalizePara& p,
                            uint32_t first, uint32_t n, const Floats* scaled) {
    steps.muls(d, s, float(p.tailCount));
    const Floats& last = scaled ? *scaled : d;
    if (scaled) steps.muls(last, d, p.rRec);
    const uint32_t head = p.headCountLength > first ? std::min<uint32_t>(p.headCountLength - first, n) : 0;
    if (head == 0) return;
    steps.set_count(head);
    steps.muls(last, last, float(p.headCount) / float(p.tailCount));
    steps.set_count(n);
}

inline void welford_finalize_in_ub(NormSteps& steps, const WelfordParts& w, const Floats& tmp) {
    constexpr uint32_t kPartials = 64;
    const AscendC::WelfordFinalizePara& p = w.para;
    const Floats means = tmp, variances = tmp[kPartials];
    const uint32_t chunk = (tmp.GetSize() - 2 * kPartials) / (2 * kPartials) * kPartials;
    const Floats x = tmp[2 * kPartials], y = tmp[2 * kPartials + chunk];
    // Sums of chunks, collected 64 at a time.
    auto by_chunks = [&](const Floats& partial, auto one) {
        uint32_t k = 0;
        for (uint32_t first = 0; first < p.abLength; first += chunk) {
            const uint32_t n = std::min<uint32_t>(p.abLength - first, chunk);
            steps.set_count(n);
            one(first, n, partial[k]);
            if (++k == kPartials && first + n < p.abLength) {
                steps.sum_rows_by_repeats(partial, partial, 1, kPartials, k);
                k = 1;
            }
        }
        steps.sum_rows_by_repeats(partial, partial, 1, kPartials, k);
    };
    by_chunks(means, [&](uint32_t first, uint32_t n, const Floats& partial) {
        if (w.counts) {
            steps.cast(x, (*w.counts)[first], RoundMode::CAST_NONE);
            steps.mul(x, w.mean[first], x);
            steps.muls(x, x, p.rRec);
        } else if (w.has_tail()) {
            scale_by_counts(steps, y, w.mean[first], p, first, n, &x);
        } else {
            steps.muls(x, w.mean[first], p.abRec);
        }
        steps.sum_rows_by_lanes(partial, y, x, 1, n);
    });
    by_chunks(variances, [&](uint32_t first, uint32_t n, const Floats& partial) {
        steps.spread(x, means, 1, 1, n);
        steps.set_count(n);
        steps.sub(y, w.mean[first], x);
        steps.mul(x, y, y);
        if (w.counts) {
            steps.cast(y, (*w.counts)[first], RoundMode::CAST_NONE);
            steps.mul(y, x, y);
        } else if (w.has_tail()) {
            scale_by_counts(steps, y, x, p, first, n, nullptr);
        } else {
            steps.muls(y, x, float(p.rnLength));
        }
        steps.add(x, w.m2[first], y);
        steps.muls(y, x, p.rRec);
        steps.sum_rows_by_lanes(partial, x, y, 1, n);
    });
    for (auto [out, partial] : {std::pair{w.out_mean, means}, std::pair{w.out_variance, variances}}) {
        steps.set_count(8);
        steps.fill(out, 0.0f);
        steps.set_count(1);
        steps.adds(out, partial, 0.0f);
    }
}

inline void welford_finalize_in_registers(const WelfordParts& w, float factor, Site site) {
    const AscendC::WelfordFinalizePara& p = w.para;
    const uint32_t n = p.abLength;
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(float), n), results = Lanes::counted(sizeof(float), 8);
    check_source(Operand<float>{"inputMean", w.mean}, lanes);
    check_source(Operand<float>{"inputVariance", w.m2}, lanes);
    if (w.counts) check_source(Operand<int32_t>{"counts", *w.counts}, lanes);
    check_destination(Operand<float>{"outputMean", w.out_mean}, results);
    check_destination(Operand<float>{"outputVariance", w.out_variance}, results);
    std::vector<float> count(n), values(n);
    for (uint32_t i = 0; i < n; ++i) {
        const uint32_t part = i < p.headCountLength ? p.headCount : p.tailCount;
        count[i] = w.counts ? float(w.counts->data()[i]) : w.has_tail() ? float(part) : float(p.rnLength);
        values[i] = w.counts || w.has_tail() ? w.mean.data()[i] * count[i] * p.rRec : w.mean.data()[i] * p.abRec;
    }
    const float mean = sum_in_registers(values.data(), n);
    for (uint32_t i = 0; i < n; ++i) {
        const float delta = w.mean.data()[i] - mean;
        values[i] = (delta * delta * count[i] + w.m2.data()[i]) * factor;
    }
    const float variance = sum_in_registers(values.data(), n);
    for (uint32_t i = 0; i < 8; ++i) {
        w.out_mean.data()[i] = i ? 0 : mean;
        w.out_variance.data()[i] = i ? 0 : variance;
    }
    finish_vector(lanes.repeats(), 14 * cycles_of(Cost::Repeat));
}

inline void welford_finalize(const Call& call, const WelfordParts& w, bool is_corrected,
                             const AscendC::LocalTensor<uint8_t>* shared) {
    const AscendC::WelfordFinalizePara& p = w.para;
    if (p.abLength == 0 || p.abLength % 8)
        call.report(Rule::Count04, "para.abLength must be a multiple of 8 but is %u.", p.abLength);
    if (!w.counts && p.headCountLength + p.tailCountLength != p.abLength)
        call.report(Rule::Count04,
                    "para.headCountLength (%u) and para.tailCountLength (%u) must add up to abLength (%u).",
                    p.headCountLength, p.tailCountLength, p.abLength);
    if (!kIs950 && !w.counts && p.tailCount == 0 && p.tailCountLength != 0)
        call.report(Rule::Count04, "para.tailCountLength must be 0 because para.tailCount is 0, but it is %u.",
                    p.tailCountLength);
    DisjointOperands operands(call);
    operands.add("inputMean", w.mean, p.abLength);
    operands.add("inputVariance", w.m2, p.abLength);
    if (w.counts) operands.add("counts", *w.counts, p.abLength);
    operands.add("outputMean", w.out_mean, 8);
    operands.add("outputVariance", w.out_variance, 8);
    const auto tmp = call.temporary_memory(
        shared, kIs950 ? welford_finalize_sizes_950(p.abLength) : welford_finalize_sizes(p.abLength));
    operands.add("sharedTmpBuffer", range_of(tmp));
    if constexpr (kIs950) {
        welford_finalize_in_registers(w, is_corrected ? p.rRecWithCorrection : p.rRec, call.site());
    } else {
        NormSteps steps(call.site());
        welford_finalize_in_ub(steps, w, tmp.ReinterpretCast<float>());
        steps.finish();
    }
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_WELFORD_UPDATE(memory)                                                                        \
    ASCEND_SIM_NEEDS(WelfordUpdate, T);                                                                          \
    static_assert(std::is_same_v<U, float>, "WelfordUpdate: means and variances are of float");                  \
    ascend_sim::welford_update<isReuseSource, config.isInplace, T>(                                              \
        ascend_sim::Call("WelfordUpdate", site), {outputMean, outputVariance, inputMean, inputVariance, inputX}, \
        memory, para)
template <class T, class U, bool isReuseSource = false, const WelfordUpdateConfig& config = WFUPDATE_DEFAULT_CFG>
void WelfordUpdate(const LocalTensor<U>& outputMean, const LocalTensor<U>& outputVariance,
                   const LocalTensor<U>& inputMean, const LocalTensor<U>& inputVariance, const LocalTensor<T>& inputX,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, const WelfordUpdateParam& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_UPDATE(&sharedTmpBuffer);
}
template <class T, class U, bool isReuseSource = false, const WelfordUpdateConfig& config = WFUPDATE_DEFAULT_CFG>
void WelfordUpdate(const LocalTensor<U>& outputMean, const LocalTensor<U>& outputVariance,
                   const LocalTensor<U>& inputMean, const LocalTensor<U>& inputVariance, const LocalTensor<T>& inputX,
                   const WelfordUpdateParam& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_UPDATE(nullptr);
}
#undef ASCEND_SIM_WELFORD_UPDATE

#define ASCEND_SIM_WELFORD_FINALIZE(count, memory)                                                                    \
    static_assert(!config.isCorrection || ascend_sim::kIs950, "WelfordFinalize: isCorrection is for Ascend950 only"); \
    ascend_sim::welford_finalize(ascend_sim::Call("WelfordFinalize", site),                                           \
                                 {outputMean, outputVariance, inputMean, inputVariance, count, para},                 \
                                 config.isCorrection, memory)
template <bool isReuseSource = false, const WelfordFinalizeConfig& config = WFFINALIZE_DEFAULT_CFG>
void WelfordFinalize(const LocalTensor<float>& outputMean, const LocalTensor<float>& outputVariance,
                     const LocalTensor<float>& inputMean, const LocalTensor<float>& inputVariance,
                     const LocalTensor<uint8_t>& sharedTmpBuffer, WelfordFinalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_FINALIZE(nullptr, &sharedTmpBuffer);
}
template <bool isReuseSource = false, const WelfordFinalizeConfig& config = WFFINALIZE_DEFAULT_CFG>
void WelfordFinalize(const LocalTensor<float>& outputMean, const LocalTensor<float>& outputVariance,
                     const LocalTensor<float>& inputMean, const LocalTensor<float>& inputVariance,
                     const LocalTensor<int32_t>& counts, const LocalTensor<uint8_t>& sharedTmpBuffer,
                     WelfordFinalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_FINALIZE(&counts, &sharedTmpBuffer);
}
template <bool isReuseSource = false, const WelfordFinalizeConfig& config = WFFINALIZE_DEFAULT_CFG>
void WelfordFinalize(const LocalTensor<float>& outputMean, const LocalTensor<float>& outputVariance,
                     const LocalTensor<float>& inputMean, const LocalTensor<float>& inputVariance,
                     WelfordFinalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_FINALIZE(nullptr, nullptr);
}
template <bool isReuseSource = false, const WelfordFinalizeConfig& config = WFFINALIZE_DEFAULT_CFG>
void WelfordFinalize(const LocalTensor<float>& outputMean, const LocalTensor<float>& outputVariance,
                     const LocalTensor<float>& inputMean, const LocalTensor<float>& inputVariance,
                     const LocalTensor<int32_t>& counts, WelfordFinalizePara& para, ASCEND_SIM_SITE) {
    ASCEND_SIM_WELFORD_FINALIZE(&counts, nullptr);
}
#undef ASCEND_SIM_WELFORD_FINALIZE

}  // namespace AscendC
