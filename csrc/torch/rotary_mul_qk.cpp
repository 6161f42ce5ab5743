// rotary_mul_qk for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; these are the kernels.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle q, AtenTensorHandle k, const RotaryTables& t, const RotaryAttributes& a,
         AtenTensorHandle q_out, AtenTensorHandle k_out) {
    const Readable tq(q, q_out), tk(k, k_out), cos(t.cos.get(), q_out), sin(t.sin.get(), q_out);
    const npu_rope_tensor to_q = q == q_out ? *tq.get() : view_of(q_out);
    const npu_rope_tensor to_k = k == k_out ? *tk.get() : view_of(k_out);
    raise_on(npu_rope_rotary_mul_qk(tq.get(), tk.get(), cos.get(), sin.get(), a.interleaved, a.first, a.second,
                                    a.forward, &to_q, &to_k));
}

// rotary_mul_qk(q, k, cos, sin, attributes)
void rotary_mul_qk(StableIValue* stack, uint64_t, uint64_t) {
    Owned q(stack[0]), k(stack[1]);
    RotaryTables tables(stack[2], stack[3]);
    const RotaryAttributes a(stack + 4);
    Owned q_out = empty_contiguous(q.get()), k_out = empty_contiguous(k.get());
    run(q.get(), k.get(), tables, a, q_out.get(), k_out.get());
    stack[0] = torch::stable::detail::from(q_out.release());
    stack[1] = torch::stable::detail::from(k_out.release());
}

// rotary_mul_qk_(q, k, cos, sin, attributes)
void rotary_mul_qk_inplace(StableIValue* stack, uint64_t, uint64_t) {
    Owned q(stack[0]), k(stack[1]);
    RotaryTables tables(stack[2], stack[3]);
    run(q.get(), k.get(), tables, RotaryAttributes(stack + 4), q.get(), k.get());
}

// rotary_mul_qk_out(q, k, cos, sin, q_out, k_out, attributes)
void rotary_mul_qk_out(StableIValue* stack, uint64_t, uint64_t) {
    Owned q(stack[0]), k(stack[1]), q_out(stack[4]), k_out(stack[5]);
    RotaryTables tables(stack[2], stack[3]);
    run(q.get(), k.get(), tables, RotaryAttributes(stack + 6), q_out.get(), k_out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul_qk", &rotary_mul_qk);
    m.impl("rotary_mul_qk_", &rotary_mul_qk_inplace);
    m.impl("rotary_mul_qk_out", &rotary_mul_qk_out);
}
