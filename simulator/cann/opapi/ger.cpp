// aclnnGer: out[i][j] = self[i] * vec2[j], in the type to which both vectors are promoted. Sources: hicann/ops-math
// math/ger/docs/aclnnGer.md and op_api/aclnn_ger.cpp. The document does not list Ascend310P; the source uses the kernel
// Ger for float16 and float32, and Mul for the other types.
#include "cann/opapi/argument_types.h"
#include "cann/opapi/first_phase.h"

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
                for (Compute right : b) products.push_back(left * right);
            round_to(dtype, &products);
            set_values(out, products);
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
