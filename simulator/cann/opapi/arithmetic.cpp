// aclnnAdd, -Sub, -Mul, -Div with their scalar and in-place forms, and aclnnNeg.
#include "cann/opapi/binary.h"

namespace simulated_cann {
namespace {

// Integers wrap in two's complement.
template <class C>
constexpr auto wrapping(C value) {
    if constexpr (std::is_integral_v<C>)
        return uint64_t(value);
    else
        return value;
}

constexpr auto kAdd = [](auto a, auto b, auto alpha) { return wrapping(a) + wrapping(alpha) * wrapping(b); };
constexpr auto kSubtract = [](auto a, auto b, auto alpha) { return wrapping(a) - wrapping(alpha) * wrapping(b); };
constexpr auto kMultiply = [](auto a, auto b, auto /*alpha*/) { return wrapping(a) * wrapping(b); };
constexpr auto kNegate = [](auto a, auto /*b*/, auto /*alpha*/) { return -wrapping(a); };
// torch's calls never divide integers, because their out is floating-point. Other calls truncate, as in C++.
constexpr auto kDivide = [](auto a, auto b, auto /*alpha*/) {
    if constexpr (std::is_integral_v<decltype(a)>)
        return b && !(b == -1) ? a / b : decltype(a)(-wrapping(a));
    else
        return a / b;
};

aclError prepare_negate(const char* name, const aclTensor* self, const aclTensor* out, uint64_t* bytes,
                        aclOpExecutor** executor) {
    static const aclScalar unused = [] {
        aclScalar zero;
        zero.dtype = kInt64;
        return zero;
    }();
    return prepare_binary(name, kOfNumbers<kNegate>, Computed::kAsOut, self, {nullptr, &unused, nullptr}, out, bytes,
                          executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_WITH_ALPHA(Add, Adds, simulated_cann::kOfNumbers<simulated_cann::kAdd>)
NPU_CANN_WITH_ALPHA(Sub, Subs, simulated_cann::kOfNumbers<simulated_cann::kSubtract>)
NPU_CANN_WITHOUT_ALPHA(Mul, Muls, simulated_cann::kOfNumbers<simulated_cann::kMultiply>,
                       simulated_cann::Computed::kAsOut)
NPU_CANN_WITHOUT_ALPHA(Div, Divs, simulated_cann::kOfNumbers<simulated_cann::kDivide>, simulated_cann::Computed::kAsOut)

NPU_CANN_API aclError aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                               aclOpExecutor** executor) {
    return simulated_cann::prepare_negate("aclnnNeg", self, out, bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnNeg)
NPU_CANN_API aclError aclnnInplaceNegGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_negate("aclnnInplaceNeg", self, self, bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceNeg)
