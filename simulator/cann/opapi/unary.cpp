// Mathematical functions, rounding and logic of one tensor, and their in-place forms. Each rule names its document,
// hicann/ops-math math/<name>/docs/. The sources are next to it: op_api/aclnn_<name>.cpp has the types, and
// op_api/<name>.cpp those of the AI core; other types run on the AI CPU. CANN 8.1 has kernels on Ascend310P for all
// functions here (opp/built-in/op_impl/ai_core/tbe/config/ascend310p, and aicpu/*/config for other types).
#include <cmath>
#include <cstring>
#include <limits>

#include "cann/opapi/elementwise.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kInexactTypes = kHalfToDoubleTypes | kComplexTypes;
constexpr uint32_t kIntegersAndBool = kIntegerTypes | kBoolType;
constexpr RankRange kOneToEight{1, 8};

// math/cos/docs/aclnnCos&aclnnInplaceCos.md. The document states a precision of the float32 kernel only for inputs up
// to 1e7, and on Ascend310P up to 65504.
constexpr UnaryRule kCosRule{with_bf16_except_310p(kNumberTypes),
                             with_bf16_except_310p(kInexactTypes),
                             OutType::kConverted,
                             IntegersAs::kFloat,
                             {},
                             "input"};
constexpr UnaryRule kCosInPlace{with_bf16_except_310p(kInexactTypes),
                                with_bf16_except_310p(kInexactTypes),
                                OutType::kSelf,
                                IntegersAs::kSelf,
                                {},
                                "inputRef"};
// math/sin/docs/aclnnSin&aclnnInplaceSin.md.
constexpr UnaryRule kSinRule =
    converted(with_bf16_except_310p(kNumberTypes), with_bf16_except_310p(kInexactTypes), IntegersAs::kFloat);
constexpr UnaryRule kSinInPlace =
    same(with_undocumented(with_bf16_except_310p(kHalfAndFloatTypes), kInexactTypes, kInexactTypes));
// math/exp/docs/aclnnExp&aclnnInplaceExp.md.
constexpr TypesByChip kInexactUnlistedOn310p = undocumented_on_310p(kInexactTypes);
constexpr UnaryRule kExpRule = converted(undocumented_on_310p(kInexactTypes | kBoolType | type_set({kInt64})),
                                         kInexactUnlistedOn310p, IntegersAs::kFloat);
constexpr UnaryRule kInexactInPlaceUnlistedOn310p = same(kInexactUnlistedOn310p);
// math/log/docs/aclnnLog&aclnnInplaceLog.md.
constexpr UnaryRule kLogRule{undocumented_on_310p(kNumberTypes),
                             kInexactUnlistedOn310p,
                             OutType::kConverted,
                             IntegersAs::kFloat,
                             kOneToEight,
                             "self",
                             "out",
                             true};
constexpr UnaryRule kLogInPlace = same(kInexactUnlistedOn310p, kOneToEight);
// math/sqrt/docs/aclnnSqrt&aclnnInplaceSqrt.md. An int64 is computed in float64.
constexpr UnaryRule kSqrtRule =
    converted(undocumented_on_310p(kNumberTypes), kInexactUnlistedOn310p, IntegersAs::kFloatOrDouble);
// math/rsqrt/docs/aclnnRsqrt&aclnnInplaceRsqrt.md. Integers are cast to the type of out.
constexpr UnaryRule kRsqrtRule =
    converted(with_bf16_except_310p(kNumberTypes), with_bf16_except_310p(kInexactTypes), IntegersAs::kOut);
constexpr UnaryRule kInexactInPlace = same(with_bf16_except_310p(kInexactTypes));
// math/reciprocal/docs/aclnnReciprocal&aclnnInplaceReciprocal.md.
constexpr UnaryRule kReciprocalRule = with_one_format(
    converted(with_bf16_except_310p(kNumberTypes), with_bf16_except_310p(kInexactTypes), IntegersAs::kFloat));
// math/tanh/docs/aclnnTanh&aclnnInplaceTanh.md.
constexpr UnaryRule kTanhRule =
    with_one_format(converted(undocumented_on_310p(kHalfAndFloatTypes | kIntegersAndBool),
                              undocumented_on_310p(kHalfAndFloatTypes), IntegersAs::kFloat));
