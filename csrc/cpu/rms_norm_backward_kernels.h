// The kernels of rms_norm_backward for one instruction set. rms_norm_backward_kernels.cpp is compiled once per
// instruction set, and each compile fills one RmsNormBackwardKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"
#include "csrc/cpu/rms_norm_kernels.h"

namespace npu_rope {

// Columns of a row of rms_norm_backward. x and scale are float32 or narrower, and the stash type is float32. N and g
// are those of rms_norm_backward.cpp's formula. The kernels in double read x and grad as float32. The kernels in
// float32 read them in the 16-bit type that all tensors of the call have.
struct GradientRow {
    const void* x;
    const void* grad;
    void* dx;        // of x's type
    double inverse;  // of the root mean square
    double mean;     // of g N over the row
    // The same columns of a later row, in their own types, which are prefetched unless stores are plain. Any address is
    // valid.
    const char *x_ahead, *grad_ahead, *dx_ahead;
};

// Largest number of rows of a block, a multiple of the doubles of a vector. Their inverse roots are computed by
// vectors, because the root and the divisions of one row take longer than a vector's.
constexpr int kMaxGradientRows = 16;

// At most kSumBlock columns of rows that share a scale.
struct GradientBlock {
    const GradientRow* row;
    int rows;
    int64_t count;       // of columns
    const void* scale;   // of these columns: in double, for the kernels in float32 in float32
    double* sums;        // of dscale's terms, to which the block's are added; NULL: not needed
    int64_t grad_bytes;  // of an element of grad_ahead
};
using DifferentiateFn = void (*)(const GradientBlock&);

// The sums of x^2 and of g x of each row, in double and in dot's order.
struct RowSums {
    double squares[kMaxGradientRows], products[kMaxGradientRows];
};

struct RmsNormBackwardKernels {
    // Sums the columns of each row of a block.
    void (*sum_rows)(const GradientBlock&, RowSums*);
    // Computes `inverse` and `mean` of rows of n elements from the sums of all their columns.
    void (*set_factors)(const RowSums&, int64_t n, double epsilon, GradientRow*, int rows);
    // Write dx, and add to the sums. Indexed by x's type (float32, float16 or bfloat16), dx's StoreMode, and whether
    // the block has sums. With kStreamed, each row's dx is as NormalizeJob::storing requires.
    const DifferentiateFn (*differentiate[3])[2];
    // differentiate and sum_rows with arithmetic in float32, for calls whose tensors are all float16 (1) or all
    // bfloat16 (2). A group of squares or products is added in float32, and the groups in double.
    const DifferentiateFn (*differentiate_in_floats[3])[2];
    void (*sum_rows_in_floats[3])(const GradientBlock&, RowSums*);
    // Converts float16 (1) or bfloat16 (2) to float32.
    void (*widen[3])(const void* from, float* to, int64_t count);
};

NPU_ROPE_DECLARE_KERNELS(RmsNormBackwardKernels, rms_norm_backward_kernels)

}  // namespace npu_rope
