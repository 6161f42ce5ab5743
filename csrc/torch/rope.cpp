// rope for CPU tensors, through torch's stable ABI. npu_rope/ops/rope.py registers the schemas, fakes and gradients;
// this file has the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle x, AtenTensorHandle positions, const npu_rope_tensor* factors, const Attributes& a,
         AtenTensorHandle out) {
    const Side side(x, out);
    const npu_rope_tensor position_view = view_of(positions);
    raise_on(npu_rope_rope(side.x(), &position_view, factors, &a.params, a.forward, a.angle, side.out()));
}

// rope(x, positions, freq_factors, attributes)
// rope_(x, positions, freq_factors, attributes)
// rope_out(x, positions, freq_factors, attributes, out)
struct RopeCall {
    static constexpr int kSides = 1, kInputs = 3, kOutsAt = kInputs + kAttributes;
    Owned x[1], positions;
    Optional factors;
    Attributes attributes;
    RopeCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0])}, positions(s[1]), factors(s[2]), attributes(read_attributes(a)) {}
    void run(AtenTensorHandle out) const {
        ::run(x[0].get(), positions.get(), OptionalView(factors).get(), attributes, out);
    }
};

// rope_packed(x, positions, packed, freq_factors)
// rope_packed_out(out, x, positions, packed, freq_factors)
struct RopePackedCall {
    static constexpr int kSides = 1, kInputs = 4, kOutsAt = 0;
    Owned x[1], positions, packed;
    Optional factors;
    RopePackedCall(StableIValue* s, StableIValue*) : x{Owned(s[0])}, positions(s[1]), packed(s[2]), factors(s[3]) {}
    void run(AtenTensorHandle out) const {
        ::run(x[0].get(), positions.get(), OptionalView(factors).get(), unpack_as<Attributes>("rope", packed.get()),
              out);
    }
};

// rope_packed_(x, positions, packed)
void rope_packed_in_place(StableIValue* s, uint64_t, uint64_t) {
    const Owned x(s[0]), positions(s[1]), packed(s[2]);
    run(x.get(), positions.get(), nullptr, unpack_as<Attributes>("rope", packed.get()), x.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope", &BoxedKernels<RopeCall>::functional);
    m.impl("rope_", &BoxedKernels<RopeCall>::inplace);
    m.impl("rope_out", &BoxedKernels<RopeCall>::out);
    m.impl("rope_packed", &BoxedKernels<RopePackedCall>::functional);
    m.impl("rope_packed_", &rope_packed_in_place);
    m.impl("rope_packed_out", &BoxedKernels<RopePackedCall>::out);
}
