// rotary_embedding for NPU tensors: a launch of rotary_mul's kernel on views of tensors in ONNX's layouts. The schemas,
// fakes and gradients are in npu_rope/ops/rotary.py.
#include "csrc/npu/rotary_call.h"

namespace {

using namespace npu_rope;

// The view [B,S,N,D] of [B,N,S,D], or of [B,S,N*D].
at::Tensor as_heads(const at::Tensor& x, int64_t num_heads) {
    return x.dim() == 4 ? x.transpose(1, 2) : x.unflatten(2, {num_heads, x.size(2) / num_heads});
}

void launch(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& ids,
            const RotaryCall& rotary, const at::Tensor& out) {
    LaunchTensors tensors("rotary_embedding", {{"X", &x, LaunchTensor::kUnitStride, &out},
                                               {"cos_cache", &cos, LaunchTensor::kUnitStride, &out},
                                               {"sin_cache", &sin, LaunchTensor::kUnitStride, &out},
                                               {"position_ids", given(ids)},
                                               {"Y", &out}});
    RotaryShape shape;
    const bool has_elements = check_rotary_call(
        rotary_embedding_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(3), tensors.view(4)),
        rotary, &shape);
    if (!has_elements) return;
    const int64_t heads = rotary.attributes.num_heads, width = shape.rotary_dim / 2;
    RotaryCall rotary_mul_call = rotary;
    rotary_mul_call.attributes.num_heads = 0;
    tensors.copy_inputs();
    const at::Tensor narrow_cos = tensors[1].narrow(-1, 0, width);
    const at::Tensor narrow_sin = tensors[2].narrow(-1, 0, width);
    launch_rotary_mul(as_heads(tensors[0], heads), {narrow_cos, narrow_sin}, ids, rotary_mul_call,
                      as_heads(out, heads));
}

at::Tensor rotary_embedding(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            const OptionalTensor& ids, bool interleaved, int64_t num_heads,
                            int64_t rotary_embedding_dim, bool forward) {
    at::Tensor out = at::empty(x.sizes(), x.options());
    launch(x, cos, sin, ids, {{interleaved, rotary_embedding_dim, 0, num_heads}, forward}, out);
    return out;
}

void rotary_embedding_out(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& ids,
                          const at::Tensor& out, bool interleaved, int64_t num_heads, int64_t rotary_embedding_dim,
                          bool forward) {
    launch(x, cos, sin, ids, {{interleaved, rotary_embedding_dim, 0, num_heads}, forward}, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rotary_embedding", &rotary_embedding);
    m.impl("rotary_embedding_out", &rotary_embedding_out);
}