constexpr UnaryRule kTanhInPlace = same(undocumented_on_310p(kHalfAndFloatTypes));
// math/erf/docs/aclnnErf&aclnnInplaceErf.md. bfloat16 is documented for Ascend910_93, not for Ascend910B; the source
// accepts it on both.
constexpr UnaryRule kErfRule = converted(undocumented_on_310p(kHalfToDoubleTypes | kBoolType | type_set({kInt64})),
                                         undocumented_on_310p(kHalfToDoubleTypes), IntegersAs::kFloat);
constexpr UnaryRule kErfInPlace = same(undocumented_on_310p(kHalfToDoubleTypes));
// hicann/ops-nn activation/sigmoid/docs/aclnnSigmoid&aclnnInplaceSigmoid.md and op_api/aclnn_sigmoid.cpp, which has
// more types: integers are cast to the type of out, float64 and complex numbers run on the AI CPU. On Ascend310P, the
// source refuses bfloat16 only for self.
constexpr UnaryRule kSigmoidRule =
    converted(with_undocumented(with_bf16_except_310p(kHalfAndFloatTypes), kNumberTypes, kNumberTypes),
              with_undocumented(on_all(kHalfAndFloatTypes | kBf16), kInexactTypes, kInexactTypes), IntegersAs::kOut);
constexpr UnaryRule kSigmoidInPlace = same(with_bf16_except_310p(kInexactTypes), kOneToEight);

// math/abs/docs/aclnnAbs.md. The result of a complex64 is float32.
constexpr UnaryRule kAbsRule = with_one_format({by_chip(kRealTypes | kBf16 | type_set({kComplex64}), kRealTypes),
                                                with_bf16_except_310p(kRealTypes), OutType::kAny});
// math/sign/docs/aclnnSign.md. The document does not define the sign of a complex number, which is not simulated.
constexpr TypesByChip kSignTypes = undocumented_on_310p(kHalfToDoubleTypes | kIndexTypes | kBoolType | kComplexTypes);
constexpr UnaryRule kSignRule{kSignTypes, kSignTypes, OutType::kAny, IntegersAs::kSelf, kOneToEight, "self", "result"};
// math/floor/docs/aclnnFloor&aclnnInplaceFloor.md.
constexpr UnaryRule kFloorRule = same(undocumented_on_310p(kHalfToDoubleTypes | kIntegerTypes | kWideUnsigned));
// math/ceil/docs/aclnnCeil&aclnnInplaceCeil.md.
constexpr UnaryRule kCeilRule = same(with_bf16_except_310p(kHalfToDoubleTypes));
// math/round/docs/aclnnRound&aclnnInplaceRound.md.
constexpr UnaryRule kRoundRule = same(undocumented_on_310p(kHalfToDoubleTypes | kIndexTypes));
// math/trunc/docs/aclnnTrunc&aclnnInplaceTrunc.md.
constexpr UnaryRule kTruncRule = same(with_bf16_except_310p(kHalfAndFloatTypes));
// math/is_finite/docs/aclnnIsFinite.md. The document lists neither integers nor bool. For these types, the source sets
// every element of out to true.
constexpr UnaryRule kIsFiniteRule{with_undocumented(undocumented_on_310p(kHalfToDoubleTypes), kRealTypes, kRealTypes),
                                  undocumented_on_310p(kBoolType, kBoolType), OutType::kAny};
// math/logical_not/docs/aclnnLogicalNot&aclnnInplaceLogicalNot.md.
constexpr UnaryRule kLogicalNotRule{with_bf16_except_310p(kRealTypes), with_bf16_except_310p(kRealTypes),
                                    OutType::kAny};
// math/bitwise_not/docs/aclnnBitwiseNot.md. For NULL the source returns 561103; the document says 161001, as here.
constexpr UnaryRule kBitwiseNotRule{
    on_all(kIntegersAndBool), on_all(kIntegersAndBool), OutType::kSelf, IntegersAs::kSelf, {}, "self", "out", true};

