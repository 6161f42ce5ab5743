// WelfordUpdate, WelfordFinalize: mean and variance of data that comes in parts.
//
// Rules of WelfordUpdate: x is half or float (also bfloat16 on Ascend950), means and variances are float. rnLength is
// 1, abLength has whole 32-byte blocks of x, abComputeLength is at least 1.
// Rules of WelfordFinalize: float. abLength is a multiple of 8, and the sum of headCountLength and tailCountLength.
// tailCountLength is 0 if tailCount is 0 (not on Ascend950). The operands of both functions do not overlap.
// Meaning: m2 is the sum of squared deviations, which CANN's parameters call variance.
//   WelfordUpdate: mean' = mean + (x - mean) * nRec; m2' = m2 + (x - mean) * (x - mean'). With isInplace, elements past
//   abComputeLength are copied; else they stay as they were.
//   WelfordFinalize: mean = sum(mean_i * count_i) * rRec, variance = sum(m2_i + count_i * (mean_i - mean)^2) * rRec, in
//   the order of the instructions. Without a tail, the mean is sum(mean_i * abRec), and count_i is rnLength. Each
//   result is the first of 8 elements; the others are 0.
// Cost: the sum of the instructions; one instruction on Ascend950.
// Pages: WelfordUpdate, WelfordFinalize and their Tiling. The steps are those of asc-devkit's
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
struct WelfordUpdateOperands {
    Floats out_mean, out_m2, mean, m2;
    AscendC::LocalTensor<T> x;
};

template <bool kReusesSource, class T>
void welford_update_in_ub(NormSteps& steps, const WelfordUpdateOperands<T>& update, const Floats& tmp, uint32_t n,
                          float reciprocal) {
    constexpr bool kIsHalf = sizeof(T) == 2;
    constexpr uint32_t kArrays = kIsHalf ? 3 : kReusesSource ? 1 : 2;
    const uint32_t chunk = tmp.GetSize() / (64 * kArrays) * 64;
    for (uint32_t first = 0; first < n; first += chunk) {
        const uint32_t chunk_elements = std::min<uint32_t>(n - first, chunk);
        const Floats delta = tmp[kIsHalf ? chunk : 0],
                     scratch = kReusesSource && !kIsHalf ? delta : tmp[(kArrays - 1) * chunk];
        Floats x;
        steps.set_count(chunk_elements);
        if constexpr (kIsHalf) {
            x = tmp;
            steps.cast(x, update.x[first], RoundMode::CAST_NONE);
        } else {
            x = update.x[first];
        }
        steps.sub(delta, x, update.mean[first]);
        steps.muls(scratch, delta, reciprocal);
        steps.add(update.out_mean[first], scratch, update.mean[first]);
        steps.sub(scratch, x, update.out_mean[first]);
        if (kReusesSource && !kIsHalf) {
            steps.sub(x, x, update.mean[first]);
            steps.mul(delta, delta, x);
        } else {
            steps.mul(delta, delta, scratch);
        }
        steps.add(update.out_m2[first], delta, update.m2[first]);
    }
}

template <class T>
void welford_update_in_registers(const WelfordUpdateOperands<T>& update, uint32_t n, float reciprocal, Site site) {
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(float), n);
    check_source(Operand<T>{"inputX", update.x}, lanes);
    check_source(Operand<float>{"inputMean", update.mean}, lanes);
    check_source(Operand<float>{"inputVariance", update.m2}, lanes);
    check_destination(Operand<float>{"outputMean", update.out_mean}, lanes);
    check_destination(Operand<float>{"outputVariance", update.out_m2}, lanes);
    for (uint32_t i = 0; i < n; ++i) {
        const float x = float(update.x.data()[i]), mean = update.mean.data()[i], delta = x - mean,
                    step = delta * reciprocal;
        update.out_mean.data()[i] = step + mean;
        update.out_m2.data()[i] = delta * (x - update.out_mean.data()[i]) + update.m2.data()[i];
    }
    finish_vector(lanes.repeats(), 11 * cycles_of(Cost::Repeat));
}

