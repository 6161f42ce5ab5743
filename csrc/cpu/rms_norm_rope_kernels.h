// The kernels of rms_norm_rope for one instruction set, which qkv_norm_rope_cache uses as well.
// rms_norm_rope_kernels.cpp is compiled once per instruction set, and each compile fills one RmsNormRopeKernels.
#pragma once

#include "csrc/cpu/isa.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {

// Heads of one token that are normalized, scaled and rotated in float32, and rounded once:
// y = rotate(x * inverse * scale). Strides are in elements. x, scale and y point at the rotated window of head 0; y may
// be x.
struct NormRopeJob {
    const void* x;
    void* y;
    int64_t x_stride, y_stride;
    int64_t heads;
    const float* inverses;  // of each head's root mean square
    const float* scale;     // in the order of ordered_scale() (normalized_heads.h)
    // Elements before and after the window, which are normalized and scaled but not rotated.
    int64_t elements_before, elements_after;
    int pairs;
    const float *cos_table, *sin_table;
    int64_t prefetch_distance;  // in bytes, from a head to the head that is prefetched with it
    bool stream;                // store past the caches; HeadsJob (rope_kernels.h) gives the conditions
};

struct RmsNormRopeKernels {
    // Computes inverse root mean squares of heads from the sums of the squares of their n elements. Returns whether
    // fits_floats() is true for the mean squares plus epsilon of all of them. `heads` is a multiple of kRootPadding,
    // which is a multiple of the doubles of a vector.
    static constexpr int64_t kRootPadding = 8;
    bool (*invert_roots)(const double* sums, int64_t heads, double n, double epsilon, float* inverses);
    // Indexed by pairing and npu_rope_dtype. The tables of cos and sin have the order that RopeKernels::order has at
    // the same indices.
    void (*rotate[kPairings][3])(const NormRopeJob&);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormRopeKernels, rms_norm_rope_kernels)

}  // namespace npu_rope
