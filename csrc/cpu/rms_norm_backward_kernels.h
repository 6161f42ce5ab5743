// The kernels of rms_norm_backward for one instruction set. rms_norm_backward_kernels.cpp is compiled once per
// instruction set, and each compile fills one RmsNormBackwardKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// A block of a row of rms_norm_backward, of at most kSumBlock elements. x and scale are float32 or narrower, and the
// stash type is float32. N and g are those of rms_norm.cpp's formula; all arithmetic is in double.
struct GradientJob {
    const void* x;
    const void* grad;  // of scale's type
    const void* scale;
    int64_t count;
    double inverse;  // of the root mean square
    double mean;     // of g N over the row
    void* dx;        // of x's type
    double* sums;    // of dscale's terms, to which the block's are added
};

// Arrays of functions are indexed by npu_rope_dtype: float32, float16 and bfloat16.
struct RmsNormBackwardKernels {
    // Sums the squares of a block in double, in dot's order.
    double (*sum_block_squares[3])(const void* x, int64_t count);
    // By x's type, then scale's: sums g N in dot's order; writes dx, and adds to the sums of dscale.
    double (*dot_gradient[3][3])(const GradientJob&);
    void (*differentiate[3][3])(const GradientJob&);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormBackwardKernels, rms_norm_backward_kernels)

}  // namespace npu_rope
