// rms_norm_rope for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rms_norm_rope.py; this file has the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

constexpr const char* kOp = "rms_norm_rope";

// The number of attributes after "*" in the schemas.
constexpr int kNormRopeAttributes = kParams + 3;

PackedNormRope read(StableIValue* s) {
    using torch::stable::detail::to;
    return {read_params(s), to<double>(s[kParams]), to<bool>(s[kParams + 1]), read_angle(s[kParams + 2])};
}

// Tensors of a call besides q, k and their outputs.
struct Others {
    AtenTensorHandle q_scale, k_scale, positions;
    AtenTensorHandle rows;  // NULL, or the row of the cache for each token of k
};

void run(const Side& q, const Side& k, const Others& others, const Optional& factors, const PackedNormRope& a) {
    const Readable q_scale(others.q_scale, q.out_handle), k_scale(others.k_scale, k.out_handle);
    const npu_rope_tensor positions = view_of(others.positions);
    const OptionalView given(factors);
    if (!others.rows)
        return raise_on(npu_rope_rms_norm_rope(q.x(), k.x(), q_scale.get(), k_scale.get(), &positions, given.get(),
                                               &a.params, a.epsilon, a.intermediate_rounding, a.angle, q.out(),
                                               k.out()));
    const npu_rope_tensor rows = view_of(others.rows);
    raise_on(npu_rope_rms_norm_rope_set_rows(q.x(), k.x(), q_scale.get(), k_scale.get(), &positions, &rows, given.get(),
                                             &a.params, a.epsilon, a.intermediate_rounding, a.angle, q.out(), k.out()));
}

// rms_norm_rope(q, k, q_scale, k_scale, positions, freq_factors, attributes)
// rms_norm_rope_out(q, k, q_scale, k_scale, positions, freq_factors, attributes, q_out, k_out)
struct RmsNormRopeCall {
    static constexpr int kSides = 2, kInputs = 6, kOutsAt = kInputs + kNormRopeAttributes;
    Owned x[2], q_scale, k_scale, positions;
    Optional factors;
    PackedNormRope attributes;
    RmsNormRopeCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0]), Owned(s[1])},
          q_scale(s[2]),
          k_scale(s[3]),
          positions(s[4]),
          factors(s[5]),
          attributes(read(a)) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        ::run({x[0].get(), q_out}, {x[1].get(), k_out}, {q_scale.get(), k_scale.get(), positions.get(), nullptr},
              factors, attributes);
    }
};

// rms_norm_rope_set_rows(q, k, q_scale, k_scale, positions, rows, cache, freq_factors, attributes)
// rms_norm_rope_set_rows_out(q, k, q_scale, k_scale, positions, rows, cache, freq_factors, attributes, q_out)
struct SetRowsCall {
    static constexpr int kSides = 1, kInputs = 8, kOutsAt = kInputs + kNormRopeAttributes;
    Owned x[1], k, q_scale, k_scale, positions, rows, cache;
    Optional factors;
    PackedNormRope attributes;
    SetRowsCall(StableIValue* s, StableIValue* a)
        : x{Owned(s[0])},
          k(s[1]),
          q_scale(s[2]),
          k_scale(s[3]),
          positions(s[4]),
          rows(s[5]),
          cache(s[6]),
          factors(s[7]),
          attributes(read(a)) {}
    void run(AtenTensorHandle q_out) const {
        ::run({x[0].get(), q_out}, {k.get(), cache.get()}, {q_scale.get(), k_scale.get(), positions.get(), rows.get()},
              factors, attributes);
    }
};

// rms_norm_rope_packed(q, k, q_scale, k_scale, positions, packed, freq_factors)
struct PackedCall {
    static constexpr int kSides = 2, kInputs = 7;
    Owned x[2], q_scale, k_scale, positions, packed;
    Optional factors;
    PackedCall(StableIValue* s, StableIValue*)
        : x{Owned(s[0]), Owned(s[1])}, q_scale(s[2]), k_scale(s[3]), positions(s[4]), packed(s[5]), factors(s[6]) {}
    void run(AtenTensorHandle q_out, AtenTensorHandle k_out) const {
        ::run({x[0].get(), q_out}, {x[1].get(), k_out}, {q_scale.get(), k_scale.get(), positions.get(), nullptr},
              factors, unpack_as<PackedNormRope>(kOp, packed.get()));
    }
};

// rms_norm_rope_packed_(q_out, k_out, q_scale, k_scale, positions, packed, q, k, rows, freq_factors)
// If q or k is absent, the call normalizes and rotates its output in place. With rows, k_out is a cache.
void rms_norm_rope_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned q_out(stack[0]), k_out(stack[1]), q_scale(stack[2]), k_scale(stack[3]), positions(stack[4]), packed(stack[5]);
    Optional q(stack[6]), k(stack[7]), rows(stack[8]), factors(stack[9]);
    run({q.get() ? q.get() : q_out.get(), q_out.get()}, {k.get() ? k.get() : k_out.get(), k_out.get()},
        {q_scale.get(), k_scale.get(), positions.get(), rows.get()}, factors,
        unpack_as<PackedNormRope>(kOp, packed.get()));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rms_norm_rope", &BoxedKernels<RmsNormRopeCall>::functional);
    m.impl("rms_norm_rope_out", &BoxedKernels<RmsNormRopeCall>::out);
    m.impl("rms_norm_rope_set_rows", &BoxedKernels<SetRowsCall>::functional);
    m.impl("rms_norm_rope_set_rows_out", &BoxedKernels<SetRowsCall>::out);
    m.impl("rms_norm_rope_packed", &BoxedKernels<PackedCall>::functional);
    m.impl("rms_norm_rope_packed_", &rms_norm_rope_packed);
}
