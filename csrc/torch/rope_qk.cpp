// rope_qk for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rope_qk.py; these are the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

// Queries or keys, and their output.
struct Side {
    AtenTensorHandle x, out;
};

void run(const Side& q, const Side& k, AtenTensorHandle positions, const Optional& factors, const Attributes& a) {
    const Readable tq(q.x, q.out), tk(k.x, k.out);
    const npu_rope_tensor tp = view_of(positions);
    const npu_rope_tensor q_out = q.x == q.out ? *tq.get() : view_of(q.out);
    const npu_rope_tensor k_out = k.x == k.out ? *tk.get() : view_of(k.out);
    raise_on(
        npu_rope_rope_qk(tq.get(), tk.get(), &tp, Given(factors).get(), &a.params, a.forward, a.angle, &q_out, &k_out));
}

// q, k, positions and freq_factors, the first arguments of the schemas of rope_qk, rope_qk_ and rope_qk_out.
struct Inputs {
    Owned q, k, positions;
    Optional factors;
    explicit Inputs(StableIValue* s) : q(s[0]), k(s[1]), positions(s[2]), factors(s[3]) {}
};

// rope_qk(q, k, positions, freq_factors, attributes)
void rope_qk(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    const Attributes a = read_attributes(stack + 4);
    Owned q = empty_contiguous(in.q.get()), k = empty_contiguous(in.k.get());
    run({in.q.get(), q.get()}, {in.k.get(), k.get()}, in.positions.get(), in.factors, a);
    stack[0] = torch::stable::detail::from(q.release());
    stack[1] = torch::stable::detail::from(k.release());
}

// rope_qk_(q, k, positions, freq_factors, attributes)
void rope_qk_inplace(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    run({in.q.get(), in.q.get()}, {in.k.get(), in.k.get()}, in.positions.get(), in.factors, read_attributes(stack + 4));
}

// rope_qk_out(q, k, positions, freq_factors, attributes, q_out, k_out)
void rope_qk_out(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned q(stack[4 + kAttributes]), k(stack[5 + kAttributes]);
    run({in.q.get(), q.get()}, {in.k.get(), k.get()}, in.positions.get(), in.factors, read_attributes(stack + 4));
}

// rope_qk_packed_(q_out, k_out, q, k, positions, packed, freq_factors)
// An output without q or k is rotated in place.
void rope_qk_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned q_out(stack[0]), k_out(stack[1]), positions(stack[4]), packed(stack[5]);
    Optional q(stack[2]), k(stack[3]), factors(stack[6]);
    run({q.get() ? q.get() : q_out.get(), q_out.get()}, {k.get() ? k.get() : k_out.get(), k_out.get()}, positions.get(),
        factors, unpack("rope_qk", packed.get()));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope_qk", &rope_qk);
    m.impl("rope_qk_", &rope_qk_inplace);
    m.impl("rope_qk_out", &rope_qk_out);
    m.impl("rope_qk_packed_", &rope_qk_packed);
}
