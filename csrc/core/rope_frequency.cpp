#include "csrc/core/rope_frequency.h"

namespace npu_rope {
namespace {

// Returns the axis of a pair. sector: ggml's name for the pair's index modulo the sum of the sections.
int32_t axis_of(const npu_rope_params& p, int32_t sector) {
    const int32_t* s = p.sections;
    if (p.mode == NPU_ROPE_MODE_IMROPE) {
        int32_t axis = sector % 3;
        return sector < int64_t{3} * s[axis] ? axis : 3;
    }
    int64_t end = 0;
    for (int32_t axis = 0; axis < 3; ++axis)
        if (sector < (end += s[axis])) return axis;
    return 3;
}

// Returns the first axis whose section begins at this sector, or -1.
int32_t axis_that_begins(const npu_rope_params& p, int32_t sector) {
    int64_t begin = 0;
    for (int32_t axis = 0; axis < kRopeAxes; begin += p.sections[axis++])
        if (sector == begin) return axis;
    return -1;
}

// Returns x^n.
Quad power(Quad x, int32_t n) {
    Quad result = 1;
    for (; n > 0; n /= 2, x *= x)
        if (n % 2) result *= x;
    return result;
}

// Returns freq_base^(-2/n_dims). Each of Newton's steps doubles the number of correct bits, of which pow() gives
// about 52.
Quad theta_scale(const npu_rope_params& p) {
    Quad root = std::pow(p.freq_base, -2.0 / p.n_dims);
    for (int step = 0; step < 2; ++step) root *= 1 + (1 - power(root, p.n_dims) * p.freq_base * p.freq_base) / p.n_dims;
    return root;
}

// Returns freq_base^(-2 k / n_dims) for k from 0 to the largest power of a pair.
std::vector<Quad> unscaled_frequencies(const npu_rope_params& p, const std::vector<RopePairTerms>& pairs) {
    int32_t largest = 0;
    for (const RopePairTerms& pair : pairs) largest = std::max(largest, pair.power);
    std::vector<Quad> powers(static_cast<size_t>(largest) + 1, Quad(1));
    const Quad scale = kQuadHas113Bits ? theta_scale(p) : Quad(1);
    for (int32_t k = 1; k <= largest; ++k)
        powers[k] = kQuadHas113Bits ? powers[k - 1] * scale : Quad(powl(p.freq_base, -2.0L * k / p.n_dims));
    return powers;
}

}  // namespace

std::vector<RopePairTerms> rope_pair_terms(const npu_rope_params& p) {
    int32_t count = rope_pairs(p);
    std::vector<RopePairTerms> pairs(static_cast<size_t>(count));
    int64_t sector_count = 0;
    for (int32_t section : p.sections) sector_count += section;
    int32_t power[kRopeAxes] = {};
    for (int32_t i = 0; i < count; ++i) {
        if (!rope_has_sections(p.mode)) {
            pairs[i] = {0, i, -1};
            continue;
        }
        auto sector = static_cast<int32_t>(i % sector_count);
        int32_t axis = axis_of(p, sector);
        int32_t restarted_axis = p.mode == NPU_ROPE_MODE_VISION ? axis_that_begins(p, sector) : -1;
        if (restarted_axis >= 0) power[restarted_axis] = 0;
        pairs[i] = {axis, power[axis], restarted_axis};
        for (int32_t& next : power) ++next;
    }
    return pairs;
}

std::vector<Quad> rope_frequencies(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride) {
    double low = 0, high = 0;
    if (p.ext_factor != 0) find_yarn_ramp(p, &low, &high);
    std::vector<RopePairTerms> pairs = rope_pair_terms(p);
    std::vector<Quad> frequencies(pairs.size());
    const std::vector<Quad> unscaled_of = unscaled_frequencies(p, pairs);
    for (int i = 0; i < static_cast<int>(pairs.size()); ++i) {
        Quad unscaled = unscaled_of[pairs[i].power];
        if (freq_factors) unscaled /= freq_factors[i * factor_stride];
        Quad interpolated = unscaled * p.freq_scale;
        double mix = p.ext_factor != 0 ? yarn_ramp(low, high, i) * p.ext_factor : 0;
        frequencies[i] = mix != 0 ? interpolated * (Quad(1) - mix) + unscaled * mix : interpolated;
    }
    return frequencies;
}

double rope_mscale(const npu_rope_params& p) {
    double mscale = p.attn_factor;
    if (p.ext_factor != 0) mscale *= 1.0 + 0.1 * std::log(1.0 / p.freq_scale);
    return mscale;
}

}  // namespace npu_rope
