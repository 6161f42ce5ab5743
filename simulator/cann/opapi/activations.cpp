// Activation functions of one tensor. Each rule names its document, hicann/ops-nn activation/<name>/docs/. The types
// are those of the sources in <name>/op_api/ or <name>/op_host/op_api/. If the document does not list Ascend310P, the
// types on this chip are only those that the chip's kernels in CANN 8.1 also accept
// (opp/built-in/op_impl/ai_core/tbe/config/ascend310p, and aicpu/tf_kernel for float64). float16 and bfloat16 are
// computed in float32.
#include <algorithm>
#include <cmath>

#include "cann/opapi/elementwise.h"
#include "cann/opapi/gelu.h"

namespace simulated_cann {
namespace {

constexpr TypesByChip kHalfFloatBf16 = with_bf16_except_310p(kHalfAndFloatTypes);
constexpr TypesByChip kHalfFloatUnlistedOn310p = undocumented_on_310p(kHalfAndFloatTypes);
constexpr uint32_t kUint8Type = type_set({kUint8}), kDoubleType = type_set({kDouble});

// relu/docs/aclnnRelu&aclnnInplaceRelu.md. The document lists uint8 only for the form in place. The source of
// aclnnRelu copies a uint8 tensor to out.
constexpr uint32_t kReluTypes = kHalfAndFloatTypes | type_set({kInt8, kInt32, kInt64});
constexpr UnaryRule kReluRule = same(with_undocumented(undocumented_on_310p(kReluTypes), kUint8Type, kUint8Type));
constexpr UnaryRule kReluInPlace = same(undocumented_on_310p(kReluTypes | kUint8Type));
// hard_sigmoid/docs/aclnnHardsigmoid&aclnnInplaceHardsigmoid.md. An int32 is computed in float32 and truncated.
constexpr TypesByChip kHardsigmoidTypes = undocumented_on_310p(kHalfAndFloatTypes | type_set({kInt32}));
constexpr UnaryRule kHardsigmoidRule =
    with_one_format({kHardsigmoidTypes, kHardsigmoidTypes, OutType::kSelf, IntegersAs::kFloat});
// hard_swish/docs/aclnnHardswish&aclnnInplaceHardswish.md.
constexpr UnaryRule kHardswishRule = converted(kHalfFloatUnlistedOn310p);
// gelu/docs/aclnnGelu.md, gelu_v2/docs/aclnnGeluV2.md, swish/docs/aclnnSilu.md.
constexpr UnaryRule kGeluRule = same(kHalfFloatBf16);
constexpr UnaryRule kGeluV2Rule{kHalfFloatBf16, kHalfFloatBf16, OutType::kSelf, IntegersAs::kSelf, {}, "x", "y"};
constexpr UnaryRule kSiluRule = same(kHalfFloatBf16);
// elu/docs/aclnnElu&aclnnInplaceElu.md.
constexpr UnaryRule kEluRule = converted(kHalfFloatBf16);
constexpr UnaryRule kEluInPlace = same(with_bf16_except_310p(kHalfToDoubleTypes));
// leaky_relu/docs/aclnnLeakyRelu&aclnnInplaceLeakyRelu.md. The document lists float64 only for the form in
// place.
constexpr UnaryRule kLeakyReluRule = converted(with_undocumented(kHalfFloatUnlistedOn310p, kDoubleType, kDoubleType));
constexpr UnaryRule kLeakyReluInPlace = same(undocumented_on_310p(kHalfToDoubleTypes));
// softplus_v2/docs/aclnnSoftplus.md.
constexpr UnaryRule kSoftplusRule = converted(kHalfFloatBf16);
// threshold/docs/aclnnThreshold&aclnnInplaceThreshold.md. The kernel ThresholdV2 of Ascend310P does not accept int64.
// The document does not list float64 for the scalars; the source accepts every scalar, and checks only that the type of
// self converts to that of out.
constexpr uint32_t kThresholdOn310p = kHalfAndFloatTypes | type_set({kInt8, kUint8, kInt16, kInt32});
constexpr TypesByChip kThresholdTypes =
    undocumented_on_310p(kHalfAndFloatTypes | kBf16 | kIntegerTypes, kThresholdOn310p);
constexpr TypesByChip kThresholdScalars =
    with_undocumented(undocumented_on_310p(kHalfAndFloatTypes | kIntegerTypes), kDoubleType, kDoubleType);
constexpr UnaryRule kThresholdRule = converted(kThresholdTypes);
constexpr UnaryRule kThresholdInPlace = same(kThresholdTypes);

constexpr TypesByChip kScalarTypes = on_all(kRealTypes | kWideUnsigned | kBf16);

constexpr auto kRelu = [](auto x) { return x < 0 ? decltype(x)(0) : x; };
constexpr auto kHardsigmoid = [](auto x) {
    using Real = decltype(x);
    return std::min(std::max(x * Real(1.0F / 6.0F) + Real(0.5), Real(0)), Real(1));
};
constexpr auto kHardswish = [](auto x) {
    using Real = decltype(x);
    if (x >= 3) return x;
    return x <= -3 ? Real(0) : x * (x + Real(3)) / Real(6);
};
constexpr auto kSilu = [](auto x) { return x / (decltype(x)(1) + std::exp(-x)); };

float float_scalar(FirstPhase* call, const char* name, const aclScalar* scalar,
                   const TypesByChip& types = kScalarTypes) {
    const auto value = call->scalar<float>(name, scalar, types);
    require_conversion(call, name, scalar, kFloat);
    return value;
}

// If alpha or input_scale is infinite or NaN, CANN calls Threshold and Muls instead of the kernel, so that each x <= 0
// gives -alpha * scale (elu/op_api/aclnn_elu.cpp, ComputeEluWithInfNan).
aclError prepare_elu(UnaryCall call, const aclScalar* alpha_scalar, const aclScalar* scale_scalar,
                     const aclScalar* input_scale_scalar, uint64_t* bytes, aclOpExecutor** executor) {
    const float alpha = float_scalar(&call.phase, "alpha", alpha_scalar);
    const float scale = float_scalar(&call.phase, "scale", scale_scalar);
    const float input_scale = float_scalar(&call.phase, "inputScale", input_scale_scalar);
    const bool is_finite = std::isfinite(alpha) && std::isfinite(input_scale);
    const auto elu = [=](auto x) {
        using Real = decltype(x);
        if (x > 0) return x * Real(scale);
        const Real step = is_finite ? std::exp(x * Real(input_scale)) - Real(1) : Real(-1);
        return Real(alpha) * step * Real(scale);
    };
    return call.finish<Kinds::kFloating>(elu, bytes, executor);
}

// The document lists float32 for negativeSlope; the source calls ToFloat() on any scalar, and PyTorch passes a double.
constexpr TypesByChip kSlopeTypes =
    with_undocumented(on_all(type_set({kFloat})), kScalarTypes.on_910b, kScalarTypes.on_310p);

aclError prepare_leaky_relu(UnaryCall call, const aclScalar* slope_scalar, uint64_t* bytes, aclOpExecutor** executor) {
    const float slope = float_scalar(&call.phase, "negativeSlope", slope_scalar, kSlopeTypes);
    const auto leaky_relu = [slope](auto x) { return x > 0 ? x : x * decltype(x)(slope); };
    return call.finish<Kinds::kFloating>(leaky_relu, bytes, executor);
}

aclError prepare_softplus(const aclTensor* self, const aclScalar* beta_scalar, const aclScalar* threshold_scalar,
                          const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnSoftplus", kSoftplusRule, self, out);
    const auto beta = call.phase.scalar<float>("beta", beta_scalar, kScalarTypes);
    const auto threshold = call.phase.scalar<float>("threshold", threshold_scalar, kScalarTypes);
    require_conversion(&call.phase, "beta", beta_scalar, call.self.dtype);
    require_conversion(&call.phase, "threshold", threshold_scalar, call.self.dtype);
    const auto softplus = [beta, threshold](auto x) {
        using Real = decltype(x);
        const Real scaled = x * Real(beta);
        return scaled > Real(threshold) ? x : std::log(Real(1) + std::exp(scaled)) / Real(beta);
    };
    return call.finish<Kinds::kFloating>(softplus, bytes, executor);
}

aclError prepare_threshold(UnaryCall call, const aclScalar* threshold_scalar, const aclScalar* value_scalar,
                           bool has_out, uint64_t* bytes, aclOpExecutor** executor) {
    const auto threshold = call.phase.scalar<double>("threshold", threshold_scalar, kThresholdScalars);
    const auto value = call.phase.scalar<double>("value", value_scalar, kThresholdScalars);
    const auto whole_value = call.phase.scalar<int64_t>("value", value_scalar, kThresholdScalars);
    if (call.phase.is_valid() && has_out) {
        int32_t common = call.self.dtype;
        for (const aclScalar* scalar : {threshold_scalar, value_scalar})
            common = promoted_dtype(common, true, scalar->dtype, true);
        call.phase.report_beyond_document(
            !can_cast(common, call.out.dtype),
            "its document requires an out to which the common type of self, threshold and value converts");
    }
    const auto apply = [threshold, value, whole_value](auto x) {
        using Compute = decltype(x);
        if constexpr (std::is_integral_v<Compute>)
            return double(x) > threshold ? x : Compute(whole_value);
        else
            return x > Compute(threshold) ? x : Compute(value);
    };
    return call.finish<Kinds::kReal>(apply, bytes, executor);
}

aclError prepare_gelu_v2(const aclTensor* x, int64_t approximate, const aclTensor* y, uint64_t* bytes,
                         aclOpExecutor** executor) {
    UnaryCall call = read_unary("aclnnGeluV2", kGeluV2Rule, x, y);
    call.phase.require(approximate == kGeluErf || approximate == kGeluTanh, "approximate", "be 0 or 1", approximate);
    const auto gelu = [approximate](auto value) { return gelu_of(value, approximate); };
    return call.finish<Kinds::kFloating>(gelu, bytes, executor);
}

constexpr auto kGelu = [](auto x) { return gelu_tanh(x); };

}  // namespace
}  // namespace simulated_cann

