// Compiled without floating-point contraction: policy ggml must round after every operation.
#include "csrc/cpu/rope_angle.h"

#include <cmath>
#include <cstring>

#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"

namespace npu_rope {
namespace {

void split_turns(long double turns, double* hi, double* lo) {
    double d = static_cast<double>(turns);
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof bits);
    bits &= ~((uint64_t{1} << 31) - 1);
    std::memcpy(hi, &bits, sizeof *hi);
    *lo = static_cast<double>(turns - static_cast<long double>(*hi));
}

void fill_ggml_constants(const npu_rope_params& p, const float* factors, int64_t factor_stride, RopeAngles* a) {
    auto base = static_cast<float>(p.freq_base);
    a->theta_scale = powf(base, -2.0f / static_cast<float>(p.n_dims));
    a->freq_scale = static_cast<float>(p.freq_scale);
    a->ext_factor = static_cast<float>(p.ext_factor);
    a->mscale_f32 = static_cast<float>(p.attn_factor);
    if (p.ext_factor != 0) {
        rope_corr_dims(p, &a->corr_low, &a->corr_high);
        a->mscale_f32 *= 1.0f + 0.1f * logf(1.0f / a->freq_scale);
    }
    a->freq_factors.assign(a->pairs, 1.0f);
    for (int i = 0; factors && i < a->pairs; ++i) a->freq_factors[i] = factors[i * factor_stride];
}

// The arguments from which a RopeAngles was computed, except the values of freq_factors.
struct CacheKey {
    npu_rope_params params;
    int32_t policy;
    bool has_factors;
};

struct CacheEntry {
    bool used = false;
    CacheKey key;
    std::vector<float> factors;
    RopeAngles angles;
};

bool same_params(const npu_rope_params& a, const npu_rope_params& b) {
    return a.n_dims == b.n_dims && a.mode == b.mode && a.n_ctx_orig == b.n_ctx_orig && a.freq_base == b.freq_base &&
           a.freq_scale == b.freq_scale && a.ext_factor == b.ext_factor && a.attn_factor == b.attn_factor &&
           a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow &&
           std::equal(a.sections, a.sections + 4, b.sections);
}

bool matches(const CacheEntry& e, const npu_rope_params& p, const float* factors, int64_t stride, int32_t policy) {
    if (!e.used || e.key.policy != policy || e.key.has_factors != (factors != nullptr) || !same_params(e.key.params, p))
        return false;
    for (size_t i = 0; factors && i < e.factors.size(); ++i)
        if (e.factors[i] != factors[static_cast<int64_t>(i) * stride]) return false;
    return true;
}

Check make_rope_angles(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                       RopeAngles* a) {
    *a = RopeAngles{};
    a->policy = policy;
    a->pairs = rope_pairs(p);
    a->rules = rope_pair_rules(p);
    a->mscale = rope_mscale(p);

    std::vector<long double> freq = rope_frequencies(p, freq_factors, factor_stride);
    if (Check c = check_rope_frequencies(freq); !c.ok()) return c;

    int padded = (a->pairs + kAnglePad - 1) / kAnglePad * kAnglePad;
    a->turns_hi.assign(padded, 0.0);
    a->turns_lo.assign(padded, 0.0);
    bool f32 = policy == NPU_ROPE_ANGLE_F32;
    for (int i = 0; i < a->pairs; ++i)
        split_turns(f32 ? 1.0L / kTwoPi : freq[i] / kTwoPi, &a->turns_hi[i], &a->turns_lo[i]);
    if (f32) {
        a->freq_f32.assign(padded, 0.0f);
        for (int i = 0; i < a->pairs; ++i) a->freq_f32[i] = static_cast<float>(static_cast<double>(freq[i]));
    }
    if (policy == NPU_ROPE_ANGLE_GGML) fill_ggml_constants(p, freq_factors, factor_stride, a);
    return {};
}

}  // namespace

Check cached_rope_angles(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                         const RopeAngles** angles) {
    constexpr int kEntries = 8;
    thread_local CacheEntry entries[kEntries];
    thread_local int oldest = 0;
    for (auto& e : entries)
        if (matches(e, p, freq_factors, factor_stride, policy)) {
            *angles = &e.angles;
            return {};
        }
    CacheEntry& e = entries[oldest];
    oldest = (oldest + 1) % kEntries;
    e.used = false;
    if (Check c = make_rope_angles(p, freq_factors, factor_stride, policy, &e.angles); !c.ok()) return c;
    e.key = {p, policy, freq_factors != nullptr};
    e.factors.clear();
    for (int i = 0; freq_factors && i < rope_pairs(p); ++i) e.factors.push_back(freq_factors[i * factor_stride]);
    e.used = true;
    *angles = &e.angles;
    return {};
}

void ggml_cos_sin(const RopeAngles& a, const int64_t* positions, float* cos_table, float* sin_table) {
    float base[kRopeAxes], theta[kRopeAxes];
    for (int k = 0; k < kRopeAxes; ++k) theta[k] = base[k] = static_cast<float>(positions[k]);
    for (int i = 0; i < a.pairs; ++i) {
        const RopePairRule& rule = a.rules[i];
        if (rule.restarts >= 0) theta[rule.restarts] = base[rule.restarts];
        float extrapolated = theta[rule.axis] / a.freq_factors[i];
        float angle = a.freq_scale * extrapolated;
        if (a.ext_factor != 0) {
            float mix = rope_ramp(a.corr_low, a.corr_high, i) * a.ext_factor;
            angle = angle * (1 - mix) + extrapolated * mix;
        }
        cos_table[i] = cosf(angle) * a.mscale_f32;
        sin_table[i] = sinf(angle) * a.mscale_f32;
        for (float& t : theta) t *= a.theta_scale;
    }
}

}  // namespace npu_rope
