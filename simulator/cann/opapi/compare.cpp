// aclnnEq, aclnnNe, aclnnLt, aclnnLe, aclnnGt, aclnnGe, with a tensor or a scalar. In torch's calls, the output is
// bool. The output of an in-place form has the dtype of self.
#include "cann/opapi/binary.h"

namespace simulated_cann {
namespace {

constexpr auto kEqual = [](auto a, auto b, auto /*alpha*/) { return a == b; };
constexpr auto kNotEqual = [](auto a, auto b, auto /*alpha*/) { return a != b; };
constexpr auto kLess = [](auto a, auto b, auto /*alpha*/) { return a < b; };
constexpr auto kLessOrEqual = [](auto a, auto b, auto /*alpha*/) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b, auto /*alpha*/) { return a > b; };
constexpr auto kGreaterOrEqual = [](auto a, auto b, auto /*alpha*/) { return a >= b; };

}  // namespace
}  // namespace simulated_cann

NPU_CANN_WITHOUT_ALPHA(EqTensor, EqScalar, simulated_cann::kForAllTypes<simulated_cann::kEqual>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
NPU_CANN_WITHOUT_ALPHA(NeTensor, NeScalar, simulated_cann::kForAllTypes<simulated_cann::kNotEqual>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
NPU_CANN_WITHOUT_ALPHA(LtTensor, LtScalar, simulated_cann::kForRealTypes<simulated_cann::kLess>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
NPU_CANN_WITHOUT_ALPHA(LeTensor, LeScalar, simulated_cann::kForRealTypes<simulated_cann::kLessOrEqual>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
NPU_CANN_WITHOUT_ALPHA(GtTensor, GtScalar, simulated_cann::kForRealTypes<simulated_cann::kGreater>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
NPU_CANN_WITHOUT_ALPHA(GeTensor, GeScalar, simulated_cann::kForRealTypes<simulated_cann::kGreaterOrEqual>,
                       simulated_cann::ComputeDtype::kPromotedInputs)
