// Convert rope's attributes to constants, from which a token's tables of cos and sin are computed for each angle
// policy. Formulas: specs/ggml_rope_acltensor.txt sections 1, 2 and 5.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/rope_frequency.h"
#include "include/npu_rope.h"

namespace npu_rope {

// turns_hi + turns_lo is the factor that gives turns. Under policy exact it multiplies a position: it is the pair's
// frequency / (2 pi). Under policy f32 it multiplies an angle in radians: it is 1 / (2 pi). turns_hi has 22 significant
// bits, so that its product with any int32 position or float32 angle is exact in a double.
struct AngleConstants {
    int32_t policy = NPU_ROPE_ANGLE_EXACT;
    int pairs = 0;
    std::vector<RopePairTerms> pair_terms;
    double mscale = 1;  // rope_mscale()

    std::vector<double> turns_hi, turns_lo;  // padded with zeros to a multiple of kPairPadding
    std::vector<float> freq_f32;             // policy f32: radians per position

    // policy ggml: its float32 constants
    float theta_scale = 1, freq_scale = 1, ext_factor = 0, mscale_f32 = 1, ramp_low = 0, ramp_high = 0;
    std::vector<float> freq_factors;
};

constexpr int kPairPadding = 16;

// Returns the constants of these arguments. Each thread caches the constants of its last calls, because a model calls
// with the same parameters thousands of times. The result is valid until the thread's next call. freq_factors may be
// NULL. Its stride is factor_stride elements.
Check cached_angle_constants(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                             const AngleConstants** constants);

// Computes cos and sin of one token under policy ggml from its position on every axis, and multiplies them by mscale.
// All operations are float32 in ggml's order, with the C library's cosf and sinf.
void ggml_cos_sin(const AngleConstants& constants, const int64_t* positions, float* cos_table, float* sin_table);

}  // namespace npu_rope
