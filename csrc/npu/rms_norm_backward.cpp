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
    const npu_rope_tensor of_grad = view_for_launch(grad, false, 0), of_x = view_for_launch(x, false, 1);
    const npu_rope_tensor of_scale = view_for_launch(scale, false, 2), of_dx = view_for_launch(dx, false, 3);
    const npu_rope_tensor of_sums = view_for_launch(sums, false, 4);
    RmsNormTilingInput in;
    in.op = "rms_norm_backward";
    in.backward = true;
    raise_on(check_rms_norm_backward_sums({&of_grad, &of_x, &of_scale, &of_dx, &of_sums, Known::kAddresses},
                                          norm.attributes, &in.shape));
    in.dtype = of_x.dtype;
    in.scale_dtype = of_scale.dtype;
    if (!accepts_rms_norm(in)) return;
    const std::vector<int64_t> all_strides =
        strides_of({{"grad", &grad}, {"x", &x}, {"scale", &scale}, {"dscale", &sums}, {"dx", &dx}});
    at::IntArrayRef strides(all_strides);
    int64_t axis = norm.attributes.axis, stash_type = norm.attributes.stash_type;
    double epsilon = norm.attributes.epsilon;
    NPU_ROPE_LAUNCH(aclnnNpuRmsNormBackward, grad, x, scale, sums, axis, epsilon, stash_type, strides, dx);
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& scale, int64_t axis, double epsilon,
                                                     int64_t stash_type) {
    const c10::OptionalDeviceGuard guard(x.device());
    check_devices("rms_norm_backward", {{"grad", &grad}, {"x", &x}, {"scale", &scale}});
    const NormCall norm(x, {axis, epsilon, stash_type});
    const at::Tensor of_row = norm.scale_of_row(scale);
    at::Tensor dx = at::empty(x.sizes(), x.options());
    const at::Tensor sums = at::zeros(of_row.sizes(), of_row.options().dtype(at::kFloat));
    launch(norm, norm.read(grad), norm.read(x), of_row, norm.written(dx), sums);
    return {dx, norm.summed_as(scale, sums)};
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) { m.impl("rms_norm_backward", &rms_norm_backward); }
