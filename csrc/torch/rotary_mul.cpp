// rotary_mul for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; these are the kernels.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle x, const RotaryTables& t, const RotaryAttributes& a, AtenTensorHandle out) {
    const Readable tx(x, out), cos(t.cos.get(), out), sin(t.sin.get(), out);
    const npu_rope_tensor to = x == out ? *tx.get() : view_of(out);
    raise_on(npu_rope_rotary_mul(tx.get(), cos.get(), sin.get(), a.interleaved, a.first, a.second, a.forward, &to));
}

// rotary_mul(x, cos, sin, attributes)
void rotary_mul(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]);
    RotaryTables tables(stack[1], stack[2]);
    const RotaryAttributes a(stack + 3);
    Owned out = empty_contiguous(x.get());
    run(x.get(), tables, a, out.get());
    stack[0] = torch::stable::detail::from(out.release());
}

// rotary_mul_(x, cos, sin, attributes)
void rotary_mul_inplace(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]);
    RotaryTables tables(stack[1], stack[2]);
    run(x.get(), tables, RotaryAttributes(stack + 3), x.get());
}

// rotary_mul_out(x, cos, sin, out, attributes)
void rotary_mul_out(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), out(stack[3]);
    RotaryTables tables(stack[1], stack[2]);
    run(x.get(), tables, RotaryAttributes(stack + 4), out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul", &rotary_mul);
    m.impl("rotary_mul_", &rotary_mul_inplace);
    m.impl("rotary_mul_out", &rotary_mul_out);
}
