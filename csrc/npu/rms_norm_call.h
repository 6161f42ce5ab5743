// What the launches of rms_norm and add_rms_norm on NPU tensors share.
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

private:
    bool is_joined() const { return sizes_.size() > NPU_ROPE_MAX_NDIM; }

    std::vector<int64_t> sizes_;  // x's own
    int64_t first_;               // the first normalized one of them
};

// Raises ValueError or TypeError for what the chip does not take of a call that its rules accept; false where there
// is nothing to launch.
bool accepts_rms_norm(const RmsNormTilingInput& in);

}  // namespace npu_rope