template <bool kReusesSource, bool kInPlace, class T>
void welford_update(const Call& call, const WelfordUpdateOperands<T>& update,
                    const AscendC::LocalTensor<uint8_t>* shared, const AscendC::WelfordUpdateParam& para) {
    if (para.rnLength != 1) call.report(Rule::Count04, "para.rnLength must be 1 but is %u.", para.rnLength);
    if (para.abLength * sizeof(T) % kBlockBytes || para.abComputeLength == 0 || para.abComputeLength > para.abLength)
        call.report(Rule::Count04,
                    "para.abLength (%u) must be whole 32-byte blocks, and para.abComputeLength (%u) 1 .. abLength.",
                    para.abLength, para.abComputeLength);
    DisjointOperands operands(call);
    operands.add("inputX", update.x, para.abLength);
    operands.add("inputMean", update.mean, para.abLength);
    operands.add("inputVariance", update.m2, para.abLength);
    operands.add("outputMean", update.out_mean, para.abLength);
    operands.add("outputVariance", update.out_m2, para.abLength);
    NormSteps steps(call.site());
    if (kInPlace && para.abComputeLength < para.abLength) {
        const uint32_t n = round_up(para.abLength - para.abComputeLength, 8), offset = para.abLength - n;
        steps.copy(update.out_mean[offset], update.mean[offset], n);
        steps.copy(update.out_m2[offset], update.m2[offset], n);
    }
    if constexpr (kIs950) {
        welford_update_in_registers(update, para.abComputeLength, para.nRec, call.site());
    } else {
        const auto tmp =
            call.temporary_memory(shared, welford_update_sizes(1, para.abLength, sizeof(T), kReusesSource));
        operands.add("sharedTmpBuffer", range_of(tmp));
        welford_update_in_ub<kReusesSource>(steps, update, tmp.template ReinterpretCast<float>(), para.abComputeLength,
                                            para.nRec);
    }
    steps.finish();
}

// ---- WelfordFinalize ----------------------------------------------------------------------------------------------

struct WelfordParts {
    Floats out_mean, out_variance, mean, m2;
    const AscendC::LocalTensor<int32_t>* counts;  // null if the caller gives none
    AscendC::WelfordFinalizePara para;
    bool has_tail() const { return para.tailCountLength && para.tailCount; }
};

// dst = src * count, where count is headCount for the head and tailCount for the tail. src[0] is element `first` of the
// input. If `scaled` is given, it receives src * count * rRec instead, and dst is temporary.
inline void scale_by_counts(NormSteps& steps, const Floats& dst, const Floats& src,
                            const AscendC::WelfordFinalizePara& para, uint32_t first, uint32_t elements,
                            const Floats* scaled) {
    steps.muls(dst, src, float(para.tailCount));
    const Floats& last = scaled ? *scaled : dst;
    if (scaled) steps.muls(last, dst, para.rRec);
    const uint32_t head_elements =
        para.headCountLength > first ? std::min<uint32_t>(para.headCountLength - first, elements) : 0;
    if (head_elements == 0) return;
    steps.set_count(head_elements);
    steps.muls(last, last, float(para.headCount) / float(para.tailCount));
    steps.set_count(elements);
}

inline void welford_finalize_in_ub(NormSteps& steps, const WelfordParts& parts, const Floats& tmp) {
    constexpr uint32_t kPartialSums = 64;
    const AscendC::WelfordFinalizePara& para = parts.para;
    const Floats means = tmp, variances = tmp[kPartialSums];
    const uint32_t chunk = (tmp.GetSize() - 2 * kPartialSums) / (2 * kPartialSums) * kPartialSums;
    const Floats x = tmp[2 * kPartialSums], y = tmp[2 * kPartialSums + chunk];
    // sum_chunk(first, elements, partial_sum) writes the sum of a chunk. Up to 64 partial sums are added at once.
    auto sum_by_chunks = [&](const Floats& partial_sums, auto sum_chunk) {
        uint32_t partial_count = 0;
        for (uint32_t first = 0; first < para.abLength; first += chunk) {
            const uint32_t elements = std::min<uint32_t>(para.abLength - first, chunk);
            steps.set_count(elements);
            sum_chunk(first, elements, partial_sums[partial_count]);
            if (++partial_count == kPartialSums && first + elements < para.abLength) {
                steps.sum_rows_by_repeats(partial_sums, partial_sums, 1, kPartialSums, partial_count);
                partial_count = 1;
            }
        }
        steps.sum_rows_by_repeats(partial_sums, partial_sums, 1, kPartialSums, partial_count);
    };
    sum_by_chunks(means, [&](uint32_t first, uint32_t elements, const Floats& partial_sum) {
        if (parts.counts) {
            steps.cast(x, (*parts.counts)[first], RoundMode::CAST_NONE);
            steps.mul(x, parts.mean[first], x);
            steps.muls(x, x, para.rRec);
        } else if (parts.has_tail()) {
            scale_by_counts(steps, y, parts.mean[first], para, first, elements, &x);
        } else {
            steps.muls(x, parts.mean[first], para.abRec);
        }
        steps.sum_rows_by_lanes(partial_sum, y, x, 1, elements);
    });
    sum_by_chunks(variances, [&](uint32_t first, uint32_t elements, const Floats& partial_sum) {
        steps.spread(x, means, 1, 1, elements);
        steps.set_count(elements);
        steps.sub(y, parts.mean[first], x);
        steps.mul(x, y, y);
        if (parts.counts) {
            steps.cast(y, (*parts.counts)[first], RoundMode::CAST_NONE);
            steps.mul(y, x, y);
        } else if (parts.has_tail()) {
            scale_by_counts(steps, y, x, para, first, elements, nullptr);
        } else {
            steps.muls(y, x, float(para.rnLength));
        }
        steps.add(x, parts.m2[first], y);
        steps.muls(y, x, para.rRec);
        steps.sum_rows_by_lanes(partial_sum, x, y, 1, elements);
    });
    for (auto [out, total] : {std::pair{parts.out_mean, means}, std::pair{parts.out_variance, variances}}) {
        steps.set_count(8);
        steps.fill(out, 0.0f);
        steps.set_count(1);
        steps.adds(out, total, 0.0f);
    }
}

