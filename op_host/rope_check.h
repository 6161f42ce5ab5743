// Every rule of rope's arguments, for all native paths. npu_rope/checks.py states the same
// rules with the same words for the Python paths; a test compares the two.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"
#include "op_host/check.h"

namespace npu_rope {

// x's sizes; a [S,N,D] tensor has B = 1. Strides in elements.
struct RopeShape {
    int64_t B = 1, S = 0, N = 0, D = 0;
    int64_t x_stride[3] = {};    // B, S, N
    int64_t out_stride[3] = {};  // B, S, N
    int64_t pos_stride[2] = {};  // B, S
    bool in_place = false;
};

// Radians per position beyond which the fractional turn of a far position loses its accuracy.
constexpr double kMaxFrequency = 1e9;

Check check_rope_params(const npu_rope_params& p);

// Shapes, dtypes, strides, overlap, positions' and freq_factors' values. Fills *shape.
Check check_rope(const npu_rope_tensor& x, const npu_rope_tensor& positions, const npu_rope_tensor* freq_factors,
                 const npu_rope_params& p, int32_t angle, const npu_rope_tensor& out, RopeShape* shape);

// Frequencies (radians per position) after freq_factors.
Check check_rope_frequency(double largest, int64_t pair);

const char* mode_name(int32_t mode);

}  // namespace npu_rope
