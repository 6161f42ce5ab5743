// Shared parts of the launches of rms_norm, add_rms_norm and rms_norm_backward on NPU tensors.
#pragma once

#include <vector>

#include "csrc/npu/launch.h"
#include "op_host/rms_norm_tiling.h"

namespace npu_rope {

// "int axis, float epsilon, int stash_type", the last arguments of the schemas.
struct NormCall {
    RmsNormAttributes attributes;

    // Tensors of x's shape become [rows, n] if they have more dimensions than the checks take.
    explicit NormCall(const at::Tensor& x, const RmsNormAttributes& a);

    // An input of x's shape: unchanged, or a contiguous copy if a row's elements are not contiguous.
    at::Tensor read(const at::Tensor& t) const;
    // An output of x's shape, which cannot be a copy. op, name: of the error.
    at::Tensor written(const char* op, const char* name, const at::Tensor& t) const;
    at::Tensor scale(const at::Tensor& scale) const;
    // The scale for the backward kernel, which takes one element for each element of a row: expanded inside the row. A
    // scale that the rules or the kernel reject is returned unchanged.
    at::Tensor scale_of_row(const at::Tensor& scale) const;
    // The gradient of a scale, in its type, from the gradient of its scale_of_row().
    at::Tensor summed_as(const at::Tensor& scale, const at::Tensor& sums) const;

private:
    at::IntArrayRef row_sizes() const { return at::IntArrayRef(sizes_).slice(size_t(first_)); }
    bool is_of_each_row(const at::Tensor& scale) const;
    bool is_joined() const { return sizes_.size() > NPU_ROPE_MAX_NDIM; }

    std::vector<int64_t> sizes_;  // of x
    int64_t first_;               // index of the first normalized dimension
};

// Raises ValueError or TypeError for a broken rule; returns false if there is nothing to launch.
bool accepts_rms_norm(RmsNormTensors t, const RmsNormAttributes& a);

}  // namespace npu_rope
