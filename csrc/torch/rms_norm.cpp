// rms_norm for CPU tensors, through torch's stable ABI. Schemas, fakes and gradients are in
// npu_rope/ops/rms_norm.py; this file has the kernels.
#include "csrc/torch/rms_norm_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle x, AtenTensorHandle scale, const PackedNorm& a, AtenTensorHandle out) {
    NormCall call("rms_norm", x, scale, a.axis);
    const npu_rope_tensor out_view = call.written("out", out), x_view = call.read("x", x), scale_view = call.scale();
    raise_on(npu_rope_rms_norm(&x_view, &scale_view, call.axis(), a.epsilon, a.stash_type, &out_view));
}

// rms_norm(x, scale, attributes)
void rms_norm(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), scale(stack[1]);
    Owned out = empty_of(x.get(), scale.get());
    run(x.get(), scale.get(), read_norm(stack + 2), out.get());
    stack[0] = torch::stable::detail::from(out.release());
}

// rms_norm_packed(x, scale, packed)
void rms_norm_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), scale(stack[1]), packed(stack[2]);
    Owned out = empty_of(x.get(), scale.get());
    run(x.get(), scale.get(), unpack_as<PackedNorm>("rms_norm", packed.get()), out.get());
    stack[0] = torch::stable::detail::from(out.release());
}

// rms_norm_rounded_last(x, scale, packed)
void rms_norm_rounded_last(StableIValue* stack, uint64_t, uint64_t) {
    struct Attributes {
        int64_t axis;
        double epsilon, scale_offset;
    };
    constexpr const char* op = "rms_norm_rounded_last";
    Owned x(stack[0]), scale(stack[1]), packed(stack[2]);
    const auto [axis, epsilon, scale_offset] = unpack_as<Attributes>(op, packed.get());
    Owned out = empty_of(x.get(), x.get());
    NormCall call(op, x.get(), scale.get(), axis);
    const npu_rope_tensor out_view = call.written("out", out.get()), x_view = call.read("x", x.get());
    const npu_rope_tensor scale_view = call.scale();
    raise_on(npu_rope_rms_norm_rounded_last(&x_view, &scale_view, call.axis(), epsilon, scale_offset, &out_view));
    stack[0] = torch::stable::detail::from(out.release());
}

// rms_norm_out(x, scale, out, attributes)
void rms_norm_out(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), scale(stack[1]), out(stack[2]);
    run(x.get(), scale.get(), read_norm(stack + 3), out.get());
}

// Sums t to these sizes, over the dimensions along which the scale is broadcast.
Tensor summed_to(const Tensor& t, const Dims& sizes) {
    using torch::stable::detail::from;
    const torch::headeronly::IntHeaderOnlyArrayRef wanted_sizes(sizes.size, static_cast<size_t>(sizes.ndim));
    std::array<StableIValue, 2> stack{from(t), from(wanted_sizes)};
    check(torch_call_dispatcher("aten::sum_to_size", "", stack.data(), TORCH_ABI_VERSION));
    return torch::stable::detail::to<Tensor>(stack[0]);
}

// Replaces the arguments grad, x, scale and the attributes by dx and, if it is needed, dscale.
void differentiate(StableIValue* stack, bool needs_dscale) {
    Owned grad(stack[0]), x(stack[1]), scale(stack[2]);
    const PackedNorm a = read_norm(stack + 3);
    NormCall call("rms_norm_backward", x.get(), scale.get(), a.axis);
    call.convert_expanded_scale_to_double();
    const Tensor grad_read = call.as_doubles_if_scale_is_expanded(grad.get());
    const AtenTensorHandle scale_read = call.scale_tensor().get();
    Owned dx = empty_of(x.get(), x.get());
    const npu_rope_tensor grad_view = call.read("grad", grad_read.get()), x_view = call.read("x", x.get());
    const npu_rope_tensor scale_view = call.scale();
    const npu_rope_tensor dx_view = call.written("dx", dx.get());
    auto run = [&](const npu_rope_tensor* dscale_view) {
        raise_on(npu_rope_rms_norm_backward(&grad_view, &x_view, &scale_view, call.axis(), a.epsilon, a.stash_type,
                                            &dx_view, dscale_view));
        stack[0] = torch::stable::detail::from(dx.release());
    };
    if (!needs_dscale) return run(nullptr);
    Owned dscale = empty_of(call.scale_is_expanded() ? scale_read : scale.get(), scale_read);
    const npu_rope_tensor dscale_view = call.view_like_scale(dscale.get());
    run(&dscale_view);
    if (!call.scale_is_expanded()) {
        stack[1] = torch::stable::detail::from(dscale.release());
        return;
    }
    const Tensor summed = summed_to(Tensor(dscale.release()), dims_of(scale.get()));
    stack[1] = torch::stable::detail::from(torch::stable::to(summed, reference_to(scale.get()).scalar_type()));
}

// rms_norm_backward(grad, x, scale, attributes)
void rms_norm_backward(StableIValue* stack, uint64_t, uint64_t) { differentiate(stack, /*needs_dscale=*/true); }

// rms_norm_backward_dx(grad, x, scale, attributes)
void rms_norm_backward_dx(StableIValue* stack, uint64_t, uint64_t) { differentiate(stack, /*needs_dscale=*/false); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rms_norm", &rms_norm);
    m.impl("rms_norm_packed", &rms_norm_packed);
    m.impl("rms_norm_out", &rms_norm_out);
    m.impl("rms_norm_rounded_last", &rms_norm_rounded_last);
    m.impl("rms_norm_backward", &rms_norm_backward);
    m.impl("rms_norm_backward_dx", &rms_norm_backward_dx);
}
