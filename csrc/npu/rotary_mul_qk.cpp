// rotary_mul_qk for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; the functions here call the kernel.
#include "csrc/npu/package.h"
#include "csrc/npu/rotary_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& q, const at::Tensor& k, const TorchTables& tables, const RotaryCall& rotary,
            const at::Tensor& q_out, const at::Tensor& k_out) {
    LaunchTensors tensors("rotary_mul_qk", {{"q", &q, LaunchTensor::kUnitStride, &q_out},
                                            {"k", &k, LaunchTensor::kUnitStride, &k_out},
                                            {"cos", &tables.cos, LaunchTensor::kUnitStride, &q_out},
                                            {"sin", &tables.sin, LaunchTensor::kUnitStride, &q_out},
                                            {"q_out", &q_out},
                                            {"k_out", &k_out}});
    RotaryShape shape;
    const bool has_elements =
        check_rotary_call(rotary_mul_qk_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(3),
                                                tensors.view(4), tensors.view(5)),
                          rotary, &shape);
    if (!has_elements) return;
    // aclnn takes no tensor without elements.
    if (q.numel() == 0) return launch_rotary_mul(k, tables, std::nullopt, rotary, k_out);
    if (k.numel() == 0) return launch_rotary_mul(q, tables, std::nullopt, rotary, q_out);
    tensors.copy_inputs();
    const at::IntArrayRef strides = tensors.strides();
    const RotaryAttributes& a = rotary.attributes;
    NPU_ROPE_LAUNCH(aclnnNpuRotaryMulQk, tensors[0], tensors[1], tensors[2], tensors[3], a.interleaved, a.rotary_dim,
                    a.offset, rotary.forward, strides, tensors[4], tensors[5]);
}

std::tuple<at::Tensor, at::Tensor> rotary_mul_qk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                                 const at::Tensor& sin, bool interleaved, int64_t rotary_dim,
                                                 int64_t offset, bool forward) {
    at::Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
    launch(q, k, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, q_out, k_out);
    return {q_out, k_out};
}

void rotary_mul_qk_inplace(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin,
                           bool interleaved, int64_t rotary_dim, int64_t offset, bool forward) {
    launch(q, k, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, q, k);
}

void rotary_mul_qk_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin,
                       const at::Tensor& q_out, const at::Tensor& k_out, bool interleaved, int64_t rotary_dim,
                       int64_t offset, bool forward) {
    launch(q, k, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, q_out, k_out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rotary_mul_qk", &rotary_mul_qk);
    m.impl("rotary_mul_qk_", &rotary_mul_qk_inplace);
    m.impl("rotary_mul_qk_out", &rotary_mul_qk_out);
}
