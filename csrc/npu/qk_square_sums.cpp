// qk_square_sums for NPU tensors, through torch_npu and aclnn. npu_rope/ops/qk_square_sums.py registers the schema, the
// fake and the gradient; the function here calls the kernel.
#include "csrc/npu/launch.h"
#include "csrc/npu/package.h"
#include "op_host/qk_square_sums_tiling.h"

namespace {

using namespace npu_rope;

LaunchTensors launch_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& out) {
    return {"qk_square_sums",
            {{"q", &q, LaunchTensor::kUnitStride, &out}, {"k", &k, LaunchTensor::kUnitStride, &out}, {"out", &out}}};
}

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
bool check_call(const LaunchTensors& tensors) {
    TilingResult<QkSquareSumsTilingData> tiled;
    raise_on(check_and_tile_qk_square_sums({tensors.view(0), tensors.view(1), tensors.view(2), Known::kAddresses},
                                           platform("qk_square_sums"), &tiled));
    return tiled.has_elements();
}

at::Tensor qk_square_sums(const at::Tensor& q, const at::Tensor& k) {
    const bool is_double = q.scalar_type() == at::kDouble;
    at::Tensor out =
        at::empty({q.dim() > 0 ? q.size(0) : 0, 2}, q.options().dtype(is_double ? at::kDouble : at::kFloat));
    if (!check_call(launch_tensors(q, k, out))) return out.zero_();
    const bool has_q = q.numel() > 0, has_k = k.numel() > 0;
    // aclnn takes no tensor without elements.
    LaunchTensors tensors = launch_tensors(has_q ? q : k, has_k ? k : q, out);
    tensors.copy_inputs();
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuQkSquareSums, tensors[0], tensors[1], has_q, has_k, strides, tensors[2]);
    return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) { m.impl("qk_square_sums", &qk_square_sums); }
