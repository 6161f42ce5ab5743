// rotary_mul_qk for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; this file has the kernels.
#include <utility>

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

// rotary_mul_qk_heads_first(q, k, cos, sin, attributes)
// q and k are [B,N,S,D]. A call saves the four transpositions around rotary_mul_qk, a third of a decode-sized call.
struct HeadsFirstCall : RotaryMulQkCall {
    using RotaryMulQkCall::RotaryMulQkCall;
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        const Side q(x[0].get(), q_out), k(x[1].get(), k_out);
        const Readable c(cos.get(), q_out), s(sin.get(), q_out);
        const npu_rope_tensor views[] = {transposed(*q.x()), transposed(*k.x()), transposed(*q.out()),
                                         transposed(*k.out())};
        raise_on(npu_rope_rotary_mul_qk(&views[0], &views[1], c.get(), s.get(), attributes.interleaved,
                                        attributes.rotary_dim, attributes.offset, attributes.forward, &views[2],
                                        &views[3]));
    }

private:
    static npu_rope_tensor transposed(npu_rope_tensor x) {
        if (x.ndim >= 3 && x.ndim <= NPU_ROPE_MAX_NDIM) {
            std::swap(x.shape[x.ndim - 3], x.shape[x.ndim - 2]);
            std::swap(x.stride[x.ndim - 3], x.stride[x.ndim - 2]);
        }
        return x;
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul_qk", &BoxedKernels<RotaryMulQkCall>::functional);
    m.impl("rotary_mul_qk_", &BoxedKernels<RotaryMulQkCall>::inplace);
    m.impl("rotary_mul_qk_out", &BoxedKernels<RotaryMulQkCall>::out);
    m.impl("rotary_mul_qk_heads_first", &BoxedKernels<HeadsFirstCall>::functional);
}
