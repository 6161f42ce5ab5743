// rotary_mul_qk for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; this file has the kernels.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

// rotary_mul_qk(q, k, cos, sin, attributes)
// rotary_mul_qk_(q, k, cos, sin, attributes)
// rotary_mul_qk_out(q, k, cos, sin, q_out, k_out, attributes)
struct RotaryMulQkCall {
    static constexpr int kSides = 2, kInputs = 4, kOutsAt = kInputs;
    Owned x[2], cos, sin;
    RotaryMulAttributes attributes;
    RotaryMulQkCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0]), Owned(s[1])}, cos(s[2]), sin(s[3]), attributes(a) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        const Side q(x[0].get(), q_out), k(x[1].get(), k_out);
        const Readable c(cos.get(), q_out), s(sin.get(), q_out);
        raise_on(npu_rope_rotary_mul_qk(q.x(), k.x(), c.get(), s.get(), attributes.interleaved, attributes.rotary_dim,
                                        attributes.offset, attributes.forward, q.out(), k.out()));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul_qk", &BoxedKernels<RotaryMulQkCall>::functional);
    m.impl("rotary_mul_qk_", &BoxedKernels<RotaryMulQkCall>::inplace);
    m.impl("rotary_mul_qk_out", &BoxedKernels<RotaryMulQkCall>::out);
}
