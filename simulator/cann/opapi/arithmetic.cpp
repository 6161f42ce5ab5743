// aclnnAdd, aclnnSub, aclnnMul, aclnnDiv with their scalar and in-place forms, and aclnnNeg.
#include "cann/opapi/binary.h"

namespace simulated_cann {
namespace {

constexpr auto kAdd = [](auto a, auto b, auto alpha) { return to_wrapping(a) + to_wrapping(alpha) * to_wrapping(b); };
constexpr auto kSubtract = [](auto a, auto b, auto alpha) {
    return to_wrapping(a) - to_wrapping(alpha) * to_wrapping(b);
};
constexpr auto kMultiply = [](auto a, auto b, auto /*alpha*/) { return to_wrapping(a) * to_wrapping(b); };
constexpr auto kNegate = [](auto a, auto /*b*/, auto /*alpha*/) { return -to_wrapping(a); };
// torch's calls never divide integers, because their output is floating-point. For other calls, integer division
// truncates, as in C++.
constexpr auto kDivide = [](auto a, auto b, auto /*alpha*/) {
    if constexpr (std::is_integral_v<decltype(a)>)
        // C++ does not define division by 0, nor the smallest integer divided by -1: both give -a here.
        return b && !(b == -1) ? a / b : decltype(a)(-to_wrapping(a));
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
    return prepare_binary(name, kForAllTypes<kNegate>, ComputeDtype::kOutput, self, {nullptr, &unused, nullptr}, out,
                          bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_WITH_ALPHA(Add, Adds, simulated_cann::kForAllTypes<simulated_cann::kAdd>)
NPU_CANN_WITH_ALPHA(Sub, Subs, simulated_cann::kForAllTypes<simulated_cann::kSubtract>)
NPU_CANN_WITHOUT_ALPHA(Mul, Muls, simulated_cann::kForAllTypes<simulated_cann::kMultiply>,
                       simulated_cann::ComputeDtype::kOutput)
NPU_CANN_WITHOUT_ALPHA(Div, Divs, simulated_cann::kForAllTypes<simulated_cann::kDivide>,
                       simulated_cann::ComputeDtype::kOutput)

NPU_CANN_API aclError aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                               aclOpExecutor** executor) {
    return simulated_cann::prepare_negate("aclnnNeg", self, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnNeg)
NPU_CANN_API aclError aclnnInplaceNegGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_negate("aclnnInplaceNeg", self, self, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceNeg)
