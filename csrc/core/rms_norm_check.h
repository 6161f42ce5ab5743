// Check the arguments of rms_norm, rms_norm_rounded_last, rms_norm_backward and add_rms_norm by every rule, for all
// back ends.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/tensor_rules.h"
#include "include/npu_rope.h"

namespace npu_rope {

// The tensors of a call as the caller passes them. A tensor that the operator does not have is NULL.
struct RmsNormTensors {
    const char* op;
    const npu_rope_tensor* x;
    const npu_rope_tensor* scale;
    const npu_rope_tensor* out;             // dx in the backward
    const npu_rope_tensor *residual, *sum;  // of add_rms_norm: sum = x + residual, out = rms_norm of sum
    const npu_rope_tensor *grad, *dscale;   // of the backward
    bool adds = false, backward = false;    // the operator is add_rms_norm, or rms_norm_backward
    bool adds_to_float32_dscale = false;    // dscale is float32, and the kernel adds to the values in it
    Known known = Known::kValues;
    bool out_may_be_null = false;  // not allocated yet
    bool rounds_last = false;      // the operator is rms_norm_rounded_last
    const char* out_name() const { return backward ? "dx" : "out"; }
};

RmsNormTensors rms_norm_tensors(const npu_rope_tensor* x, const npu_rope_tensor* scale, const npu_rope_tensor* out);
RmsNormTensors rms_norm_rounded_last_tensors(const npu_rope_tensor* x, const npu_rope_tensor* scale,
                                             const npu_rope_tensor* out);
RmsNormTensors rms_norm_backward_tensors(const npu_rope_tensor* grad, const npu_rope_tensor* x,
                                         const npu_rope_tensor* scale, const npu_rope_tensor* dx,
                                         const npu_rope_tensor* dscale, bool adds_to_float32_dscale = false);
RmsNormTensors add_rms_norm_tensors(const npu_rope_tensor* x, const npu_rope_tensor* residual,
                                    const npu_rope_tensor* scale, const npu_rope_tensor* out,
                                    const npu_rope_tensor* sum);

struct RmsNormAttributes {
    int64_t axis;
    double epsilon;
    int64_t stash_type;       // a type by ONNX's number
    double scale_offset = 0;  // of rms_norm_rounded_last
};

constexpr int kMaxOuterDims = NPU_ROPE_MAX_NDIM - 1;

// The sizes of a checked call: rows of n contiguous elements, each normalized separately. The dimensions before axis
// (outer) number the rows, and the others (inner) are inside a row. A call with fewer dimensions uses the last entries
// of an array. The entries before them have size 1.
struct RmsNormShape {
    int64_t rows, n;
    int64_t outer[kMaxOuterDims];
    // Strides of the outer dimensions, in elements.
    int64_t x_stride[kMaxOuterDims], scale_stride[kMaxOuterDims], out_stride[kMaxOuterDims];
    int64_t grad_stride[kMaxOuterDims];                                 // of the backward, where out is dx
    int64_t residual_stride[kMaxOuterDims], sum_stride[kMaxOuterDims];  // of add_rms_norm
    bool scale_is_shared[kMaxOuterDims];                                // all rows along this dimension have one scale
    int64_t inner[NPU_ROPE_MAX_NDIM], scale_inner_stride[NPU_ROPE_MAX_NDIM];
    bool scale_inner_is_shared[NPU_ROPE_MAX_NDIM];
    bool scale_is_dense;  // the n elements of a row's scale are contiguous
    int32_t stash_dtype;  // npu_rope_dtype
    double epsilon;       // rounded to float32, not yet to the stash type
};

// Returns the npu_rope_dtype of ONNX's number of a type, or -1 for a type that the operator does not allow.
int32_t rms_norm_stash_dtype(int64_t stash_type);

// Checks NULLs, attributes, shapes, dtypes, strides and overlap, and fills *shape.
Check check_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape);

}  // namespace npu_rope