inline void welford_finalize_in_registers(const WelfordParts& parts, float factor, Site site) {
    const AscendC::WelfordFinalizePara& para = parts.para;
    const uint32_t elements = para.abLength;
    start(Pipe::V, "registers", site);
    const Lanes lanes = Lanes::counted(sizeof(float), elements), results = Lanes::counted(sizeof(float), 8);
    check_source(Operand<float>{"inputMean", parts.mean}, lanes);
    check_source(Operand<float>{"inputVariance", parts.m2}, lanes);
    if (parts.counts) check_source(Operand<int32_t>{"counts", *parts.counts}, lanes);
    check_destination(Operand<float>{"outputMean", parts.out_mean}, results);
    check_destination(Operand<float>{"outputVariance", parts.out_variance}, results);
    std::vector<float> count(elements), values(elements);
    for (uint32_t i = 0; i < elements; ++i) {
        const uint32_t part_count = i < para.headCountLength ? para.headCount : para.tailCount;
        count[i] = parts.counts       ? float(parts.counts->data()[i])
                   : parts.has_tail() ? float(part_count)
                                      : float(para.rnLength);
        values[i] = parts.counts || parts.has_tail() ? parts.mean.data()[i] * count[i] * para.rRec
                                                     : parts.mean.data()[i] * para.abRec;
    }
    const float mean = sum_in_registers(values.data(), elements);
    for (uint32_t i = 0; i < elements; ++i) {
        const float delta = parts.mean.data()[i] - mean;
        values[i] = (delta * delta * count[i] + parts.m2.data()[i]) * factor;
    }
    const float variance = sum_in_registers(values.data(), elements);
    for (uint32_t i = 0; i < 8; ++i) {
        parts.out_mean.data()[i] = i ? 0 : mean;
        parts.out_variance.data()[i] = i ? 0 : variance;
    }
    finish_vector(lanes.repeats(), 14 * cycles_of(Cost::Repeat));
}

inline void welford_finalize(const Call& call, const WelfordParts& parts, bool is_corrected,
                             const AscendC::LocalTensor<uint8_t>* shared) {
    const AscendC::WelfordFinalizePara& para = parts.para;
    if (para.abLength == 0 || para.abLength % 8)
        call.report(Rule::Count04, "para.abLength must be a multiple of 8 but is %u.", para.abLength);
    if (!parts.counts && para.headCountLength + para.tailCountLength != para.abLength)
        call.report(Rule::Count04,
                    "para.headCountLength (%u) and para.tailCountLength (%u) must add up to abLength (%u).",
                    para.headCountLength, para.tailCountLength, para.abLength);
    if (!kIs950 && !parts.counts && para.tailCount == 0 && para.tailCountLength != 0)
        call.report(Rule::Count04, "para.tailCountLength must be 0 because para.tailCount is 0, but it is %u.",
                    para.tailCountLength);
    DisjointOperands operands(call);
    operands.add("inputMean", parts.mean, para.abLength);
    operands.add("inputVariance", parts.m2, para.abLength);
    if (parts.counts) operands.add("counts", *parts.counts, para.abLength);
    operands.add("outputMean", parts.out_mean, 8);
    operands.add("outputVariance", parts.out_variance, 8);
    const auto tmp = call.temporary_memory(
        shared, kIs950 ? welford_finalize_sizes_950(para.abLength) : welford_finalize_sizes(para.abLength));
    operands.add("sharedTmpBuffer", range_of(tmp));
    if constexpr (kIs950) {
        welford_finalize_in_registers(parts, is_corrected ? para.rRecWithCorrection : para.rRec, call.site());
    } else {
        NormSteps steps(call.site());
        welford_finalize_in_ub(steps, parts, tmp.ReinterpretCast<float>());
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
