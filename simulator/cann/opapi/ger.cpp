// Products of two vectors.
//
// aclnnGer: out[i][j] = self[i] * vec2[j], in the type to which both vectors are promoted. Integers wrap. Sources:
// hicann/ops-math math/ger/docs/aclnnGer.md and op_api/aclnn_ger.cpp. The document does not list Ascend310P; the source
// uses the kernel Ger for float16 and float32, and Mul for the other types.
//
// aclnnDot: out = sum of self[i] * tensor[i]. Sources: hicann/ops-math math/dot/docs/aclnnDot.md and
// op_api/aclnn_dot.cpp; the kernel of CANN 8.1, opp/built-in/op_impl/ai_core/tbe/impl/dynamic/dot.py, adds integers in
// int32 and bfloat16 in float32.
#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"
#include "cann/opapi/sums.h"

namespace simulated_cann {
namespace {

aclError prepare_ger(const aclTensor* self_tensor, const aclTensor* vec2_tensor, const aclTensor* out_tensor,
                     uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnGer");
    const TypesByChip types = undocumented_on_310p(kNumberTypes, kNumberTypes);
    const Operand self = call.input("self", self_tensor, types, {1, 1});
    const Operand vec2 = call.input("vec2", vec2_tensor, types, {1, 1});
    const Operand out = call.output("out", out_tensor, types, {2, 2});
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int32_t dtype = promoted_dtype(self.dtype, true, vec2.dtype, true);
    call.require(can_cast(dtype, out.dtype), "out",
                 std::string("have a type to which ") + dtype_name(dtype) + " converts", dtype_name(out.dtype));
    call.require_shape("out", out, {self.shape[0], vec2.shape[0]});
    for (const Operand* operand : {&self, &vec2})
        if (operand->dtype != dtype) call.ask_workspace(operand->count() * dtype_bytes(dtype));
    if (out.dtype != dtype) call.ask_workspace(out.count() * dtype_bytes(dtype));
    auto body = [self, vec2, out, dtype] {
        call_with_compute_type(dtype, [&](auto zero) {
            using Compute = decltype(zero);
            const auto a = values_of<Compute>(self), b = values_of<Compute>(vec2);
            std::vector<Compute> products;
            products.reserve(a.size() * b.size());
            for (Compute left : a)
                for (Compute right : b) products.push_back(Compute(to_wrapping(left) * to_wrapping(right)));
            round_to(dtype, &products);
            set_values(out, products);
        });
    };
    return call.finish(body, bytes, executor);
}

aclError prepare_dot(const aclTensor* self_tensor, const aclTensor* other_tensor, const aclTensor* out_tensor,
                     uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnDot");
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes | type_set({kInt8, kInt32, kUint8}));
    const Operand self = call.input("self", self_tensor, types, {1, 1});
    const Operand other = call.input("tensor", other_tensor, types, {1, 1});
    const Operand out = call.output("out", out_tensor, types, {0, 0});
    call.require_dtype("tensor", other, self.dtype);
    call.require_dtype("out", out, self.dtype);
    call.require_shape("tensor", other, self.shape);
    auto body = [self, other, out] {
        call_with_compute_type(self.dtype, [&](auto zero) {
            using Compute = decltype(zero);
            auto products = values_of<Compute>(self);
            const auto factors = values_of<Compute>(other);
            for (size_t i = 0; i < products.size(); ++i) products[i] *= factors[i];
            set_values(out, std::vector<Compute>{lane_sum(products.data(), self.count())});
        });
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnGerGetWorkspaceSize(const aclTensor* self, const aclTensor* vec2, aclTensor* out,
                                               uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_ger(self, vec2, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGer)

NPU_CANN_API aclError aclnnDotGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor, aclTensor* out,
                                               uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_dot(self, tensor, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnDot)
