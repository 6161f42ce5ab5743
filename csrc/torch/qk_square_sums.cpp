// qk_square_sums for CPU tensors, through torch's stable ABI. npu_rope/ops/qk_square_sums.py registers the schema, the
// fake and the gradient; this file has the kernel.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

// qk_square_sums(q, k)
void qk_square_sums(StableIValue* stack, uint64_t, uint64_t) {
    const Owned q(stack[0]), k(stack[1]);
    const npu_rope_tensor x = view_of(q.get());
    const int64_t size[2] = {x.ndim > 0 ? x.shape[0] : 0, 2}, stride[2] = {2, 1};
    const int32_t type = x.dtype == NPU_ROPE_FLOAT64 ? aoti_torch_dtype_float64() : aoti_torch_dtype_float32();
    Owned out = new_tensor(2, size, stride, type, aoti_torch_device_type_cpu(), 0);
    const npu_rope_tensor sums = view_of(out.get());
    const Readable q_view(q.get(), out.get()), k_view(k.get(), out.get());
    raise_on(npu_rope_qk_square_sums(q_view.get(), k_view.get(), &sums));
    stack[0] = torch::stable::detail::from(out.release());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) { m.impl("qk_square_sums", &qk_square_sums); }
