// What the launches of rms_norm, add_rms_norm and rms_norm_backward on NPU tensors share.
#pragma once

#include <vector>

#include "csrc/npu/launch.h"
#include "op_host/rms_norm_tiling.h"

namespace npu_rope {

// "int axis, float epsilon, int stash_type", which come last in the schemas.
struct NormCall {
    RmsNormAttributes attributes;

    // Tensors of x's shape have one row, [rows, n], where they have more dimensions than the checks take.
    explicit NormCall(const at::Tensor& x, const RmsNormAttributes& a);

    // What is read of x's shape: as it is, or contiguous where a row's elements do not lie together.
    at::Tensor read(const at::Tensor& t) const;
    // What is written of it, which cannot be a copy.
    at::Tensor written(const at::Tensor& t) const;
    at::Tensor scale(const at::Tensor& scale) const;
    // The backward's, whose kernel takes one element for each of a row: expanded inside the row. One that the rules or
    // the kernel refuse comes as it is.
    at::Tensor scale_of_row(const at::Tensor& scale) const;
    // The gradient of a scale, in its type, from that of its scale_of_row().
    at::Tensor summed_as(const at::Tensor& scale, const at::Tensor& sums) const;

private:
    at::IntArrayRef row_sizes() const { return at::IntArrayRef(sizes_).slice(size_t(first_)); }
    bool is_of_each_row(const at::Tensor& scale) const;
    bool is_joined() const { return sizes_.size() > NPU_ROPE_MAX_NDIM; }

    std::vector<int64_t> sizes_;  // x's own
    int64_t first_;               // the first normalized one of them
};

// Raises ValueError or TypeError for what the chip does not take of a call that its rules accept; false where there
// is nothing to launch.
bool accepts_rms_norm(const RmsNormTilingInput& in);

}  // namespace npu_rope
