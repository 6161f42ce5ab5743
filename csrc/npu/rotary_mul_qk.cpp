// rotary_mul_qk for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; the functions here call the kernel.
#include "csrc/npu/package.h"
#include "csrc/npu/rotary_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given_q, const at::Tensor& given_k, const TorchTables& t, const RotaryCall& rotary,
            const at::Tensor& q_out, const at::Tensor& k_out) {
    const c10::OptionalDeviceGuard guard(given_q.device());
    RotaryShape shape;
    const std::vector<LaunchTensor> all = {{"q", &given_q}, {"k", &given_k},   {"cos", &t.cos},
                                           {"sin", &t.sin}, {"q_out", &q_out}, {"k_out", &k_out}};
    if (!accepts_rotary(rotary_mul_qk_tensors(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), all, rotary,
                        &shape))
        return;
    // aclnn takes no tensor without elements.
    if (given_q.numel() == 0) return launch_rotary_mul(given_k, t.cos, t.sin, std::nullopt, rotary, k_out);
    if (given_k.numel() == 0) return launch_rotary_mul(given_q, t.cos, t.sin, std::nullopt, rotary, q_out);
    const at::Tensor q = readable(given_q, q_out), k = readable(given_k, k_out);
    const at::Tensor cos = readable(t.cos, q_out), sin = readable(t.sin, q_out);
    const std::vector<int64_t> all_strides =
        strides_of({{"q", &q}, {"k", &k}, {"cos", &cos}, {"sin", &sin}, {"q_out", &q_out}, {"k_out", &k_out}});
    at::IntArrayRef strides(all_strides);
    bool interleaved = rotary.attributes.interleaved, forward = rotary.forward;
    int64_t rotary_dim = rotary.attributes.rotary_dim, offset = rotary.attributes.offset;
    NPU_ROPE_LAUNCH(aclnnNpuRotaryMulQk, q, k, cos, sin, interleaved, rotary_dim, offset, forward, strides, q_out,
                    k_out);
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
