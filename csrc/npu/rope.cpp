// rope for NPU tensors, through torch_npu and aclnn. npu_rope/ops/rope.py registers the schemas, fakes and
// gradients; the functions here call the kernel.
#include "csrc/npu/rope_call.h"

namespace npu_rope {

void launch_rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& factors, const Attributes& a,
                 const at::Tensor& out) {
    LaunchTensors tensors("rope", {{"x", &x, LaunchTensor::kUnitStride, &out},
                                   {"positions", &positions},
                                   {"freq_factors", given(factors), LaunchTensor::kContiguous},
                                   {"out", &out}});
    const bool has_elements =
        check_rope_call(rope_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(3)), a);
    if (!has_elements) return;
    tensors.copy_inputs();
    const at::IntArrayRef sections(a.sections), strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRope, tensors[0], tensors[1], tensors.optional(2),
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), tensors[3]);
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
