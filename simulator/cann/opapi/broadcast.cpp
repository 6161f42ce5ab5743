// Elementwise functions of several tensors that broadcast: Maximum, Minimum, LogicalAnd, LogicalOr, SWhere,
// InplaceMaskedFillScalar, Addcdiv, Addcmul and Lerp, with their in-place forms. The comment before each function names
// its document and, where it matters, its source.
#include <algorithm>
#include <cmath>

#include "cann/opapi/elementwise.h"

namespace simulated_cann {
namespace {

// NaN if one of the values is NaN, as in torch.
constexpr auto kMaximum = [](auto a, auto b) { return a != a || a > b ? a : b; };
constexpr auto kMinimum = [](auto a, auto b) { return a != a || a < b ? a : b; };
constexpr auto kAnd = [](bool a, bool b) { return a && b; };
constexpr auto kOr = [](bool a, bool b) { return a || b; };

// hicann/ops-math math/maximum/docs/aclnnMaximum.md, op_api/aclnn_maximum.cpp, and the same files of minimum.
template <class Op>
aclError prepare_extremum(const char* name, const TypesByChip& types, Op op, const aclTensor* self_tensor,
                          const aclTensor* other_tensor, const aclTensor* out_tensor, uint64_t* bytes,
                          aclOpExecutor** executor) {
    FirstPhase call(name);
    const Operand self = call.input("self", self_tensor, types);
    const Operand other = call.input("other", other_tensor, types);
    const Operand out = call.output("out", out_tensor, types);
    const int32_t dtype = require_common_type(&call, {"self", self}, {"other", other});
    require_conversion(&call, dtype, "out", out);
    require_broadcast(&call, {{"self", self}, {"other", other}}, "out", out);
    ask_workspace_for_casts(&call, dtype, {&self, &other, &out});
    return call.finish([=] { compute<Kinds::kReal>(out, self, other, dtype, op); }, bytes, executor);
}

// The values of a tensor as bool (0 or 1), after broadcasting.
std::vector<int64_t> truth_of(const Operand& operand, const std::vector<int64_t>& shape) {
    std::vector<int64_t> truth;
    truth.reserve(static_cast<size_t>(operand.broadcast_to(shape).count()));
    call_with_compute_type(operand.dtype, [&](auto zero) {
        using Compute = decltype(zero);
        for (const Compute& value : values_of<Compute>(operand.broadcast_to(shape)))
            truth.push_back(value != Compute(0));
    });
    return truth;
}

// hicann/ops-math math/logical_and/docs/aclnnLogicalAnd&aclnnInplaceLogicalAnd.md, op_api/aclnn_logical_and.cpp, and
// the same files of logical_or. The kernel takes and returns bool.
template <class Op>
aclError prepare_logical(const char* name, Op op, const aclTensor* self_tensor, const aclTensor* other_tensor,
                         const aclTensor* out_tensor, bool in_place, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(name);
    const TypesByChip types = with_bf16_except_310p(kNumberTypes);
    const Operand self =
        in_place ? call.in_place("selfRef", self_tensor, types) : call.input("self", self_tensor, types);
    const Operand other = call.input("other", other_tensor, types);
    const Operand out = in_place ? self : call.output("out", out_tensor, types);
    const char* self_name = in_place ? "selfRef" : "self";
    require_broadcast(&call, {{self_name, self}, {"other", other}}, in_place ? "selfRef" : "out", out);
    ask_workspace_for_casts(&call, kBool, {&self, &other, &out});
    const auto body = [=] {
        std::vector<int64_t> values = truth_of(self, out.shape);
        const std::vector<int64_t> others = truth_of(other, out.shape);
        for (size_t i = 0; i < values.size(); ++i) values[i] = op(values[i] != 0, others[i] != 0);
        set_values(out, values);
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/select/docs/aclnnSWhere.md, op_api/aclnn_s_where.cpp. If self and other are bool, the source
// copies the result to out without a conversion (ViewCopy of conversion/contiguous/op_host/op_api/contiguous.cpp). It
// does not check whether there is a common type, and the cast to it fails; the document has the status 161002.
aclError prepare_where(const aclTensor* condition_tensor, const aclTensor* self_tensor, const aclTensor* other_tensor,
                       const aclTensor* out_tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnSWhere");
    const TypesByChip types = with_bf16_except_310p(kNumberTypes | kWideUnsigned);
    const Operand condition = call.input("condition", condition_tensor, on_all(type_set({kUint8, kBool})));
    const Operand self = call.input("self", self_tensor, types);
    const Operand other = call.input("other", other_tensor, types);
    const Operand out = call.output("out", out_tensor, types);
    require_broadcast(&call, {{"self", self}, {"other", other}, {"condition", condition}}, "out", out);
    call.require_inner(kAclnnInnerNullptr, promotion_error(self.dtype, other.dtype).empty(), "self and other",
                       "have a common type", dtype_name(self.dtype) + std::string(" and ") + dtype_name(other.dtype));
    const int32_t dtype = require_common_type(&call, {"self", self}, {"other", other});
    require_conversion(&call, dtype, "out", out);
    call.require_inner(kAclnnInnerNullptr, dtype != kBool || out.dtype == kBool, "out", "be bool",
                       dtype_name(out.dtype));
    ask_workspace_for_casts(&call, dtype, {&self, &other, &out});
    ask_workspace_for_casts(&call, kBool, {&condition});
    const auto body = [=] {
        const std::vector<int64_t> truth = truth_of(condition, out.shape);
        call_with_compute_type(dtype, [&](auto zero) {
            using Compute = decltype(zero);
            std::vector<Compute> values = values_as<Compute>(dtype, self.broadcast_to(out.shape));
            const std::vector<Compute> others = values_as<Compute>(dtype, other.broadcast_to(out.shape));
            for (size_t i = 0; i < values.size(); ++i)
                if (!truth[i]) values[i] = others[i];
            set_result(out, dtype, &values);
        });
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math conversion/masked_fill/docs/aclnnInplaceMaskedFillScalar.md, op_api/aclnn_masked_fill_scalar.cpp. The
// document does not allow a mask that is not contiguous, but the source packs such a mask. The document does not list
// float64 for the value, but the source accepts every scalar, and PyTorch passes a double.
aclError prepare_masked_fill(const aclTensor* self_tensor, const aclTensor* mask_tensor, const aclScalar* value,
                             uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnInplaceMaskedFillScalar");
    constexpr uint32_t kTypes = kHalfAndFloatTypes | kIndexTypes | kBoolType | type_set({kInt8});
    constexpr uint32_t kDoubleType = type_set({kDouble});
    const TypesByChip types = with_bf16_except_310p(kTypes);
    const Operand self = call.in_place("selfRef", self_tensor, types);
    const Operand mask = call.input("mask", mask_tensor, on_all(kBoolType));
    call.report_beyond_document_unless_contiguous("mask", mask);
    call.scalar<double>("value", value, with_undocumented(types, kDoubleType, kDoubleType));
    require_conversion(&call, "value", value, self.dtype);
    require_broadcast(&call, {{"selfRef", self}, {"mask", mask}}, "selfRef", self);
    ask_workspace_in_place(&call, self);
    const aclScalar scalar = value ? *value : aclScalar{};
    const auto body = [=] {
        const std::vector<int64_t> truth = truth_of(mask, self.shape);
        call_with_compute_type(self.dtype, [&](auto zero) {
            using Compute = decltype(zero);
            std::vector<Compute> values = values_of<Compute>(self);
            for (size_t i = 0; i < values.size(); ++i)
                if (truth[i]) values[i] = scalar_as<Compute>(scalar);
            set_values(self, values);
        });
    };
    return call.finish(body, bytes, executor);
}

// Integers wrap in two's complement. An integer quotient is truncated, and a division by 0 gives 0.
constexpr auto kAddProduct = [](auto self, auto a, auto b, auto value) {
    if constexpr (std::is_integral_v<decltype(self)>)
        return static_cast<int64_t>(uint64_t(self) + uint64_t(value) * uint64_t(a) * uint64_t(b));
    else
        return self + value * (a * b);
};
constexpr auto kAddQuotient = [](auto self, auto a, auto b, auto value) {
    if constexpr (std::is_integral_v<decltype(self)>) {
        const int64_t quotient = b == 0 ? 0 : b == -1 ? int64_t(-uint64_t(a)) : a / b;
        return static_cast<int64_t>(uint64_t(self) + uint64_t(value) * uint64_t(quotient));
    } else {
        return self + value * (a / b);
    }
};

// hicann/ops-math math/addcdiv/docs/aclnnAddcdiv&aclnnInplaceAddcdiv.md, op_api/aclnn_addcdiv.cpp, and the same files
// of addcmul. The documents do not list Ascend310P, for which the sources have lists of types: float16 and float32 (for
// addcmul also int32) run on the AI core, the others on the AI CPU. The scalar is cast to the common type of the
// tensors.
template <class Op>
aclError prepare_addc(const char* name, uint32_t type_bits, Op op, const aclTensor* self_tensor,
                      const aclTensor* tensor1, const aclTensor* tensor2, const aclScalar* value,
                      const aclTensor* out_tensor, bool in_place, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(name);
    const TypesByChip types = undocumented_on_310p(type_bits);
    const char* self_name = in_place ? "selfRef" : "self";
    const Operand self =
        in_place ? call.in_place(self_name, self_tensor, types) : call.input(self_name, self_tensor, types);
    const Operand a = call.input("tensor1", tensor1, types), b = call.input("tensor2", tensor2, types);
    call.scalar<double>("value", value, types);
    const Operand out = in_place ? self : call.output("out", out_tensor, types);
    const int32_t common = require_common_type(&call, {"tensor1", a}, {"tensor2", b});
    const int32_t dtype = promoted_dtype(self.dtype, true, common, true);
    if (call.is_valid())
        call.require((type_bits | kBf16) >> dtype & 1, "the common type of the tensors", "be one of the types of self",
                     dtype_name(dtype));
    require_conversion(&call, "value", value, dtype);
    require_conversion(&call, dtype, in_place ? self_name : "out", out);
    require_broadcast(&call, {{self_name, self}, {"tensor1", a}, {"tensor2", b}}, in_place ? self_name : "out", out);
    ask_workspace_for_casts(&call, dtype, {&self, &a, &b, &out});
    const aclScalar scalar = value ? *value : aclScalar{};
    const auto body = [=] {
        call_with_compute_type(dtype, [&](auto zero) {
            using Compute = decltype(zero);
            if constexpr (kIsAmong<Kinds::kReal, Compute>) {
                std::vector<Compute> values = values_as<Compute>(dtype, self.broadcast_to(out.shape));
                const std::vector<Compute> firsts = values_as<Compute>(dtype, a.broadcast_to(out.shape));
                const std::vector<Compute> seconds = values_as<Compute>(dtype, b.broadcast_to(out.shape));
                std::vector<Compute> factor{scalar_as<Compute>(scalar)};
                round_to(dtype, &factor);
                for (size_t i = 0; i < values.size(); ++i) values[i] = op(values[i], firsts[i], seconds[i], factor[0]);
                set_result(out, dtype, &values);
            }
        });
    };
    return call.finish(body, bytes, executor);
}

// hicann/ops-math math/lerp/docs/aclnnLerp&aclnnInplaceLerp.md.
aclError prepare_lerp(const char* name, const aclTensor* self_tensor, const aclTensor* end_tensor,
                      const aclTensor* weight_tensor, const aclTensor* out_tensor, bool in_place, uint64_t* bytes,
                      aclOpExecutor** executor) {
    FirstPhase call(name);
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const char* self_name = in_place ? "selfRef" : "self";
    const Operand self =
        in_place ? call.in_place(self_name, self_tensor, types) : call.input(self_name, self_tensor, types);
    const Operand end = call.input("end", end_tensor, types), weight = call.input("weight", weight_tensor, types);
    const Operand out = in_place ? self : call.output("out", out_tensor, types);
    call.require_dtype("end", end, self.dtype);
    call.require_dtype("weight", weight, self.dtype);
    call.require_dtype("out", out, self.dtype);
    require_broadcast(&call, {{self_name, self}, {"end", end}, {"weight", weight}}, in_place ? self_name : "out", out);
    if (in_place) ask_workspace_in_place(&call, self);
    const auto body = [=] {
        std::vector<float> values = values_of<float>(self.broadcast_to(out.shape));
        const std::vector<float> ends = values_of<float>(end.broadcast_to(out.shape));
        const std::vector<float> weights = values_of<float>(weight.broadcast_to(out.shape));
        for (size_t i = 0; i < values.size(); ++i) values[i] += weights[i] * (ends[i] - values[i]);
        set_values(out, values);
    };
    return call.finish(body, bytes, executor);
}

constexpr TypesByChip kMaximumTypes = with_bf16_except_310p(kRealTypes);
constexpr TypesByChip kMinimumTypes = by_chip(kRealTypes | kBf16, kRealTypes & ~kBoolType);
constexpr uint32_t kAddcdivTypes = kHalfToDoubleTypes | type_set({kInt64});
constexpr uint32_t kAddcmulTypes = kHalfToDoubleTypes | type_set({kInt8, kUint8, kInt32, kInt64});

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnMaximumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclTensor* out,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_extremum("aclnnMaximum", kMaximumTypes, kMaximum, self, other, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnMaximum)

NPU_CANN_API aclError aclnnMinimumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclTensor* out,
                                                   uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_extremum("aclnnMinimum", kMinimumTypes, kMinimum, self, other, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnMinimum)

NPU_CANN_API aclError aclnnLogicalAndGetWorkspaceSize(const aclTensor* self, const aclTensor* other,
                                                      const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_logical("aclnnLogicalAnd", kAnd, self, other, out, false, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnLogicalAnd)

NPU_CANN_API aclError aclnnInplaceLogicalAndGetWorkspaceSize(const aclTensor* self, const aclTensor* other,
                                                             uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_logical("aclnnInplaceLogicalAnd", kAnd, self, other, nullptr, true, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceLogicalAnd)

NPU_CANN_API aclError aclnnLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other,
                                                     const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_logical("aclnnLogicalOr", kOr, self, other, out, false, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnLogicalOr)

NPU_CANN_API aclError aclnnInplaceLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other,
                                                            uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_logical("aclnnInplaceLogicalOr", kOr, self, other, nullptr, true, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceLogicalOr)

NPU_CANN_API aclError aclnnSWhereGetWorkspaceSize(const aclTensor* condition, const aclTensor* self,
                                                  const aclTensor* other, const aclTensor* out, uint64_t* bytes,
                                                  aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_where(condition, self, other, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSWhere)

NPU_CANN_API aclError aclnnInplaceMaskedFillScalarGetWorkspaceSize(const aclTensor* self, const aclTensor* mask,
                                                                   const aclScalar* value, uint64_t* bytes,
                                                                   aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_masked_fill(self, mask, value, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceMaskedFillScalar)

NPU_CANN_API aclError aclnnAddcdivGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1,
                                                   const aclTensor* tensor2, const aclScalar* value,
                                                   const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_addc("aclnnAddcdiv", kAddcdivTypes, kAddQuotient, self, tensor1, tensor2, value, out, false, bytes,
                        executor);
}
NPU_CANN_SECOND_PHASE(aclnnAddcdiv)

NPU_CANN_API aclError aclnnInplaceAddcdivGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1,
                                                          const aclTensor* tensor2, const aclScalar* value,
                                                          uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_addc("aclnnInplaceAddcdiv", kAddcdivTypes, kAddQuotient, self, tensor1, tensor2, value, nullptr,
                        true, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceAddcdiv)

NPU_CANN_API aclError aclnnAddcmulGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1,
                                                   const aclTensor* tensor2, const aclScalar* value,
                                                   const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_addc("aclnnAddcmul", kAddcmulTypes, kAddProduct, self, tensor1, tensor2, value, out, false, bytes,
                        executor);
}
NPU_CANN_SECOND_PHASE(aclnnAddcmul)

NPU_CANN_API aclError aclnnInplaceAddcmulGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1,
                                                          const aclTensor* tensor2, const aclScalar* value,
                                                          uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_addc("aclnnInplaceAddcmul", kAddcmulTypes, kAddProduct, self, tensor1, tensor2, value, nullptr, true,
                        bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceAddcmul)

NPU_CANN_API aclError aclnnLerpGetWorkspaceSize(const aclTensor* self, const aclTensor* end, const aclTensor* weight,
                                                const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_lerp("aclnnLerp", self, end, weight, out, false, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnLerp)

NPU_CANN_API aclError aclnnInplaceLerpGetWorkspaceSize(const aclTensor* self, const aclTensor* end,
                                                       const aclTensor* weight, uint64_t* bytes,
                                                       aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_lerp("aclnnInplaceLerp", self, end, weight, nullptr, true, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceLerp)
