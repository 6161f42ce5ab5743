// Every rule of the arguments of rms_norm, rms_norm_backward and add_rms_norm, for all native paths.
// npu_rope/rms_norm_checks.py states the same rules with the same words for the Python paths; a test
// compares the two.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/tensor_rules.h"

namespace npu_rope {

// One call's tensors, as its caller gave them.
struct RmsNormTensors {
    const npu_rope_tensor* x;
    const npu_rope_tensor* scale;
    const npu_rope_tensor* out;
    Known known = Known::kValues;
};
struct RmsNormBackwardTensors {
    const npu_rope_tensor* grad;
    const npu_rope_tensor* x;
    const npu_rope_tensor* scale;
    const npu_rope_tensor* dx;
    const npu_rope_tensor* dscale;
    Known known = Known::kValues;
};

// sum = x + residual, out = rms_norm of sum.
struct AddRmsNormTensors {
    const npu_rope_tensor* x;
    const npu_rope_tensor* residual;
    const npu_rope_tensor* scale;
    const npu_rope_tensor* out;
    const npu_rope_tensor* sum;
    Known known = Known::kValues;
};

struct RmsNormAttributes {
    int64_t axis;
    double epsilon;
    int64_t stash_type;  // ONNX's number of a type
};

constexpr int kRmsNormOuter = NPU_ROPE_MAX_NDIM - 1;

// A checked call: rows of n elements that lie together, each normalized for itself. The rows count through
// the dimensions before axis; those, and the dimensions inside a row, stand at the end of their arrays behind
// as many of size 1 as there is room.
struct RmsNormShape {
    int64_t rows, n;
    int64_t outer[kRmsNormOuter];
    // By those dimensions, in elements.
    int64_t x_stride[kRmsNormOuter], scale_stride[kRmsNormOuter], out_stride[kRmsNormOuter];
    int64_t grad_stride[kRmsNormOuter];                                 // of the backward, whose out is dx
    int64_t residual_stride[kRmsNormOuter], sum_stride[kRmsNormOuter];  // of add_rms_norm
    bool scale_is_shared[kRmsNormOuter];                                // one scale for all of this dimension
    int64_t inner[NPU_ROPE_MAX_NDIM], scale_inner_stride[NPU_ROPE_MAX_NDIM];
    bool scale_inner_is_shared[NPU_ROPE_MAX_NDIM];
    bool scale_is_dense;  // its n elements of a row lie together, too
    int32_t stash_dtype;  // npu_rope_dtype
    double epsilon;       // rounded as the specification rounds it
};

// npu_rope_dtype of ONNX's number, or -1 where the operator does not allow it.
int32_t rms_norm_stash_dtype(int64_t stash_type);

// NULLs, attributes, shapes, dtypes, strides, overlap. Fills *shape, but for epsilon's second rounding, to the
// stash type, which is the computation's.
Check check_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape);
Check check_rms_norm_backward(const RmsNormBackwardTensors& t, const RmsNormAttributes& a, RmsNormShape* shape);
// The same of a kernel that adds up the scale's gradient in float32: dscale is that.
Check check_rms_norm_backward_sums(const RmsNormBackwardTensors& t, const RmsNormAttributes& a, RmsNormShape* shape);
Check check_add_rms_norm(const AddRmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape);

}  // namespace npu_rope
