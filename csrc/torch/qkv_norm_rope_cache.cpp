// qkv_norm_rope_cache for CPU tensors, through torch's stable ABI. npu_rope/ops/qkv_norm_rope_cache.py registers the
// schemas, fakes and gradients; this file has the kernels.
#include <deque>

#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

// The arguments after "*" in the schemas, without outputs.
struct QkvCallAttributes {
    npu_rope_params params;
    double epsilon;
    int32_t angle;
    double scale_offset;
    int64_t ranks;
};
constexpr int kQkvAttributes = kParams + 4;

QkvCallAttributes read_qkv_attributes(StableIValue* s) {
    using torch::stable::detail::to;
    return {read_params(s), to<double>(s[kParams]), read_angle(s[kParams + 1]), to<double>(s[kParams + 2]),
            to<int64_t>(s[kParams + 3])};
}

// The inputs of a call, in the order of npu_rope_qkv_inputs. The C library reads some of them with any strides, some
// with unit stride in the last dimension, and the factors of int8 caches only contiguous.
class QkvInputs {
public:
    enum Reads { kAnyStrides, kUnitStride, kContiguous };

    explicit QkvInputs(StableIValue* stack) : stack_(stack), q_(stack[0]), k_(stack[1]) {}

    AtenTensorHandle q() const { return q_.get(); }
    AtenTensorHandle k() const { return k_.get(); }

    // q_out, k_out: the outputs, or the caches.
    void add_q_and_k(AtenTensorHandle q_out, AtenTensorHandle k_out) {
        views_.q = readable_.emplace_back(q_.get(), q_out).get();
        views_.k = readable_.emplace_back(k_.get(), k_out).get();
    }

    // Returns the view of the argument at a position of the stack, or NULL.
    const npu_rope_tensor* add(int at, Reads reads, AtenTensorHandle out = nullptr) {
        AtenTensorHandle given = optionals_.emplace_back(stack_[at]).get();
        if (!given) return nullptr;
        if (reads == kUnitStride) return readable_.emplace_back(given, out ? out : q_.get()).get();
        if (reads == kContiguous) {
            copies_.push_back(torch::stable::contiguous(reference_to(given)));
            given = copies_.back().get();
        }
        return &plain_.emplace_back(view_of(given));
    }

    // Adds the norm's tensors, then positions, factors and tables, from a position of the stack on.
    void add_norm_and_angles(int at) {
        views_.q_scale = add(at, kUnitStride);
        views_.k_scale = add(at + 1, kUnitStride);
        views_.q_bias = add(at + 2, kUnitStride);
        views_.k_bias = add(at + 3, kUnitStride);
        views_.square_sums = add(at + 4, kUnitStride);
        views_.positions = add(at + 5, kAnyStrides);
        views_.freq_factors = add(at + 6, kAnyStrides);
        views_.cos = add(at + 7, kUnitStride);
        views_.sin = add(at + 8, kUnitStride);
    }

    void add_slots_and_factors(int at) {
        views_.slots = add(at, kAnyStrides);
        views_.k_quant_scale = add(at + 1, kContiguous);
        views_.k_quant_offset = add(at + 2, kContiguous);
        views_.v_quant_scale = add(at + 3, kContiguous);
        views_.v_quant_offset = add(at + 4, kContiguous);
    }

    void add_v(int at, AtenTensorHandle v_out) { views_.v = add(at, kUnitStride, v_out); }

    void run(const QkvCallAttributes& a, AtenTensorHandle q_out, AtenTensorHandle k_out, AtenTensorHandle v_out) const {
        const npu_rope_tensor q = view_of(q_out), k = view_of(k_out), v = v_out ? view_of(v_out) : npu_rope_tensor{};
        const npu_rope_qkv_outputs outputs{&q, &k, v_out ? &v : nullptr};
        raise_on(
            npu_rope_qkv_norm_rope_cache(&views_, &a.params, a.epsilon, a.scale_offset, a.ranks, a.angle, &outputs));
    }

private:
    StableIValue* stack_;
    Owned q_, k_;
    std::deque<Optional> optionals_;
    std::deque<Readable> readable_;
    std::deque<torch::stable::Tensor> copies_;
    std::deque<npu_rope_tensor> plain_;
    npu_rope_qkv_inputs views_ = {};
};

constexpr int kNormAndAngles = 9, kNewInputs = 2 + kNormAndAngles, kAllInputs = 3 + kNormAndAngles + 5;

// qkv_norm_rope_cache(q, k, q_scale, k_scale, q_bias, k_bias, square_sums, positions, freq_factors, cos, sin,
// attributes)
void qkv_new(StableIValue* stack, uint64_t, uint64_t) {
    QkvInputs inputs(stack);
    inputs.add_norm_and_angles(2);
    const QkvCallAttributes attributes = read_qkv_attributes(stack + kNewInputs);
    Owned q_out = empty_of(inputs.q(), inputs.q()), k_out = empty_of(inputs.k(), inputs.k());
    inputs.add_q_and_k(q_out.get(), k_out.get());
    inputs.run(attributes, q_out.get(), k_out.get(), nullptr);
    stack[0] = torch::stable::detail::from(q_out.release());
    stack[1] = torch::stable::detail::from(k_out.release());
}

// qkv_norm_rope_cache_set_rows(q, k, v, q_scale, k_scale, q_bias, k_bias, square_sums, positions, freq_factors, cos,
// sin, slots, k_quant_scale, k_quant_offset, v_quant_scale, v_quant_offset, k_cache, v_cache, attributes)
void qkv_set_rows(StableIValue* stack, uint64_t, uint64_t) {
    QkvInputs inputs(stack);
    Owned k_cache(stack[kAllInputs]);
    Optional v_cache(stack[kAllInputs + 1]);
    inputs.add_v(2, v_cache.get());
    inputs.add_norm_and_angles(3);
    inputs.add_slots_and_factors(3 + kNormAndAngles);
    const QkvCallAttributes attributes = read_qkv_attributes(stack + kAllInputs + 2);
    Owned q_out = empty_of(inputs.q(), inputs.q());
    inputs.add_q_and_k(q_out.get(), k_cache.get());
    inputs.run(attributes, q_out.get(), k_cache.get(), v_cache.get());
    stack[0] = torch::stable::detail::from(q_out.release());
}

// qkv_norm_rope_cache_out(q, k, v, q_scale, k_scale, q_bias, k_bias, square_sums, positions, freq_factors, cos, sin,
// slots, k_quant_scale, k_quant_offset, v_quant_scale, v_quant_offset, attributes, q_out, k_out, v_out)
void qkv_out(StableIValue* stack, uint64_t, uint64_t) {
    QkvInputs inputs(stack);
    const int outs_at = kAllInputs + kQkvAttributes;
    Owned q_out(stack[outs_at]), k_out(stack[outs_at + 1]);
    Optional v_out(stack[outs_at + 2]);
    inputs.add_v(2, v_out.get());
    inputs.add_norm_and_angles(3);
    inputs.add_slots_and_factors(3 + kNormAndAngles);
    const QkvCallAttributes attributes = read_qkv_attributes(stack + kAllInputs);
    inputs.add_q_and_k(q_out.get(), k_out.get());
    inputs.run(attributes, q_out.get(), k_out.get(), v_out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("qkv_norm_rope_cache", &qkv_new);
    m.impl("qkv_norm_rope_cache_set_rows", &qkv_set_rows);
    m.impl("qkv_norm_rope_cache_out", &qkv_out);
}
