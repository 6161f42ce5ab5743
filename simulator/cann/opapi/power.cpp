// Powers: PowTensorTensor, PowTensorScalar and PowScalarTensor, and the first two in place. Sources: hicann/ops-math
// math/pow/docs/aclnnPow*.md, op_api/aclnn_pow.cpp and op_api/aclnn_pow_tensor_tensor.cpp.
#include <cmath>
#include <limits>

#include "cann/opapi/elementwise.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kPowTypes = kNumberTypes & ~kBoolType;  // for the in-place functions and PowScalarTensor

// Integers wrap in two's complement. A negative exponent gives the truncated quotient: 1 for the base 1, 1 or -1 for
// the base -1, and otherwise 0.
int64_t integer_power(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, factor = static_cast<uint64_t>(base);
    for (uint64_t bits = static_cast<uint64_t>(exponent); bits; bits >>= 1) {
        if (bits & 1) result *= factor;
        factor *= factor;
    }
    return static_cast<int64_t>(result);
}

constexpr auto kPower = [](auto base, auto exponent) {
    if constexpr (std::is_integral_v<decltype(base)>)
        return integer_power(base, exponent);
    else
        return std::pow(base, exponent);
};

void require_not_both_bool(FirstPhase* call, int32_t self, int32_t exponent) {
    call->require(self != kBool || exponent != kBool, "self and exponent", "not both be bool", "bool and bool");
}

// aclnn_pow.cpp, CheckDtypeValid, which first requires that the common type converts to out; then
// InferTensorScalarDtype and InferScalarTensorDtype.
int32_t type_with_scalar(FirstPhase* call, const char* tensor_name, const Operand& tensor, const char* scalar_name,
                         const aclScalar* scalar, const Operand& out, int32_t exponent_dtype) {
    if (!call->is_valid()) return tensor.dtype;
    call->require(promotion_error(tensor.dtype, scalar->dtype).empty(), scalar_name,
                  std::string("have a common type with ") + tensor_name, dtype_name(scalar->dtype));
    require_conversion(call, promoted_dtype(tensor.dtype, true, scalar->dtype, true), "out", out);
    if (exponent_dtype == kDouble && out.dtype == kFloat) return kFloat;
    const bool is_promoted = is_complex(scalar->dtype) ||
                             (!is_floating(tensor.dtype) && (is_floating(scalar->dtype) || tensor.dtype == kBool));
    return is_promoted ? promoted_dtype(tensor.dtype, true, scalar->dtype, true) : tensor.dtype;
}

// out[i] = power(self[i], scalar) or power(scalar, exponent[i]).
void run_with_scalar(const Operand& out, const Operand& tensor, const aclScalar& scalar, int32_t dtype,
                     bool is_scalar_exponent) {
    call_with_compute_type(dtype, [&](auto zero) {
        using Compute = decltype(zero);
        std::vector<Compute> fixed{scalar_as<Compute>(scalar)};
        round_to(dtype, &fixed);
        std::vector<Compute> values = values_as<Compute>(dtype, tensor);
        for (Compute& value : values)
            value = is_scalar_exponent ? Compute(kPower(value, fixed[0])) : Compute(kPower(fixed[0], value));
        set_result(out, dtype, &values);
    });
}

aclError prepare_tensor_tensor(const char* name, const aclTensor* self_tensor, const aclTensor* exponent_tensor,
                               const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(name);
    const TypesByChip types = with_bf16_except_310p(out_tensor ? kNumberTypes : kPowTypes);
    Operand self, out;
    if (out_tensor)
        self = call.input("self", self_tensor, types);
    else
        self = out = call.in_place("self", self_tensor, types);
    const Operand exponent = call.input("exponent", exponent_tensor, types);
    if (out_tensor) out = call.output("out", out_tensor, with_bf16_except_310p(kNumberTypes | kWideUnsigned));
    require_not_both_bool(&call, self.dtype, exponent.dtype);
    const int32_t dtype = require_common_type(&call, {"self", self}, {"exponent", exponent});
    require_conversion(&call, dtype, "out", out);
    require_broadcast(&call, {{"self", self}, {"exponent", exponent}}, "out", out);
    ask_workspace_for_casts(&call, dtype, {&self, &exponent, &out});
    const auto body = [self, exponent, out, dtype] { compute<Kinds::kNumbers>(out, self, exponent, dtype, kPower); };
    return call.finish(body, bytes, executor);
}

