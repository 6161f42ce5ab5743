// Gated activations: the input is split in two halves along a dimension, and one half is multiplied by the activation
// of the other.
#include <cmath>

#include "cann/opapi/first_phase.h"
#include "cann/opapi/gelu.h"

namespace simulated_cann {
namespace {

// Half `index` of the tensor along a dimension of even size.
Operand half_of(const Operand& operand, size_t dim, int64_t index) {
    Operand half = operand;
    half.shape[dim] /= 2;
    if (half.first) half.first += index * half.shape[dim] * half.strides[dim] * dtype_bytes(half.dtype);
    return half;
}

struct Split {
    size_t dim = 0;
    std::vector<int64_t> half_shape;
};

Split require_even_dimension(FirstPhase* call, const char* name, const Operand& operand, int64_t dim) {
    Split split{call->dimension("dim", dim, operand.shape.size()), {}};
    if (!call->is_valid()) return split;
    call->require(operand.shape[split.dim] % 2 == 0, name, "have an even size along dim", operand.shape[split.dim]);
    split.half_shape = operand.shape;
    split.half_shape[split.dim] /= 2;
    return split;
}

// hicann/ops-nn activation/ge_glu_v2/docs/aclnnGeGlu.md and aclnnGeGluV3.md, op_host/op_api/aclnn_geglu.cpp. The
// documents allow a self without dimensions, but the source cannot give an output shape for it. The simulation refuses
// such a self.
struct GegluCall {
    Operand self, out, gelu_out;
    size_t dim = 0;
    int64_t approximate = kGeluErf;
    bool activates_left = false;
};

void run_geglu(const GegluCall& call) {
    std::vector<float> gelu = values_of<float>(half_of(call.self, call.dim, call.activates_left ? 0 : 1));
    std::vector<float> product = values_of<float>(half_of(call.self, call.dim, call.activates_left ? 1 : 0));
    for (float& value : gelu) value = gelu_of(value, call.approximate);
    // The kernel of float16 multiplies the rounded result, the one of bfloat16 the unrounded result:
    // ge_glu_v2/op_kernel tanh/ge_glu_v2_fp16_align.h and tanh/ge_glu_v2_bf16_align.h.
    if (call.self.dtype == kFloat16) round_to(kFloat16, &gelu);
    for (size_t i = 0; i < gelu.size(); ++i) product[i] *= gelu[i];
    set_values(call.out, product);
    set_values(call.gelu_out, gelu);
}

aclError prepare_geglu(const char* name, const aclTensor* self, int64_t dim, int64_t approximate, bool activates_left,
                       const aclTensor* out, const aclTensor* gelu_out, uint64_t* bytes, aclOpExecutor** executor) {
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    FirstPhase phase(name);
    GegluCall call;
    call.self = phase.input("self", self, types, {1, 8});
    call.out = phase.output("out", out, types);
    call.gelu_out = phase.output("outGelu", gelu_out, types);
    phase.require_dtype("out", call.out, call.self.dtype);
    phase.require_dtype("outGelu", call.gelu_out, call.self.dtype);
    const Split split = require_even_dimension(&phase, "self", call.self, dim);
    phase.require_shape("out", call.out, split.half_shape);
    phase.require_shape("outGelu", call.gelu_out, split.half_shape);
    phase.require(approximate == kGeluErf || approximate == kGeluTanh, "approximate", "be 0 or 1", approximate);
    call.dim = split.dim;
    call.approximate = approximate;
    call.activates_left = activates_left;
    return phase.finish([call] { run_geglu(call); }, bytes, executor);
}

// The kernels of SwiGlu and SwiGluGrad process a half of the split dimension and of the dimensions after it as one row.
// The size of the row must be a multiple of 64 bytes. Sources: hicann/ops-nn activation/swi_glu/docs/aclnnSwiGlu.md,
// and for Ascend310P activation/swi_glu/op_host/swi_glu_tiling.cpp, CalcTiling.
void require_aligned_rows(FirstPhase* call, const char* name, const Operand& operand, size_t dim) {
    if (!call->is_valid()) return;
    int64_t row_bytes = dtype_bytes(operand.dtype);
    for (size_t i = dim; i < operand.shape.size(); ++i) row_bytes *= operand.shape[i];
    row_bytes /= 2;
    call->require_inner(kAclnnTilingError, row_bytes % 64 == 0, std::string("a half of ") + name,
                        "have rows of a multiple of 64 bytes", std::to_string(row_bytes));
}

void require_elements(FirstPhase* call, const char* name, const Operand& operand) {
    call->require(operand.count() != 0, name, "not be empty", shape_text(operand.shape));
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// hicann/ops-nn activation/swi_glu/docs/aclnnSwiGlu.md. All types are computed in float32: op_kernel/swi_glu.cpp. The
// document says that x must be contiguous, but the generated function packs it: op_host/swi_glu_def.cpp,
// AutoContiguous.
aclError prepare_swiglu(const aclTensor* x_tensor, int64_t dim, const aclTensor* out_tensor, uint64_t* bytes,
                        aclOpExecutor** executor) {
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    FirstPhase call("aclnnSwiGlu");
    const Operand x = call.input("x", x_tensor, types, {1, 8});
    const Operand out = call.output("out", out_tensor, types);
    call.report_beyond_document_unless_contiguous("x", x);
    call.require_dtype("out", out, x.dtype);
    call.require_contiguous("out", out);
    const Split split = require_even_dimension(&call, "x", x, dim);
    call.require_shape("out", out, split.half_shape);
    if (is_ascend310p()) require_elements(&call, "x", x);
    if (is_ascend310p()) require_aligned_rows(&call, "x", x, split.dim);
    const auto body = [x, out, split] {
        std::vector<float> a = values_of<float>(half_of(x, split.dim, 0));
        const std::vector<float> b = values_of<float>(half_of(x, split.dim, 1));
        for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] / (1.0F + std::exp(-a[i])) * b[i];
        set_values(out, a);
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-nn activation/swi_glu_grad/docs/aclnnSwiGluGrad.md. The document requires aligned rows on every chip.
aclError prepare_swiglu_grad(const aclTensor* grad_tensor, const aclTensor* x_tensor, int64_t dim,
                             const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    FirstPhase call("aclnnSwiGluGrad");
    const Operand grad = call.input("yGrad", grad_tensor, types, {1, 8});
    const Operand x = call.input("x", x_tensor, types, {1, 8});
    const Operand out = call.output("out", out_tensor, types, {1, 8});
    call.require_dtype("yGrad", grad, x.dtype);
    call.require_dtype("out", out, x.dtype);
    call.require_contiguous("yGrad", grad);
    call.require_contiguous("out", out);
    const Split split = require_even_dimension(&call, "x", x, dim);
    call.require_shape("yGrad", grad, split.half_shape);
    call.require_shape("out", out, x.shape);
    require_elements(&call, "x", x);
    require_aligned_rows(&call, "x", x, split.dim);
    const auto body = [grad, x, out, split] {
        std::vector<float> a = values_of<float>(half_of(x, split.dim, 0));
        std::vector<float> b = values_of<float>(half_of(x, split.dim, 1));
        const std::vector<float> g = values_of<float>(grad);
        for (size_t i = 0; i < a.size(); ++i) {
            const float s = sigmoid(a[i]), left = a[i];
            a[i] = g[i] * (s + s * (1.0F - s) * left) * b[i];
            b[i] = g[i] * s * left;
        }
        set_values(half_of(out, split.dim, 0), a);
        set_values(half_of(out, split.dim, 1), b);
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnGeGluGetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t approximate,
                                                 const aclTensor* out, const aclTensor* outGelu, uint64_t* bytes,
                                                 aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_geglu("aclnnGeGlu", self, dim, approximate, false, out, outGelu, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGeGlu)

NPU_CANN_API aclError aclnnGeGluV3GetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t approximate,
                                                   bool activateLeft, const aclTensor* out, const aclTensor* outGelu,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_geglu("aclnnGeGluV3", self, dim, approximate, activateLeft, out, outGelu, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGeGluV3)

NPU_CANN_API aclError aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out,
                                                  uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_swiglu(x, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSwiGlu)

NPU_CANN_API aclError aclnnSwiGluGradGetWorkspaceSize(const aclTensor* yGrad, const aclTensor* x, int64_t dim,
                                                      const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_swiglu_grad(yGrad, x, dim, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSwiGluGrad)
