// rms_norm_rope for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rms_norm_rope.py; these are the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

constexpr const char* kOp = "rms_norm_rope";

// The attributes after "*" in the schemas.
struct NormRopeAttributes {
    npu_rope_params params;
    double epsilon;
    bool intermediate_rounding;
    npu_rope_angle angle;
};
constexpr int kNormRopeAttributes = kParams + 3;

NormRopeAttributes read(StableIValue* s) {
    using torch::stable::detail::to;
    return {read_params(s), to<double>(s[kParams]), to<bool>(s[kParams + 1]), read_angle(s[kParams + 2])};
}

NormRopeAttributes read_packed(AtenTensorHandle packed) {
    struct Packed {
        npu_rope_params params;
        double epsilon;
        int32_t intermediate_rounding, angle;
    };
    const auto p = unpack_as<Packed>(kOp, packed);
    return {p.params, p.epsilon, p.intermediate_rounding != 0, static_cast<npu_rope_angle>(p.angle)};
}

// Queries or keys, their scale and their output: a tensor of their own or a cache.
struct Side {
    AtenTensorHandle x, scale, out;
};

// rows: NULL, or k's rows in a cache.
void run(const Side& q, const Side& k, AtenTensorHandle positions, AtenTensorHandle rows, const Optional& factors,
         const NormRopeAttributes& a) {
    const Readable tq(q.x, q.out), tk(k.x, k.out), q_scale(q.scale, q.out), k_scale(k.scale, k.out);
    const npu_rope_tensor tp = view_of(positions);
    const npu_rope_tensor q_out = q.x == q.out ? *tq.get() : view_of(q.out);
    const npu_rope_tensor k_out = k.x == k.out ? *tk.get() : view_of(k.out);
    const Given given(factors);
    if (!rows)
        return raise_on(npu_rope_rms_norm_rope(tq.get(), tk.get(), q_scale.get(), k_scale.get(), &tp, given.get(),
                                               &a.params, a.epsilon, a.intermediate_rounding, a.angle, &q_out, &k_out));
    const npu_rope_tensor tr = view_of(rows);
    raise_on(npu_rope_rms_norm_rope_set_rows(tq.get(), tk.get(), q_scale.get(), k_scale.get(), &tp, &tr, given.get(),
                                             &a.params, a.epsilon, a.intermediate_rounding, a.angle, &q_out, &k_out));
}

// q, k, q_scale, k_scale and positions, the first arguments of the schemas.
struct Inputs {
    Owned q, k, q_scale, k_scale, positions;
    explicit Inputs(StableIValue* s) : q(s[0]), k(s[1]), q_scale(s[2]), k_scale(s[3]), positions(s[4]) {}
    Side q_to(AtenTensorHandle out) const { return {q.get(), q_scale.get(), out}; }
    Side k_to(AtenTensorHandle out) const { return {k.get(), k_scale.get(), out}; }
};

// rms_norm_rope(q, k, q_scale, k_scale, positions, freq_factors, attributes)
void rms_norm_rope(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Optional factors(stack[5]);
    const NormRopeAttributes a = read(stack + 6);
    Owned q = empty_contiguous(in.q.get()), k = empty_contiguous(in.k.get());
    run(in.q_to(q.get()), in.k_to(k.get()), in.positions.get(), nullptr, factors, a);
    stack[0] = torch::stable::detail::from(q.release());
    stack[1] = torch::stable::detail::from(k.release());
}

// rms_norm_rope_out(q, k, q_scale, k_scale, positions, freq_factors, attributes, q_out, k_out)
void rms_norm_rope_out(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Optional factors(stack[5]);
    Owned q(stack[6 + kNormRopeAttributes]), k(stack[7 + kNormRopeAttributes]);
    run(in.q_to(q.get()), in.k_to(k.get()), in.positions.get(), nullptr, factors, read(stack + 6));
}

// rms_norm_rope_set_rows(q, k, q_scale, k_scale, positions, rows, cache, freq_factors, attributes)
void rms_norm_rope_set_rows(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned rows(stack[5]), cache(stack[6]);
    Optional factors(stack[7]);
    const NormRopeAttributes a = read(stack + 8);
    Owned q = empty_contiguous(in.q.get());
    run(in.q_to(q.get()), in.k_to(cache.get()), in.positions.get(), rows.get(), factors, a);
    stack[0] = torch::stable::detail::from(q.release());
}

// rms_norm_rope_set_rows_out(q, k, q_scale, k_scale, positions, rows, cache, freq_factors, attributes, q_out)
void rms_norm_rope_set_rows_out(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned rows(stack[5]), cache(stack[6]), q(stack[8 + kNormRopeAttributes]);
    Optional factors(stack[7]);
    run(in.q_to(q.get()), in.k_to(cache.get()), in.positions.get(), rows.get(), factors, read(stack + 8));
}

// rms_norm_rope_packed_(q_out, k_out, q, k, q_scale, k_scale, positions, packed, rows, freq_factors)
// An output without q or k is rotated in place; with rows, k_out is a cache.
void rms_norm_rope_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned q_out(stack[0]), k_out(stack[1]), q_scale(stack[4]), k_scale(stack[5]), positions(stack[6]), packed(stack[7]);
    Optional q(stack[2]), k(stack[3]), rows(stack[8]), factors(stack[9]);
    run({q.get() ? q.get() : q_out.get(), q_scale.get(), q_out.get()},
        {k.get() ? k.get() : k_out.get(), k_scale.get(), k_out.get()}, positions.get(), rows.get(), factors,
        read_packed(packed.get()));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rms_norm_rope", &rms_norm_rope);
    m.impl("rms_norm_rope_out", &rms_norm_rope_out);
    m.impl("rms_norm_rope_set_rows", &rms_norm_rope_set_rows);
    m.impl("rms_norm_rope_set_rows_out", &rms_norm_rope_set_rows_out);
    m.impl("rms_norm_rope_packed_", &rms_norm_rope_packed);
}
