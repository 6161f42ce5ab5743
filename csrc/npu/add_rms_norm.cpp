// add_rms_norm for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/add_rms_norm.py; the functions here call the kernel.
#include <tuple>

#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given_x, const at::Tensor& given_residual, const at::Tensor& given_scale,
            const RmsNormAttributes& a, const at::Tensor& given_out, const at::Tensor& given_sum) {
    const c10::OptionalDeviceGuard guard(given_x.device());
    check_devices("add_rms_norm", {{"x", &given_x},
                                   {"residual", &given_residual},
                                   {"scale", &given_scale},
                                   {"out", &given_out},
                                   {"sum", &given_sum}});
    const NormCall norm(given_x, a);
    const at::Tensor x = norm.read(given_x), residual = norm.read(given_residual), scale = norm.scale(given_scale);
    const at::Tensor out = norm.written(given_out), sum = norm.written(given_sum);
    const npu_rope_tensor of_x = view_for_launch(x, false, 0), of_residual = view_for_launch(residual, false, 1);
    const npu_rope_tensor of_scale = view_for_launch(scale, false, 2), of_out = view_for_launch(out, false, 3);
    const npu_rope_tensor of_sum = view_for_launch(sum, false, 4);
    RmsNormTilingInput in;
    in.op = "add_rms_norm";
    in.adds = true;
    raise_on(check_add_rms_norm({&of_x, &of_residual, &of_scale, &of_out, &of_sum, Known::kAddresses}, norm.attributes,
                                &in.shape));
    in.dtype = of_x.dtype;
    in.scale_dtype = of_scale.dtype;
    if (!accepts_rms_norm(in)) return;
    const std::vector<int64_t> all_strides =
        strides_of({{"x", &x}, {"residual", &residual}, {"scale", &scale}, {"out", &out}, {"sum", &sum}});
    at::IntArrayRef strides(all_strides);
    int64_t axis = norm.attributes.axis, stash_type = norm.attributes.stash_type;
    double epsilon = norm.attributes.epsilon;
    NPU_ROPE_LAUNCH(aclnnNpuAddRmsNorm, x, residual, scale, axis, epsilon, stash_type, strides, out, sum);
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                                const at::Tensor& scale, int64_t axis, double epsilon,
                                                int64_t stash_type) {
    at::Tensor out = at::empty(x.sizes(), scale.options()), sum = at::empty(x.sizes(), x.options());
    launch(x, residual, scale, {axis, epsilon, stash_type}, out, sum);
    return {out, sum};
}

void add_rms_norm_out(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& scale, const at::Tensor& out,
                      const at::Tensor& sum, int64_t axis, double epsilon, int64_t stash_type) {
    launch(x, residual, scale, {axis, epsilon, stash_type}, out, sum);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("add_rms_norm", &add_rms_norm);
    m.impl("add_rms_norm_out", &add_rms_norm_out);
}
