// The kernels of rms_norm_rope for one instruction set. rms_norm_rope_kernels.cpp is compiled once per instruction set,
// and each compile fills one RmsNormRopeKernels.
#pragma once

#include "csrc/cpu/isa.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {

// A head that is normalized, scaled and rotated in float32, and rounded once: y = rotate(x * inverse * scale). x, scale
// and y have one type and point at the head's rotated window; y may be x.
struct NormRopeJob {
    const void* x;
    const void* scale;
    void* y;
    float inverse;                            // of the root mean square
    int64_t elements_before, elements_after;  // before and after the window; normalized and scaled only
    int pairs;
    const float *cos_table, *sin_table;
    bool stream;  // store past the caches, under the conditions of HeadsJob
};

struct RmsNormRopeKernels {
    // [pairing][npu_rope_dtype]; null for float32. The tables have the order RopeKernels::order[pairing][dtype].
    void (*rotate[kPairings][3])(const NormRopeJob&);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormRopeKernels, rms_norm_rope_kernels)

}  // namespace npu_rope
