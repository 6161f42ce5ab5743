// The parameters of the norm of a row in the tiling data, for all operators that normalize.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "csrc/core/check.h"
#include "include/npu_rope.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {

// Rounds to `bits` significant bits, ties to even. The last bit is at least 2^min_exponent.
inline double rounded_to(double value, int bits, int min_exponent) {
    if (value == 0) return 0;
    int exponent = std::max(std::ilogb(value) + 1 - bits, min_exponent);
    return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

// Rejects an epsilon outside the stash type's range, or so large that epsilon times n may overflow float32.
inline Check check_device_epsilon(const char* op, double epsilon, int32_t stash_dtype) {
    if (stash_dtype == NPU_ROPE_FLOAT16 && epsilon > 65504)
        return bad_value(op, "epsilon", "be at most 65504, float16's largest number, on the device",
                         formatted("%g", epsilon));
    if (epsilon > 0x1p64) return bad_value(op, "epsilon", "be at most 2^64 on the device", formatted("%g", epsilon));
    return {};
}

// Returns the parameters for a row of n elements, with epsilon rounded to the stash type. wide_range: the squares of
// the elements may leave the range of float32.
inline RowNormTiling row_norm_tiling(int64_t n, double epsilon, int32_t stash, bool wide_range) {
    if (stash == kStashFloat16) epsilon = rounded_to(epsilon, 11, -24);
    if (stash == kStashBfloat16) epsilon = rounded_to(epsilon, 8, -133);
    RowNormTiling t = {};
    t.n_epsilon = static_cast<float>(epsilon * static_cast<double>(n));
    t.root_n = static_cast<float>(std::sqrt(static_cast<double>(n)));
    t.epsilon_exponent = epsilon > 0 ? std::ilogb(std::sqrt(epsilon)) : -127;
    t.square_range = !wide_range ? kSquaresInRange : epsilon < 0x1p-100 ? kSquaresMayUnderflow : kSquaresMayOverflow;
    return t;
}

}  // namespace npu_rope
