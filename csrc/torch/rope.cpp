// rope for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rope.py; these are the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle x, AtenTensorHandle positions, const Optional& factors, const Attributes& a,
         AtenTensorHandle out) {
    const Readable tx(x, out);
    const npu_rope_tensor tp = view_of(positions), to = x == out ? *tx.get() : view_of(out);
    raise_on(npu_rope_rope(tx.get(), &tp, Given(factors).get(), &a.params, a.forward, a.angle, &to));
}

// x, positions and freq_factors, the first arguments of the schemas of rope, rope_ and rope_out.
struct Inputs {
    Owned x, positions;
    Optional factors;
    explicit Inputs(StableIValue* s) : x(s[0]), positions(s[1]), factors(s[2]) {}
};

// rope(x, positions, freq_factors, attributes)
void rope(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    const Attributes a = read_attributes(stack + 3);
    Owned out = empty_contiguous(in.x.get());
    run(in.x.get(), in.positions.get(), in.factors, a, out.get());
    stack[0] = torch::stable::detail::from(out.release());
}

// rope_(x, positions, freq_factors, attributes)
void rope_inplace(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    run(in.x.get(), in.positions.get(), in.factors, read_attributes(stack + 3), in.x.get());
}

// rope_out(x, positions, freq_factors, attributes, out)
void rope_out(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned out(stack[3 + kAttributes]);
    run(in.x.get(), in.positions.get(), in.factors, read_attributes(stack + 3), out.get());
}

// rope_packed_(out, x, positions, packed, freq_factors)
// Without x the call is in place: passing the same tensor to torch twice would cost a tenth of a decode step.
void rope_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned out(stack[0]), positions(stack[2]), packed(stack[3]);
    Optional x(stack[1]), factors(stack[4]);
    run(x.get() ? x.get() : out.get(), positions.get(), factors, unpack("rope", packed.get()), out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope", &rope);
    m.impl("rope_", &rope_inplace);
    m.impl("rope_out", &rope_out);
    m.impl("rope_packed_", &rope_packed);
}
