// rope for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rope.py; the functions here call the kernels.
#include "csrc/npu/rope_call.h"

namespace npu_rope {

void launch_rope(const at::Tensor& given, const at::Tensor& positions, const OptionalTensor& given_factors,
                 const Attributes& a, const at::Tensor& out) {
    const c10::OptionalDeviceGuard guard(given.device());
    if (!RopeLaunchCheck::rope(given, positions, given_factors, out).accepts(a)) return;
    const at::Tensor x = readable(given, out);
    const OptionalTensor factors = contiguous(given_factors);
    const std::vector<int64_t> all_strides = RopeLaunchCheck::rope(x, positions, factors, out).strides();
    at::IntArrayRef sections(a.sections), strides(all_strides);
    NPU_ROPE_LAUNCH(aclnnNpuRope, x, positions, factors, NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), out);
}

}  // namespace npu_rope

namespace {

using namespace npu_rope;

at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& freq_factors,
                NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    at::Tensor out = at::empty(x.sizes(), x.options());
    launch_rope(x, positions, freq_factors, NPU_ROPE_ATTRIBUTES, out);
    return out;
}

void rope_inplace(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& freq_factors,
                  NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    launch_rope(x, positions, freq_factors, NPU_ROPE_ATTRIBUTES, x);
}

void rope_out(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& freq_factors,
              NPU_ROPE_ATTRIBUTE_PARAMETERS, const at::Tensor& out) {
    launch_rope(x, positions, freq_factors, NPU_ROPE_ATTRIBUTES, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rope", &rope);
    m.impl("rope_", &rope_inplace);
    m.impl("rope_out", &rope_out);
}
