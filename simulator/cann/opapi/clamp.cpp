// Functions that limit the elements of a tensor by scalars: Clamp, ClampMin, ClampMax and InplaceClampMax. Sources:
// hicann/ops-math conversion/clip_by_value_v2/docs/aclnnClamp.md, aclnnClampMin.md and
// aclnnClampMax&aclnnInplaceClampMax.md, and op_api/aclnn_clamp.cpp. The kernel computes in the type of out, to which
// self and the limits are cast.
#include "cann/opapi/elementwise.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kClampTypes = kHalfToDoubleTypes | kIntegerTypes;
constexpr UnaryRule kClampRule{
    with_bf16_except_310p(kClampTypes), with_bf16_except_310p(kClampTypes), OutType::kAny, IntegersAs::kSelf, {1, 8}};

// The limits of a call. NULL if the function has no such limit, or the caller gives none.
struct Limits {
    const aclScalar* min = nullptr;
    const aclScalar* max = nullptr;
};

template <class Compute>
Compute limit_as(const aclScalar& scalar, int32_t dtype) {
    std::vector<Compute> value{scalar_as<Compute>(scalar)};
    round_to(dtype, &value);
    return value[0];
}

void run_clamp(const Operand& out, const Operand& self, const std::optional<aclScalar>& min,
               const std::optional<aclScalar>& max) {
    call_with_compute_type(out.dtype, [&](auto zero) {
        using Compute = decltype(zero);
        if constexpr (kIsAmong<Kinds::kReal, Compute>) {
            const Compute least = min ? limit_as<Compute>(*min, out.dtype) : Compute{};
            const Compute most = max ? limit_as<Compute>(*max, out.dtype) : Compute{};
            compute<Kinds::kReal>(out, self, out.dtype, [&](auto x) {
                if (min && x < decltype(x)(least)) x = decltype(x)(least);
                if (max && x > decltype(x)(most)) x = decltype(x)(most);
                return x;
            });
        }
    });
}

aclError prepare_clamp(UnaryCall call, const Limits& limits, uint64_t* bytes, aclOpExecutor** executor) {
    const TypesByChip types = with_bf16_except_310p(kRealTypes);
    std::optional<aclScalar> min, max;
    if (limits.min || !limits.max) call.phase.scalar<double>("clipValueMin", limits.min, types);
    if (limits.max) call.phase.scalar<double>("clipValueMax", limits.max, types);
    if (limits.min) require_conversion(&call.phase, "clipValueMin", limits.min, call.self.dtype);
    if (limits.max) require_conversion(&call.phase, "clipValueMax", limits.max, call.self.dtype);
    require_conversion(&call.phase, call.self.dtype, "out", call.out);
    ask_workspace_for_casts(&call.phase, call.out.dtype, {&call.self});
    if (limits.min) min = *limits.min;
    if (limits.max) max = *limits.max;
    const auto body = [self = call.self, out = call.out, min, max] { run_clamp(out, self, min, max); };
    return call.phase.finish(body, bytes, executor);
}

// The limits of a function that has only a maximum. A NULL maximum is an error.
Limits only_max(UnaryCall* call, const aclScalar* max) {
    call->phase.scalar<double>("clipValueMax", max, with_bf16_except_310p(kRealTypes));
    return {nullptr, max};
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnClampGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMin,
                                                 const aclScalar* clipValueMax, const aclTensor* out, uint64_t* bytes,
                                                 aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_clamp(read_unary("aclnnClamp", kClampRule, self, out), {clipValueMin, clipValueMax}, bytes,
                         executor);
}
NPU_CANN_SECOND_PHASE(aclnnClamp)

NPU_CANN_API aclError aclnnClampMinGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMin,
                                                    const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_clamp(read_unary("aclnnClampMin", kClampRule, self, out), {clipValueMin, nullptr}, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnClampMin)

NPU_CANN_API aclError aclnnClampMaxGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMax,
                                                    const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    UnaryCall call = read_unary("aclnnClampMax", kClampRule, self, out);
    const Limits limits = only_max(&call, clipValueMax);
    return prepare_clamp(call, limits, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnClampMax)

NPU_CANN_API aclError aclnnInplaceClampMaxGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMax,
                                                           uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    UnaryCall call = read_in_place("aclnnInplaceClampMax", kClampRule, self);
    const Limits limits = only_max(&call, clipValueMax);
    return prepare_clamp(call, limits, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceClampMax)
