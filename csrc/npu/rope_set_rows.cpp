// rope_set_rows for NPU tensors, through torch_npu and aclnn. The schemas and fakes are in
// npu_rope/ops/rope_set_rows.py; the functions here call the kernel.
#include "csrc/npu/rope_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows, const at::Tensor& cache,
            const OptionalTensor& factors, const Attributes& a) {
    LaunchTensors tensors("rope_set_rows", {{"x", &x, LaunchTensor::kUnitStride, &cache},
                                            {"positions", &positions},
                                            {"rows", &rows, LaunchTensor::kInt64},
                                            {"freq_factors", given(factors), LaunchTensor::kContiguous},
                                            {"cache", &cache}});
    const bool has_elements = check_rope_call(
        rope_set_rows_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(3), tensors.view(4)), a);
    if (!has_elements) return;
    tensors.copy_inputs();
    const at::IntArrayRef sections(a.sections), strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRopeSetRows, tensors[0], tensors[1], tensors[2], tensors.optional(3), tensors[4],
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides));
}

void rope_set_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows, const at::Tensor& cache,
                   const OptionalTensor& freq_factors, NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    launch(x, positions, rows, cache, freq_factors, NPU_ROPE_ATTRIBUTES);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) { m.impl("rope_set_rows", &rope_set_rows); }
