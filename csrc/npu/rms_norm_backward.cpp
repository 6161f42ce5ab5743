// rms_norm_backward for NPU tensors, through torch_npu and aclnn. The schema and fake are in npu_rope/ops/rms_norm.py;
// the function here calls the kernel. Torch expands a scale that broadcasts inside a row, and sums its gradient.
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace {

using namespace npu_rope;

constexpr const char* kOp = "rms_norm_backward";

// The scale as the kernel takes it, with one element for each element of a row. A scale that differs among rows, or
// breaks a rule, is returned unchanged for the checks to reject.
at::Tensor scale_of_row(const at::Tensor& x, const at::Tensor& scale, int64_t axis) {
    const int64_t first = axis < 0 ? axis + x.dim() : axis;
    if (first < 0 || first >= x.dim()) return scale;
    std::vector<int64_t> row = x.sizes().vec();
    std::fill_n(row.begin(), first, 1);
    return at::is_expandable_to(scale.sizes(), row) ? scale.expand(row).contiguous() : scale;
}

// sums: zeros, to which the kernel adds dscale.
void launch(const NormCall& norm, const at::Tensor& grad, const at::Tensor& x, const at::Tensor& dx,
            const at::Tensor& sums) {
    const at::Tensor& scale = norm.scale();
    LaunchTensors tensors(kOp, {{"grad", &grad}, {"x", &x}, {"scale", &scale}, {"dscale", &sums}, {"dx", &dx}});
    const RmsNormAttributes& attributes = norm.attributes();
    const bool has_elements = check_rms_norm_call(
        rms_norm_backward_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(4), tensors.view(3),
                                  /*adds_to_float32_dscale=*/true),
        attributes);
    if (!has_elements) return;
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRmsNormBackward, grad, x, scale, sums, attributes.axis, attributes.epsilon,
                    attributes.stash_type, strides, dx);
}

// Returns dx and the sums of a row's scale. The kernel computes the sums in every call.
std::tuple<at::Tensor, at::Tensor> differentiate(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& row_scale, const RmsNormAttributes& attributes) {
    const NormCall norm(kOp, x, row_scale, attributes);
    const at::Tensor dx = at::empty(x.sizes(), x.options());
    const at::Tensor sums = at::zeros(norm.scale().sizes(), row_scale.options().dtype(at::kFloat));
    launch(norm, norm.read("grad", grad), norm.read("x", x), norm.written("dx", dx), sums);
    return {dx, sums};
}

at::Tensor rms_norm_backward_dx(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale, int64_t axis,
                                double epsilon, int64_t stash_type) {
    return std::get<0>(differentiate(grad, x, scale_of_row(x, scale, axis), {axis, epsilon, stash_type}));
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& scale, int64_t axis, double epsilon,
                                                     int64_t stash_type) {
    const at::Tensor row_scale = scale_of_row(x, scale, axis);
    const auto [dx, sums] = differentiate(grad, x, row_scale, {axis, epsilon, stash_type});
    const at::Tensor summed =
        sums.numel() == scale.numel() ? sums : sums.view(row_scale.sizes()).sum_to_size(scale.sizes());
    return {dx, summed.reshape(scale.sizes()).to(scale.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rms_norm_backward", &rms_norm_backward);
    m.impl("rms_norm_backward_dx", &rms_norm_backward_dx);
}
