// Shared parts of the launches of rms_norm, add_rms_norm and rms_norm_backward on NPU tensors.
#pragma once

#include "csrc/core/rms_norm_dims.h"
#include "csrc/npu/launch.h"
#include "op_host/rms_norm_tiling.h"

namespace npu_rope {

// A call's tensors as the kernels read them. If x has more dimensions than the checks support, its dimensions are
// joined.
class NormCall {
public:
    // If dimensions are joined, raises an error for an axis or a scale that breaks its rule.
    NormCall(const char* op, const at::Tensor& x, const at::Tensor& scale, const RmsNormAttributes& a);

    // "int axis, float epsilon, int stash_type", the last arguments of the schemas.
    const RmsNormAttributes& attributes() const { return attributes_; }
    const at::Tensor& scale() const { return scale_; }
    // An input of x's shape: unchanged, or a contiguous copy if a row's elements are not contiguous.
    at::Tensor read(const char* name, const at::Tensor& t) const;
    // An output of x's shape, which cannot be a copy.
    at::Tensor written(const char* name, const at::Tensor& t) const;

private:
    bool is_joined() const { return x_.dim() > NPU_ROPE_MAX_NDIM; }

    const char* op_;
    const at::Tensor x_;
    at::Tensor scale_;
    RmsNormAttributes attributes_;
    JoinedDims joined_;
};

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
bool check_rms_norm_call(RmsNormTensors t, const RmsNormAttributes& a);

}  // namespace npu_rope
