// rotary_mul for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; this file has the kernels.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

// rotary_mul(x, cos, sin, attributes)
// rotary_mul_(x, cos, sin, attributes)
// rotary_mul_out(x, cos, sin, out, attributes)
struct RotaryMulCall {
    static constexpr int kSides = 1, kInputs = 3, kOutsAt = kInputs;
    Owned x[1], cos, sin;
    PackedTables attributes;
    RotaryMulCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0])}, cos(s[1]), sin(s[2]), attributes(read_tables(a)) {}
    void run(AtenTensorHandle out) const {
        const Side side(x[0].get(), out);
        const Readable c(cos.get(), out), s(sin.get(), out);
        raise_on(npu_rope_rotary_mul(side.x(), c.get(), s.get(), attributes.interleaved, attributes.rotary_dim,
                                     attributes.offset, attributes.forward, side.out()));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul", &BoxedKernels<RotaryMulCall>::functional);
    m.impl("rotary_mul_", &BoxedKernels<RotaryMulCall>::inplace);
    m.impl("rotary_mul_out", &BoxedKernels<RotaryMulCall>::out);
}
