// rotary_mul_qk for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rotary.py; this file has the kernels.
#include <cstdint>
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
    PackedTables attributes;
    RotaryMulQkCall(StableIValue* s, const PackedTables& a)
        : x{Owned(s[0]), Owned(s[1])}, cos(s[2]), sin(s[3]), attributes(a) {}
    RotaryMulQkCall(StableIValue* s, StableIValue* a) : RotaryMulQkCall(s, read_tables(a)) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        const Side q(x[0].get(), q_out), k(x[1].get(), k_out);
        const Readable c(cos.get(), q_out), s(sin.get(), q_out);
        raise_on(npu_rope_rotary_mul_qk(q.x(), k.x(), c.get(), s.get(), attributes.interleaved, attributes.rotary_dim,
                                        attributes.offset, attributes.forward, q.out(), k.out()));
    }
};

npu_rope_tensor with_tokens_first(npu_rope_tensor x) {
    if (x.ndim >= 3 && x.ndim <= NPU_ROPE_MAX_NDIM) {
        std::swap(x.shape[x.ndim - 3], x.shape[x.ndim - 2]);
        std::swap(x.stride[x.ndim - 3], x.stride[x.ndim - 2]);
    }
    return x;
}

// rotary_mul_qk_heads_first(q, k, cos, sin, packed)
// q and k are [B,N,S,D]. A call saves the four transpositions around rotary_mul_qk, a third of a decode-sized call.
struct HeadsFirstCall : RotaryMulQkCall {
    HeadsFirstCall(StableIValue* s, const PackedTables& a) : RotaryMulQkCall(s, a) {}
    HeadsFirstCall(StableIValue* s, StableIValue* packed)
        : RotaryMulQkCall(s, unpack_as<PackedTables>("rotary_mul_qk", Owned(*packed).get())) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const { rotate(x[0].get(), x[1].get(), q_out, k_out); }

protected:
    void rotate(AtenTensorHandle q_in, AtenTensorHandle k_in, AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        const Side q(q_in, q_out), k(k_in, k_out);
        const Readable c(cos.get(), q_out), s(sin.get(), q_out);
        const npu_rope_tensor views[] = {with_tokens_first(*q.x()), with_tokens_first(*k.x()),
                                         with_tokens_first(*q.out()), with_tokens_first(*k.out())};
        raise_on(npu_rope_rotary_mul_qk(&views[0], &views[1], c.get(), s.get(), attributes.interleaved,
                                        attributes.rotary_dim, attributes.offset, attributes.forward, &views[2],
                                        &views[3]));
    }
};

// Writes the first lanes of all pairs (x[2i], x[2i+1]), then their second lanes.
template <typename T>
void write_head_as_halves(const T* x, int64_t stride, int64_t pairs, T* y) {
    if (stride == 1) {  // vectorized by the compiler
        for (int64_t i = 0; i < pairs; ++i) y[i] = x[2 * i], y[i + pairs] = x[2 * i + 1];
        return;
    }
    for (int64_t i = 0; i < pairs; ++i) y[i] = x[2 * i * stride], y[i + pairs] = x[(2 * i + 1) * stride];
}

// y: contiguous, of x's sizes.
template <typename T>
void write_as_halves(const npu_rope_tensor& x, void* y_data) {
    auto* from = static_cast<const T*>(x.data);
    auto* y = static_cast<T*>(y_data);
    const int64_t *size = x.shape + x.ndim - 3, *stride = x.stride + x.ndim - 3;
    const int64_t batches = x.ndim == 4 ? x.shape[0] : 1, D = size[2];
    for (int64_t b = 0; b < batches; ++b)
        for (int64_t n = 0; n < size[0]; ++n)
            for (int64_t s = 0; s < size[1]; ++s, y += D)
                write_head_as_halves(from + b * x.stride[0] + n * stride[0] + s * stride[1], stride[2], D / 2, y);
}

// rotary_mul_qk_to_halves(q, k, cos, sin)
// q and k are [B,N,S,D]. Their pairs are neighbours, and the results have halves. Three calls of torch would rearrange
// the lanes of each tensor, in half the time of a decode-sized call.
struct ToHalvesCall : HeadsFirstCall {
    ToHalvesCall(StableIValue* stack, StableIValue*) : HeadsFirstCall(stack, PackedTables{0, 0, 0, 1}) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        rotate(rearranged(x[0].get(), q_out), rearranged(x[1].get(), k_out), q_out, k_out);
    }

private:
    // Returns `out` with the lanes of `in`. Returns `in` if rotate() rejects it, or if it has no elements.
    static AtenTensorHandle rearranged(AtenTensorHandle in, AtenTensorHandle out) {
        const npu_rope_tensor view = view_of(in);
        if ((view.ndim != 3 && view.ndim != 4) || view.shape[view.ndim - 1] % 2 != 0) return in;
        switch (view.dtype) {
            case NPU_ROPE_FLOAT16:
            case NPU_ROPE_BFLOAT16:
                return is_written_as_halves<uint16_t>(view, out) ? out : in;
            case NPU_ROPE_FLOAT32:
                return is_written_as_halves<uint32_t>(view, out) ? out : in;
            case NPU_ROPE_FLOAT64:
                return is_written_as_halves<uint64_t>(view, out) ? out : in;
            default:
                return in;
        }
    }

    template <typename T>
    static bool is_written_as_halves(const npu_rope_tensor& view, AtenTensorHandle out) {
        if (!view.data || reinterpret_cast<uintptr_t>(view.data) % sizeof(T) != 0) return false;
        write_as_halves<T>(view, data_of(out));
        return true;
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_mul_qk", &BoxedKernels<RotaryMulQkCall>::functional);
    m.impl("rotary_mul_qk_", &BoxedKernels<RotaryMulQkCall>::inplace);
    m.impl("rotary_mul_qk_out", &BoxedKernels<RotaryMulQkCall>::out);
    m.impl("rotary_mul_qk_heads_first", &BoxedKernels<HeadsFirstCall>::functional);
    m.impl("rotary_mul_qk_to_halves", &BoxedKernels<ToHalvesCall>::functional);
}
