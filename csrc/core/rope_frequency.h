// Compute rope's frequencies from its parameters, with scaling and YaRN, for all native code. Formulas:
// specs/ggml_rope_acltensor.txt sections 1, 2 and 5.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "include/npu_rope.h"

namespace npu_rope {

// The type of frequencies: 113 significant bits, on x86 and aarch64 Linux, so that both compute the same bits. x86's
// long double has 64 bits, aarch64's has 113. Other machines compute in their long double.
#if LDBL_MANT_DIG == 64 && defined(__SIZEOF_FLOAT128__)
using Quad = __float128;
#else
using Quad = long double;
#endif
constexpr bool kQuadHas113Bits = LDBL_MANT_DIG == 113 || !std::is_same<Quad, long double>::value;

// 2 pi, as the sum of three doubles.
constexpr Quad kTwoPi = Quad(0x1.921fb54442d18p+2) + Quad(0x1.1a62633145c07p-52) - Quad(0x1.f1976b7ed8fbcp-108);

// Number of axes. In modes with sections a token has four positions (time, height, width, extra), and sections assign
// an axis to each pair.
constexpr int kRopeAxes = std::extent_v<decltype(npu_rope_params::sections)>;
inline bool rope_has_sections(int32_t mode) { return (mode & NPU_ROPE_MODE_MROPE) != 0; }

// Number of rotated pairs of a head.
inline int32_t rope_pairs(const npu_rope_params& p) { return p.mode == NPU_ROPE_MODE_VISION ? p.n_dims : p.n_dims / 2; }

// Without freq_factors and scaling, a pair's angle is its position on `axis` times theta_scale^power, where theta_scale
// is freq_base^(-2/n_dims). Source: ggml_mrope_cache_init in the specification's CPU code; mode imrope follows the
// current ggml.
struct RopePairTerms {
    int32_t axis;
    int32_t power;
    int32_t restarted_axis;  // mode vision: the axis whose powers restart at 0 at this pair, or -1
};
std::vector<RopePairTerms> rope_pair_terms(const npu_rope_params& p);

// Radians per position of every pair. freq_factors may be NULL. factor_stride: its stride in elements.
std::vector<Quad> rope_frequencies(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride);

// The factor of cos and sin: attn_factor times YaRN's correction.
double rope_mscale(const npu_rope_params& p);

// Finds the first and the last pair of YaRN's ramp, in the precision of T (ggml_rope_yarn_corr_dims in ggml).
template <typename T>
void find_yarn_ramp(const npu_rope_params& p, T* low, T* high) {
    T n_dims = static_cast<T>(p.n_dims), context = static_cast<T>(p.n_ctx_orig), base = static_cast<T>(p.freq_base);
    auto pair_with = [&](T rotations) {  // the pair that makes this number of rotations over the context
        return n_dims * std::log(context / (rotations * 2 * static_cast<T>(M_PI))) / (2 * std::log(base));
    };
    *low = std::max(T(0), std::floor(pair_with(static_cast<T>(p.beta_fast))));
    *high = std::min(n_dims - 1, std::ceil(pair_with(static_cast<T>(p.beta_slow))));
}

// Returns the weight of a pair's unscaled frequency in YaRN: 1 keeps the frequency, 0 multiplies it by freq_scale.
template <typename T>
T yarn_ramp(T low, T high, int pair) {
    T y = (static_cast<T>(pair) - low) / std::max(T(0.001), high - low);
    return 1 - std::min(T(1), std::max(T(0), y));
}

}  // namespace npu_rope