// The document limits the exponent: it is not negative if the type of the kernel is an integer, and it has a value in
// the range of that type.
void require_exponent(FirstPhase* call, const aclScalar* exponent, int32_t dtype) {
    if (!call->is_valid() || is_complex(dtype)) return;
    const auto value = scalar_as<double>(*exponent);
    std::vector<double> rounded{value};
    round_to(dtype, &rounded);
    if (!is_floating(dtype)) call->require(value >= 0, "exponent", "not be negative", number_text(value));
    const bool fits =
        is_floating(dtype) ? !std::isfinite(value) || std::isfinite(rounded[0]) : rounded[0] == std::trunc(value);
    call->require(fits, "exponent", std::string("be in the range of ") + dtype_name(dtype), number_text(value));
}

aclError prepare_tensor_scalar(UnaryCall call, const aclScalar* exponent, const TypesByChip& exponent_types,
                               uint64_t* bytes, aclOpExecutor** executor) {
    call.phase.scalar<double>("exponent", exponent, exponent_types);
    if (call.phase.is_valid()) require_not_both_bool(&call.phase, call.self.dtype, exponent->dtype);
    const int32_t dtype = type_with_scalar(&call.phase, "self", call.self, "exponent", exponent, call.out,
                                           exponent ? exponent->dtype : -1);
    require_conversion(&call.phase, dtype, "out", call.out);
    require_exponent(&call.phase, exponent, dtype);
    ask_workspace_for_casts(&call.phase, dtype, {&call.self, &call.out});
    const aclScalar scalar = exponent ? *exponent : aclScalar{};
    const auto body = [self = call.self, out = call.out, scalar, dtype] {
        run_with_scalar(out, self, scalar, dtype, true);
    };
    return call.phase.finish(body, bytes, executor);
}

constexpr UnaryRule kTensorScalarRule{with_bf16_except_310p(kNumberTypes),
                                      with_bf16_except_310p(kNumberTypes | kWideUnsigned),
                                      OutType::kAny,
                                      IntegersAs::kSelf,
                                      {},
                                      "self",
                                      "out",
                                      true};
constexpr UnaryRule kTensorScalarInPlace{with_bf16_except_310p(kPowTypes)};
constexpr UnaryRule kScalarTensorRule{with_bf16_except_310p(kPowTypes),
                                      with_bf16_except_310p(kPowTypes | kWideUnsigned),
                                      OutType::kAny,
                                      IntegersAs::kSelf,
                                      {},
                                      "exponent"};

aclError prepare_scalar_tensor(const aclScalar* self, const aclTensor* exponent, const aclTensor* out, uint64_t* bytes,
                               aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnPowScalarTensor", kScalarTensorRule, exponent, out);
    call.phase.scalar<double>("self", self, with_bf16_except_310p(kPowTypes));
    const int32_t dtype = type_with_scalar(&call.phase, "exponent", call.self, "self", self, call.out, call.self.dtype);
    require_conversion(&call.phase, dtype, "out", call.out);
    ask_workspace_for_casts(&call.phase, dtype, {&call.self, &call.out});
    const aclScalar scalar = self ? *self : aclScalar{};
    const auto body = [exponent = call.self, out = call.out, scalar, dtype] {
        run_with_scalar(out, exponent, scalar, dtype, false);
    };
    return call.phase.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnPowTensorTensorGetWorkspaceSize(const aclTensor* self, const aclTensor* exponent,
                                                           const aclTensor* out, uint64_t* bytes,
                                                           aclOpExecutor** executor) {
    using namespace simulated_cann;
    if (!out) return refuse("aclnnPowTensorTensor", std::string("out") + kMustNotBeNull);
    return prepare_tensor_tensor("aclnnPowTensorTensor", self, exponent, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnPowTensorTensor)

NPU_CANN_API aclError aclnnInplacePowTensorTensorGetWorkspaceSize(const aclTensor* self, const aclTensor* exponent,
                                                                  uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_tensor_tensor("aclnnInplacePowTensorTensor", self, exponent, nullptr, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplacePowTensorTensor)

NPU_CANN_API aclError aclnnPowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent,
                                                           const aclTensor* out, uint64_t* bytes,
                                                           aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_tensor_scalar(read_unary("aclnnPowTensorScalar", kTensorScalarRule, self, out), exponent,
                                 with_bf16_except_310p(kNumberTypes), bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnPowTensorScalar)

NPU_CANN_API aclError aclnnInplacePowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent,
                                                                  uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_tensor_scalar(read_in_place("aclnnInplacePowTensorScalar", kTensorScalarInPlace, self), exponent,
                                 with_bf16_except_310p(kPowTypes), bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplacePowTensorScalar)

NPU_CANN_API aclError aclnnPowScalarTensorGetWorkspaceSize(const aclScalar* self, const aclTensor* exponent,
                                                           const aclTensor* out, uint64_t* bytes,
                                                           aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_scalar_tensor(self, exponent, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnPowScalarTensor)
