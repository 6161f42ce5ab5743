// rms_norm_backward for NPU tensors, through torch_npu and aclnn. The schema and fake are in npu_rope/ops/rms_norm.py;
// the function here calls the kernel. torch_npu expands a scale that broadcasts inside a row, and sums its gradient.
#include <tuple>

#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace {

using namespace npu_rope;

// sums: zeros, to which the kernel adds.
void launch(const NormCall& norm, const at::Tensor& grad, const at::Tensor& x, const at::Tensor& scale,
            const at::Tensor& dx, const at::Tensor& sums) {
    LaunchTensors tensors("rms_norm_backward",
                          {{"grad", &grad}, {"x", &x}, {"scale", &scale}, {"dscale", &sums}, {"dx", &dx}});
    const RmsNormAttributes& of = norm.attributes;
    if (!accepts_rms_norm(rms_norm_backward_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(4),
                                                    tensors.view(3), /*sums_dscale=*/true),
                          of))
        return;
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRmsNormBackward, grad, x, scale, sums, of.axis, of.epsilon, of.stash_type, strides, dx);
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& scale, int64_t axis, double epsilon,
                                                     int64_t stash_type) {
    const NormCall norm(x, {axis, epsilon, stash_type});
    const at::Tensor of_row = norm.scale_of_row(scale);
    at::Tensor dx = at::empty(x.sizes(), x.options());
    const at::Tensor sums = at::zeros(of_row.sizes(), of_row.options().dtype(at::kFloat));
    launch(norm, norm.read(grad), norm.read(x), of_row, norm.written("rms_norm_backward", "dx", dx), sums);
    return {dx, norm.summed_as(scale, sums)};
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) { m.impl("rms_norm_backward", &rms_norm_backward); }
