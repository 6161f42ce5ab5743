// rotary_embedding for CPU tensors, through torch's stable ABI. Schema, fake and gradient are in
// npu_rope/ops/rotary.py; this is the kernel.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

// rotary_embedding(X, cos_cache, sin_cache, position_ids, attributes) -> Tensor
void rotary_embedding(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), cos(stack[1]), sin(stack[2]);
    Optional position_ids(stack[3]);
    const RotaryAttributes a(stack + 4);
    Owned out = empty_contiguous(x.get());
    const Readable tx(x.get(), out.get()), tcos(cos.get(), out.get()), tsin(sin.get(), out.get());
    const npu_rope_tensor to = view_of(out.get());
    raise_on(npu_rope_rotary_embedding(tx.get(), tcos.get(), tsin.get(), Given(position_ids).get(), a.interleaved,
                                       a.first, a.second, a.forward, &to));
    stack[0] = torch::stable::detail::from(out.release());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) { m.impl("rotary_embedding", &rotary_embedding); }
