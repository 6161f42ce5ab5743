// The kernels of rms_norm_rope for one instruction set. rms_norm_rope_kernels.cpp is compiled once per instruction set,
// and each compile fills one RmsNormRopeKernels.
#pragma once

#include "csrc/cpu/isa.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {

// A head that is normalized, scaled and rotated in float32, and rounded once: y = rotate(x * inverse * scale). x, scale
// and y have the same type and point at the head's rotated window; y may be x.
struct NormRopeJob {
    const void* x;
    const void* scale;
    void* y;
    float inverse;  // of the root mean square
    // Elements before and after the window, which are normalized and scaled but not rotated.
    int64_t elements_before, elements_after;
    int pairs;
    const float *cos_table, *sin_table;
    bool stream;  // store past the caches; HeadsJob (rope_kernels.h) gives the conditions
};

struct RmsNormRopeKernels {
    // Indexed by pairing and npu_rope_dtype; NULL for float32. The tables of cos and sin have the order that
    // RopeKernels::order has at the same indices.
    void (*rotate[kPairings][3])(const NormRopeJob&);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormRopeKernels, rms_norm_rope_kernels)

}  // namespace npu_rope
