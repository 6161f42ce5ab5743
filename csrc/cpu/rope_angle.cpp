// Compiled without floating-point contraction, because policy ggml rounds after every operation.
#include "csrc/cpu/rope_angle.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"

namespace npu_rope {
namespace {

// Splits turns into *hi with 22 significant bits, and the rest *lo.
void split_turns(Quad turns, double* hi, double* lo) {
    constexpr int kClearedBits = 53 - 22;  // a double has 53 significant bits
    double rounded = static_cast<double>(turns);
    uint64_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    bits &= ~((uint64_t{1} << kClearedBits) - 1);
    std::memcpy(hi, &bits, sizeof *hi);
    *lo = static_cast<double>(turns - *hi);
}

void fill_ggml_constants(const npu_rope_params& p, const float* factors, int64_t factor_stride,
                         AngleConstants* constants) {
    auto freq_base = static_cast<float>(p.freq_base);
    constants->theta_scale = powf(freq_base, -2.0f / static_cast<float>(p.n_dims));
    constants->freq_scale = static_cast<float>(p.freq_scale);
    constants->ext_factor = static_cast<float>(p.ext_factor);
    constants->mscale_f32 = static_cast<float>(p.attn_factor);
    if (p.ext_factor != 0) {
        find_yarn_ramp(p, &constants->ramp_low, &constants->ramp_high);
        constants->mscale_f32 *= 1.0f + 0.1f * logf(1.0f / constants->freq_scale);
    }
    constants->freq_factors.assign(constants->pairs, 1.0f);
    for (int i = 0; factors && i < constants->pairs; ++i) constants->freq_factors[i] = factors[i * factor_stride];
}

// The arguments from which constants were computed, except the values of freq_factors.
struct CacheKey {
    npu_rope_params params;
    int32_t policy;
    bool has_factors;
};

struct CacheEntry {
    bool is_filled = false;
    CacheKey key;
    std::vector<float> factors;
    AngleConstants constants;
};

bool is_same(const npu_rope_params& a, const npu_rope_params& b) {
    return a.n_dims == b.n_dims && a.mode == b.mode && a.n_ctx_orig == b.n_ctx_orig && a.freq_base == b.freq_base &&
           a.freq_scale == b.freq_scale && a.ext_factor == b.ext_factor && a.attn_factor == b.attn_factor &&
           std::signbit(a.attn_factor) == std::signbit(b.attn_factor) && a.beta_fast == b.beta_fast &&
           a.beta_slow == b.beta_slow && std::equal(a.sections, a.sections + 4, b.sections);
}

bool matches(const CacheEntry& entry, const npu_rope_params& p, const float* factors, int64_t stride, int32_t policy) {
    if (!entry.is_filled || entry.key.policy != policy || entry.key.has_factors != (factors != nullptr) ||
        !is_same(entry.key.params, p))
        return false;
    for (size_t i = 0; factors && i < entry.factors.size(); ++i)
        if (entry.factors[i] != factors[static_cast<int64_t>(i) * stride]) return false;
    return true;
}

Check make_angle_constants(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                           AngleConstants* constants) {
    *constants = AngleConstants{};
    constants->policy = policy;
    constants->pairs = rope_pairs(p);
    constants->pair_terms = rope_pair_terms(p);
    constants->mscale = rope_mscale(p);

    std::vector<Quad> frequencies = rope_frequencies(p, freq_factors, factor_stride);
    if (Check c = check_rope_frequencies(frequencies); !c.ok()) return c;

    int padded = (constants->pairs + kPairPadding - 1) / kPairPadding * kPairPadding;
    constants->turns_hi.assign(padded, 0.0);
    constants->turns_lo.assign(padded, 0.0);
    bool is_f32 = policy == NPU_ROPE_ANGLE_F32;
    for (int i = 0; i < constants->pairs; ++i)
        split_turns(is_f32 ? 1 / kTwoPi : frequencies[i] / kTwoPi, &constants->turns_hi[i], &constants->turns_lo[i]);
    if (is_f32) {
        constants->freq_f32.assign(padded, 0.0f);
        for (int i = 0; i < constants->pairs; ++i)
            constants->freq_f32[i] = static_cast<float>(static_cast<double>(frequencies[i]));
    }
    if (policy == NPU_ROPE_ANGLE_GGML) fill_ggml_constants(p, freq_factors, factor_stride, constants);
    return {};
}

}  // namespace

Check cached_angle_constants(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                             UsedConstants* used) {
    constexpr int kEntries = 8;
    thread_local CacheEntry entries[kEntries];
    thread_local int oldest = 0;
    for (CacheEntry& entry : entries)
        if (matches(entry, p, freq_factors, factor_stride, policy)) {
            used->use(&entry.constants);
            return {};
        }
    CacheEntry& entry = entries[oldest];
    oldest = (oldest + 1) % kEntries;
    if (entry.constants.calls > 0) {
        auto constants = std::make_unique<AngleConstants>();
        Check c = make_angle_constants(p, freq_factors, factor_stride, policy, constants.get());
        if (c.ok()) used->own(std::move(constants));
        return c;
    }
    entry.is_filled = false;
    if (Check c = make_angle_constants(p, freq_factors, factor_stride, policy, &entry.constants); !c.ok()) return c;
    entry.key = {p, policy, freq_factors != nullptr};
    entry.factors.clear();
    for (int i = 0; freq_factors && i < rope_pairs(p); ++i) entry.factors.push_back(freq_factors[i * factor_stride]);
    entry.is_filled = true;
    used->use(&entry.constants);
    return {};
}

TokenTables* KeptTables::of(int64_t tokens, int pairs) {
    if (tokens <= static_cast<int64_t>(tokens_.size())) return tokens_.data();
    const int64_t floats = table_floats(pairs), bytes_of_token = 4 * floats * int64_t{sizeof(float)};
    if (tokens > kMostBytes / bytes_of_token) return nullptr;
    tokens_.clear();
    memory_.assign(static_cast<size_t>(tokens * bytes_of_token) / sizeof(CacheLine), {});
    tokens_.resize(static_cast<size_t>(tokens));
    float* at = memory_.data()->floats;
    for (TokenTables& tables : tokens_)
        for (float** table : {&tables.natural_cos, &tables.natural_sin, &tables.ordered_cos, &tables.ordered_sin})
            *table = at, at += floats;
    return tokens_.data();
}

void ggml_cos_sin(const AngleConstants& constants, const int64_t* positions, float* cos_table, float* sin_table) {
    // theta, as ggml names it, is the position times a power of theta_scale.
    float position[kRopeAxes], theta[kRopeAxes];
    for (int k = 0; k < kRopeAxes; ++k) theta[k] = position[k] = static_cast<float>(positions[k]);
    for (int i = 0; i < constants.pairs; ++i) {
        const RopePairTerms& pair = constants.pair_terms[i];
        if (pair.restarted_axis >= 0) theta[pair.restarted_axis] = position[pair.restarted_axis];
        float extrapolated = theta[pair.axis] / constants.freq_factors[i];
        float angle = constants.freq_scale * extrapolated;
        if (constants.ext_factor != 0) {
            float mix = yarn_ramp(constants.ramp_low, constants.ramp_high, i) * constants.ext_factor;
            angle = angle * (1 - mix) + extrapolated * mix;
        }
        cos_table[i] = cosf(angle) * constants.mscale_f32;
        sin_table[i] = sinf(angle) * constants.mscale_f32;
        for (float& t : theta) t *= constants.theta_scale;
    }
}

}  // namespace npu_rope