NPU_CANN_UNARY(aclnnRelu, kReluRule, kReal, kRelu)
NPU_CANN_IN_PLACE(aclnnInplaceRelu, kReluInPlace, kReal, kRelu)
NPU_CANN_UNARY(aclnnHardsigmoid, kHardsigmoidRule, kFloating, kHardsigmoid)
NPU_CANN_IN_PLACE(aclnnInplaceHardsigmoid, kHardsigmoidRule, kFloating, kHardsigmoid)
NPU_CANN_UNARY(aclnnHardswish, kHardswishRule, kFloating, kHardswish)
NPU_CANN_IN_PLACE(aclnnInplaceHardswish, kHardswishRule, kFloating, kHardswish)
NPU_CANN_UNARY(aclnnGelu, kGeluRule, kFloating, kGelu)
NPU_CANN_UNARY(aclnnSilu, kSiluRule, kFloating, kSilu)

NPU_CANN_API aclError aclnnGeluV2GetWorkspaceSize(const aclTensor* x, int64_t approximate, const aclTensor* y,
                                                  uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_gelu_v2(x, approximate, y, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnGeluV2)

NPU_CANN_API aclError aclnnEluGetWorkspaceSize(const aclTensor* self, const aclScalar* alpha, const aclScalar* scale,
                                               const aclScalar* inputScale, const aclTensor* out, uint64_t* bytes,
                                               aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_elu(read_unary("aclnnElu", kEluRule, self, out), alpha, scale, inputScale, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnElu)

NPU_CANN_API aclError aclnnInplaceEluGetWorkspaceSize(const aclTensor* self, const aclScalar* alpha,
                                                      const aclScalar* scale, const aclScalar* inputScale,
                                                      uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_elu(read_in_place("aclnnInplaceElu", kEluInPlace, self), alpha, scale, inputScale, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceElu)

NPU_CANN_API aclError aclnnLeakyReluGetWorkspaceSize(const aclTensor* self, const aclScalar* slope,
                                                     const aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_leaky_relu(read_unary("aclnnLeakyRelu", kLeakyReluRule, self, out), slope, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnLeakyRelu)

NPU_CANN_API aclError aclnnInplaceLeakyReluGetWorkspaceSize(const aclTensor* self, const aclScalar* slope,
                                                            uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_leaky_relu(read_in_place("aclnnInplaceLeakyRelu", kLeakyReluInPlace, self), slope, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceLeakyRelu)

NPU_CANN_API aclError aclnnSoftplusGetWorkspaceSize(const aclTensor* self, const aclScalar* beta,
                                                    const aclScalar* threshold, const aclTensor* out, uint64_t* bytes,
                                                    aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_softplus(self, beta, threshold, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnSoftplus)

NPU_CANN_API aclError aclnnThresholdGetWorkspaceSize(const aclTensor* self, const aclScalar* threshold,
                                                     const aclScalar* value, const aclTensor* out, uint64_t* bytes,
                                                     aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_threshold(read_unary("aclnnThreshold", kThresholdRule, self, out), threshold, value, true, bytes,
                             executor);
}
NPU_CANN_SECOND_PHASE(aclnnThreshold)

NPU_CANN_API aclError aclnnInplaceThresholdGetWorkspaceSize(const aclTensor* self, const aclScalar* threshold,
                                                            const aclScalar* value, uint64_t* bytes,
                                                            aclOpExecutor** executor) {
    using namespace simulated_cann;
    return prepare_threshold(read_in_place("aclnnInplaceThreshold", kThresholdInPlace, self), threshold, value, false,
                             bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceThreshold)