constexpr auto kCos = [](auto x) { return std::cos(x); };
constexpr auto kSin = [](auto x) { return std::sin(x); };
constexpr auto kExp = [](auto x) { return std::exp(x); };
constexpr auto kLog = [](auto x) { return std::log(x); };
constexpr auto kSqrt = [](auto x) { return std::sqrt(x); };
constexpr auto kRsqrt = [](auto x) { return decltype(x)(1) / std::sqrt(x); };
constexpr auto kReciprocal = [](auto x) { return decltype(x)(1) / x; };
constexpr auto kTanh = [](auto x) { return std::tanh(x); };
constexpr auto kErf = [](auto x) { return std::erf(x); };
constexpr auto kSigmoid = [](auto x) { return decltype(x)(1) / (decltype(x)(1) + std::exp(-x)); };
constexpr auto kSign = [](auto x) { return (x > 0) - (x < 0); };
constexpr auto kIsFinite = [](auto x) { return std::is_integral_v<decltype(x)> || std::isfinite(double(x)); };
constexpr auto kLogicalNot = [](auto x) { return x == 0; };
constexpr auto kBitwiseNot = [](auto x) { return ~x; };
constexpr auto kAbs = [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>)
        return x < 0 ? static_cast<decltype(x)>(-static_cast<uint64_t>(x)) : x;
    else
        return std::abs(x);
};

// Returns a function that applies `function` to floating-point numbers and returns integers unchanged.
template <class Function>
auto rounded_by(Function function) {
    return [function](auto x) {
        if constexpr (std::is_integral_v<decltype(x)>)
            return x;
        else
            return function(x);
    };
}
// Round to nearest, ties to even.
const auto kRound = rounded_by([](auto x) { return std::nearbyint(x); });
const auto kFloor = rounded_by([](auto x) { return std::floor(x); });
const auto kCeil = rounded_by([](auto x) { return std::ceil(x); });
const auto kTrunc = rounded_by([](auto x) { return std::trunc(x); });

void require_contiguous_wide_unsigned(UnaryCall* call) {
    for (const Operand* operand : {&call->self, &call->out})
        if (kWideUnsigned >> operand->dtype & 1) call->phase.require_contiguous("self and out", *operand);
}

aclError prepare_abs(const aclTensor* self, const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnAbs", kAbsRule, self, out);
    call.phase.require_dtype("out", call.out, is_complex(call.self.dtype) ? int32_t{kFloat} : call.self.dtype);
    return call.finish<Kinds::kNumbers>(kAbs, bytes, executor);
}

aclError prepare_sign(const aclTensor* self, const aclTensor* result, uint64_t* bytes, aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnSign", kSignRule, self, result);
    // The source does not compare the types for a self of bfloat16, and its copy of the result fails.
    call.phase.require_inner(call.self.dtype == kBfloat16 ? kAclnnInnerNullptr : kAclnnInvalidParam,
                             call.out.dtype == call.self.dtype, "result",
                             std::string("be ") + dtype_name(call.self.dtype), dtype_name(call.out.dtype));
    call.phase.refuse_unsimulated(is_complex(call.self.dtype), "the sign of complex numbers");
    return call.finish<Kinds::kReal>(kSign, bytes, executor);
}

aclError prepare_exp(UnaryCall call, uint64_t* bytes, aclOpExecutor** executor) {
    const bool is_inexact = is_floating(call.self.dtype) || is_complex(call.self.dtype);
    call.phase.report_beyond_document(!is_inexact && is_complex(call.out.dtype),
                                      "its document requires a floating-point out for an integer or bool self");
    return call.finish<Kinds::kNumbers>(kExp, bytes, executor);
}

aclError prepare_erf(UnaryCall call, uint64_t* bytes, aclOpExecutor** executor) {
    const bool is_910b = std::strncmp(soc_name(), "Ascend910B", std::strlen("Ascend910B")) == 0;
    call.phase.report_beyond_document(is_910b && (call.self.dtype == kBfloat16 || call.out.dtype == kBfloat16),
                                      "its document lists bfloat16 for Ascend910_93 only");
    return call.finish<Kinds::kFloating>(kErf, bytes, executor);
}

aclError prepare_floor(UnaryCall call, uint64_t* bytes, aclOpExecutor** executor) {
    require_contiguous_wide_unsigned(&call);
    return call.finish<Kinds::kReal>(kFloor, bytes, executor);
}

// The kernel takes and returns bool.
aclError prepare_logical_not(UnaryCall call, uint64_t* bytes, aclOpExecutor** executor) {
    ask_workspace_for_casts(&call.phase, kBool, {&call.self, &call.out});
    return call.finish<Kinds::kReal>(kLogicalNot, bytes, executor);
}

