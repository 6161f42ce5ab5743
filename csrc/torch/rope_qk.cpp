// rope_qk for CPU tensors, through torch's stable ABI. npu_rope/ops/rope_qk.py registers the schemas, fakes and
// gradients; this file has the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

void run(const Side& q, const Side& k, AtenTensorHandle positions, const npu_rope_tensor* factors,
         const Attributes& a) {
    const npu_rope_tensor position_view = view_of(positions);
    raise_on(npu_rope_rope_qk(q.x(), k.x(), &position_view, factors, &a.params, a.forward, a.angle, q.out(), k.out()));
}

// rope_qk(q, k, positions, freq_factors, attributes)
// rope_qk_(q, k, positions, freq_factors, attributes)
// rope_qk_out(q, k, positions, freq_factors, attributes, q_out, k_out)
struct RopeQkCall {
    static constexpr int kSides = 2, kInputs = 4, kOutsAt = kInputs + kAttributes;
    Owned x[2], positions;
    Optional factors;
    Attributes attributes;
    RopeQkCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0]), Owned(s[1])}, positions(s[2]), factors(s[3]), attributes(read_attributes(a)) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        ::run({x[0].get(), q_out}, {x[1].get(), k_out}, positions.get(), OptionalView(factors).get(), attributes);
    }
};

// rope_qk_packed(q, k, positions, packed, freq_factors)
// rope_qk_packed_out(q_out, k_out, q, k, positions, packed, freq_factors)
struct RopeQkPackedCall {
    static constexpr int kSides = 2, kInputs = 5, kOutsAt = 0;
    Owned x[2], positions, packed;
    Optional factors;
    RopeQkPackedCall(StableIValue* s, StableIValue*)
        : x{Owned(s[0]), Owned(s[1])}, positions(s[2]), packed(s[3]), factors(s[4]) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        ::run({x[0].get(), q_out}, {x[1].get(), k_out}, positions.get(), OptionalView(factors).get(),
              unpack_as<Attributes>("rope_qk", packed.get()));
    }
};

// rope_qk_packed_(q, k, positions, packed)
void rope_qk_packed_in_place(StableIValue* s, uint64_t, uint64_t) {
    const Owned q(s[0]), k(s[1]), positions(s[2]), packed(s[3]);
    run({q.get(), q.get()}, {k.get(), k.get()}, positions.get(), nullptr,
        unpack_as<Attributes>("rope_qk", packed.get()));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope_qk", &BoxedKernels<RopeQkCall>::functional);
    m.impl("rope_qk_", &BoxedKernels<RopeQkCall>::inplace);
    m.impl("rope_qk_out", &BoxedKernels<RopeQkCall>::out);
    m.impl("rope_qk_packed", &BoxedKernels<RopeQkPackedCall>::functional);
    m.impl("rope_qk_packed_", &rope_qk_packed_in_place);
    m.impl("rope_qk_packed_out", &BoxedKernels<RopeQkPackedCall>::out);
}
