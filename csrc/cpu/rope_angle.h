// Convert rope's attributes to the constants from which a token's cos/sin table is computed, for each angle policy.
// Formulas: specs/ggml_rope_acltensor.txt sections 1, 2 and 5.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/rope_frequency.h"
#include "include/npu_rope.h"

namespace npu_rope {

// turns_hi + turns_lo is a pair's frequency in turns per position; under policy f32, the turns of a radian. turns_hi
// has 22 significant bits, so that its product with any int32 position or float32 angle is exact in a double.
struct RopeAngles {
    int32_t policy = NPU_ROPE_ANGLE_EXACT;
    int pairs = 0;
    std::vector<RopePairRule> rules;  // of every pair
    double mscale = 1;                // rope_mscale()

    std::vector<double> turns_hi, turns_lo;  // padded with zeros to a multiple of kAnglePad
    std::vector<float> freq_f32;             // policy f32: radians per position

    // policy ggml: its float32 constants
    float theta_scale = 1, freq_scale = 1, ext_factor = 0, mscale_f32 = 1, corr_low = 0, corr_high = 0;
    std::vector<float> freq_factors;
};

constexpr int kAnglePad = 16;

// Returns the constants of these arguments from a cache of this thread's last few, because a model calls with one set
// of parameters thousands of times. The result is valid until the thread's next call. freq_factors may be NULL; its
// stride is factor_stride elements.
Check cached_rope_angles(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                         const RopeAngles** angles);

// Computes cos and sin of one token under policy ggml from its position on every axis, each multiplied by mscale:
// float32, in ggml's order of operations, with the C library's cosf and sinf.
void ggml_cos_sin(const RopeAngles& a, const int64_t* positions, float* cos_table, float* sin_table);

}  // namespace npu_rope
