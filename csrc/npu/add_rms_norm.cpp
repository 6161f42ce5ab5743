// add_rms_norm for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/add_rms_norm.py; the functions here call the kernel.
#include <tuple>

#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given_x, const at::Tensor& given_residual, const at::Tensor& given_scale,
            const RmsNormAttributes& a, const at::Tensor& given_out, const at::Tensor& given_sum) {
    const NormCall norm("add_rms_norm", given_x, given_scale, a);
    const at::Tensor x = norm.read("x", given_x), residual = norm.read("residual", given_residual);
    const at::Tensor scale = norm.scale(), out = norm.written("out", given_out), sum = norm.written("sum", given_sum);
    LaunchTensors tensors("add_rms_norm",
                          {{"x", &x}, {"residual", &residual}, {"scale", &scale}, {"out", &out}, {"sum", &sum}});
    const RmsNormAttributes& attributes = norm.attributes();
    const bool has_elements = check_rms_norm_call(
        add_rms_norm_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(3), tensors.view(4)),
        attributes);
    if (!has_elements) return;
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuAddRmsNorm, x, residual, scale, attributes.axis, attributes.epsilon, attributes.stash_type,
                    strides, out, sum);
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
