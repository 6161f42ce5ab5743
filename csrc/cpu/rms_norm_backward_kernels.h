// The kernels of rms_norm_backward for one instruction set. rms_norm_backward_kernels.cpp is compiled once per
// instruction set, and each compile fills one RmsNormBackwardKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// A block of at most kSumBlock columns of some rows of rms_norm_backward, which share a scale. x and scale are float32
// or narrower, and the stash type is float32. N and g are those of rms_norm_backward.cpp's formula; all arithmetic is
// in double.
struct GradientRow {
    const void* x;
    const void* grad;  // of scale's type
    void* dx;          // of x's type
    double inverse;    // of the root mean square
    double mean;       // of g N over the row
};

// The rows that a kernel differentiates at a time. It then loads the scale and the sums once for all of them.
constexpr int kGradientRows = 4;

struct GradientBlock {
    const void* scale;
    int64_t count;
    double* sums;  // of dscale's terms, to which the block's are added row by row; NULL: not needed
    int rows;      // 1 or kGradientRows
    GradientRow row[kGradientRows];
};

// The sums of x^2 and of g x over a block of a row, in double and in dot's order.
struct RowSums {
    double squares, products;
};

// Arrays of functions are indexed by npu_rope_dtype: float32, float16 and bfloat16.
struct RmsNormBackwardKernels {
    // By x's type, then scale's: sums a block of a row; writes dx, and adds to the sums of dscale.
    RowSums (*sum_block[3][3])(const void* x, const void* grad, const void* scale, int64_t count);
    void (*differentiate[3][3])(const GradientBlock&);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormBackwardKernels, rms_norm_backward_kernels)

}  // namespace npu_rope
