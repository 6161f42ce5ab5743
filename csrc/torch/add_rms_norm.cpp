// add_rms_norm for CPU tensors, through torch's stable ABI. Schemas, fakes and gradients are in
// npu_rope/ops/add_rms_norm.py; this file has the kernels.
#include "csrc/torch/rms_norm_call.h"

namespace {

using namespace npu_rope;

void run(AtenTensorHandle x, AtenTensorHandle residual, AtenTensorHandle scale, const PackedNorm& a,
         AtenTensorHandle out, AtenTensorHandle sum) {
    NormCall call("add_rms_norm", x, scale, a.axis);
    const npu_rope_tensor x_view = call.read("x", x), residual_view = call.read("residual", residual);
    const npu_rope_tensor scale_view = call.scale();
    const npu_rope_tensor out_view = call.written("out", out), sum_view = call.written("sum", sum);
    raise_on(npu_rope_add_rms_norm(&x_view, &residual_view, &scale_view, call.axis(), a.epsilon, a.stash_type,
                                   &out_view, &sum_view));
}

// add_rms_norm(x, residual, scale, attributes)
void add_rms_norm(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), residual(stack[1]), scale(stack[2]);
    Owned out = empty_of(x.get(), scale.get()), sum = empty_of(x.get(), x.get());
    run(x.get(), residual.get(), scale.get(), read_norm(stack + 3), out.get(), sum.get());
    stack[0] = torch::stable::detail::from(out.release());
    stack[1] = torch::stable::detail::from(sum.release());
}

// add_rms_norm_out(x, residual, scale, out, sum, attributes)
void add_rms_norm_out(StableIValue* stack, uint64_t, uint64_t) {
    Owned x(stack[0]), residual(stack[1]), scale(stack[2]), out(stack[3]), sum(stack[4]);
    run(x.get(), residual.get(), scale.get(), read_norm(stack + 5), out.get(), sum.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("add_rms_norm", &add_rms_norm);
    m.impl("add_rms_norm_out", &add_rms_norm_out);
}
