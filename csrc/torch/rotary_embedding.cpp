// rotary_embedding for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; this file has the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

// The last arguments of both schemas.
struct RotaryEmbeddingAttributes {
    int32_t interleaved;
    int64_t num_heads, rotary_embedding_dim;
    int32_t forward;
    explicit RotaryEmbeddingAttributes(const StableIValue* s)
        : interleaved(torch::stable::detail::to<bool>(s[0])),
          num_heads(torch::stable::detail::to<int64_t>(s[1])),
          rotary_embedding_dim(torch::stable::detail::to<int64_t>(s[2])),
          forward(torch::stable::detail::to<bool>(s[3])) {}
};

// rotary_embedding(X, cos_cache, sin_cache, position_ids, attributes)
// rotary_embedding_out(X, cos_cache, sin_cache, position_ids, Y, attributes)
struct RotaryEmbeddingCall {
    static constexpr int kSides = 1, kInputs = 4, kOutsAt = kInputs;
    Owned x[1], cos, sin;
    Optional position_ids;
    RotaryEmbeddingAttributes attributes;
    RotaryEmbeddingCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0])}, cos(s[1]), sin(s[2]), position_ids(s[3]), attributes(a) {}
    void run(AtenTensorHandle out) const {
        const Readable x_read(x[0].get(), out), c(cos.get(), out), s(sin.get(), out);
        const npu_rope_tensor y = view_of(out);
        raise_on(npu_rope_rotary_embedding(x_read.get(), c.get(), s.get(), OptionalView(position_ids).get(),
                                           attributes.interleaved, attributes.num_heads,
                                           attributes.rotary_embedding_dim, attributes.forward, &y));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_embedding", &BoxedKernels<RotaryEmbeddingCall>::functional);
    m.impl("rotary_embedding_out", &BoxedKernels<RotaryEmbeddingCall>::out);
}
