// rope_qk for NPU tensors, through torch_npu and aclnn. npu_rope/ops/rope_qk.py registers the schemas, fakes and
// gradients; the functions here call the kernel.
#include "csrc/npu/rope_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions, const OptionalTensor& factors,
            const Attributes& a, const at::Tensor& q_out, const at::Tensor& k_out) {
    LaunchTensors tensors("rope_qk", {{"q", &q, LaunchTensor::kUnitStride, &q_out},
                                      {"k", &k, LaunchTensor::kUnitStride, &k_out},
                                      {"positions", &positions},
                                      {"freq_factors", given(factors), LaunchTensor::kContiguous},
                                      {"q_out", &q_out},
                                      {"k_out", &k_out}});
    const bool has_elements = check_rope_call(rope_qk_tensors(tensors.view(0), tensors.view(1), tensors.view(2),
                                                              tensors.view(3), tensors.view(4), tensors.view(5)),
                                              a);
    if (!has_elements) return;
    // aclnn takes no tensor without elements.
    if (q.numel() == 0) return launch_rope(k, positions, factors, a, k_out);
    if (k.numel() == 0) return launch_rope(q, positions, factors, a, q_out);
    tensors.copy_inputs();
    const at::IntArrayRef sections(a.sections), strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRopeQk, tensors[0], tensors[1], tensors[2], tensors.optional(3),
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), tensors[4], tensors[5]);
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