aclError prepare_bitwise_not(const aclTensor* self, const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnBitwiseNot", kBitwiseNotRule, self, out);
    if (call.self.dtype == kBool) return call.finish<Kinds::kReal>(kLogicalNot, bytes, executor);
    return call.phase.finish(
        [self = call.self, out = call.out] {
            std::vector<int64_t> values = values_of<int64_t>(self);
            for (int64_t& value : values) value = kBitwiseNot(value);
            set_values(out, values);
        },
        bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_UNARY(aclnnCos, kCosRule, kNumbers, kCos)
NPU_CANN_IN_PLACE(aclnnInplaceCos, kCosInPlace, kNumbers, kCos)
NPU_CANN_UNARY(aclnnSin, kSinRule, kNumbers, kSin)
NPU_CANN_IN_PLACE(aclnnInplaceSin, kSinInPlace, kNumbers, kSin)
NPU_CANN_UNARY_PAIR(Exp, kExpRule, kInexactInPlaceUnlistedOn310p, prepare_exp)
NPU_CANN_UNARY(aclnnLog, kLogRule, kNumbers, kLog)
NPU_CANN_IN_PLACE(aclnnInplaceLog, kLogInPlace, kNumbers, kLog)
NPU_CANN_UNARY(aclnnSqrt, kSqrtRule, kNumbers, kSqrt)
NPU_CANN_IN_PLACE(aclnnInplaceSqrt, kInexactInPlaceUnlistedOn310p, kNumbers, kSqrt)
NPU_CANN_UNARY(aclnnRsqrt, kRsqrtRule, kNumbers, kRsqrt)
NPU_CANN_IN_PLACE(aclnnInplaceRsqrt, kInexactInPlace, kNumbers, kRsqrt)
NPU_CANN_UNARY(aclnnReciprocal, kReciprocalRule, kNumbers, kReciprocal)
NPU_CANN_IN_PLACE(aclnnInplaceReciprocal, kInexactInPlace, kNumbers, kReciprocal)
NPU_CANN_UNARY(aclnnTanh, kTanhRule, kFloating, kTanh)
NPU_CANN_IN_PLACE(aclnnInplaceTanh, kTanhInPlace, kFloating, kTanh)
NPU_CANN_UNARY(aclnnSigmoid, kSigmoidRule, kNumbers, kSigmoid)
NPU_CANN_IN_PLACE(aclnnInplaceSigmoid, kSigmoidInPlace, kNumbers, kSigmoid)
NPU_CANN_UNARY(aclnnCeil, kCeilRule, kFloating, kCeil)
NPU_CANN_IN_PLACE(aclnnInplaceCeil, kCeilRule, kFloating, kCeil)
NPU_CANN_UNARY(aclnnRound, kRoundRule, kReal, kRound)
NPU_CANN_IN_PLACE(aclnnInplaceRound, kRoundRule, kReal, kRound)
NPU_CANN_UNARY(aclnnTrunc, kTruncRule, kFloating, kTrunc)
NPU_CANN_IN_PLACE(aclnnInplaceTrunc, kTruncRule, kFloating, kTrunc)
NPU_CANN_UNARY(aclnnIsFinite, kIsFiniteRule, kReal, kIsFinite)

NPU_CANN_API aclError aclnnAbsGetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t* bytes,
                                               aclOpExecutor** executor) {
    return simulated_cann::prepare_abs(self, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnAbs)

NPU_CANN_API aclError aclnnSignGetWorkspaceSize(const aclTensor* self, aclTensor* result, uint64_t* bytes,
                                                aclOpExecutor** executor) {
    return simulated_cann::prepare_sign(self, result, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSign)

NPU_CANN_UNARY_PAIR(Erf, kErfRule, kErfInPlace, prepare_erf)
NPU_CANN_UNARY_PAIR(Floor, kFloorRule, kFloorRule, prepare_floor)
NPU_CANN_UNARY_PAIR(LogicalNot, kLogicalNotRule, kLogicalNotRule, prepare_logical_not)

NPU_CANN_API aclError aclnnBitwiseNotGetWorkspaceSize(const aclTensor* self, const aclTensor* out, uint64_t* bytes,
                                                      aclOpExecutor** executor) {
    return simulated_cann::prepare_bitwise_not(self, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnBitwiseNot)
