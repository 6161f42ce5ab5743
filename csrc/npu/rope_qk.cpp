// rope_qk for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rope_qk.py; the functions here call the kernel.
#include "csrc/npu/rope_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given_q, const at::Tensor& given_k, const at::Tensor& positions,
            const OptionalTensor& given_factors, const Attributes& a, const at::Tensor& q_out,
            const at::Tensor& k_out) {
    const c10::OptionalDeviceGuard guard(given_q.device());
    if (!RopeLaunchCheck::rope_qk(given_q, given_k, positions, given_factors, q_out, k_out).accepts(a)) return;
    // aclnn takes no tensor without elements.
    if (given_q.numel() == 0) return launch_rope(given_k, positions, given_factors, a, k_out);
    if (given_k.numel() == 0) return launch_rope(given_q, positions, given_factors, a, q_out);
    const at::Tensor q = readable(given_q, q_out), k = readable(given_k, k_out);
    const OptionalTensor factors = contiguous(given_factors);
    const std::vector<int64_t> all_strides = RopeLaunchCheck::rope_qk(q, k, positions, factors, q_out, k_out).strides();
    at::IntArrayRef sections(a.sections), strides(all_strides);
    NPU_ROPE_LAUNCH(aclnnNpuRopeQk, q, k, positions, factors, NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), q_out,
                    k_out);
}

std::tuple<at::Tensor, at::Tensor> rope_qk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                                           const OptionalTensor& freq_factors, NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    at::Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
    launch(q, k, positions, freq_factors, NPU_ROPE_ATTRIBUTES, q_out, k_out);
    return {q_out, k_out};
}

void rope_qk_inplace(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                     const OptionalTensor& freq_factors, NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    launch(q, k, positions, freq_factors, NPU_ROPE_ATTRIBUTES, q, k);
}

void rope_qk_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                 const OptionalTensor& freq_factors, NPU_ROPE_ATTRIBUTE_PARAMETERS, const at::Tensor& q_out,
                 const at::Tensor& k_out) {
    launch(q, k, positions, freq_factors, NPU_ROPE_ATTRIBUTES, q_out, k_out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rope_qk", &rope_qk);
    m.impl("rope_qk_", &rope_qk_inplace);
    m.impl("rope_qk_out", &rope_qk_out);
}
