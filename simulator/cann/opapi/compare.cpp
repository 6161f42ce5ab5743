// aclnnEq, -Ne, -Lt, -Le, -Gt, -Ge, with a tensor or a scalar. torch's out is bool, or in place the input's dtype.
#include "cann/opapi/binary.h"

namespace simulated_cann {
namespace {

constexpr auto kEqual = [](auto a, auto b, auto /*alpha*/) { return a == b; };
constexpr auto kUnequal = [](auto a, auto b, auto /*alpha*/) { return a != b; };
constexpr auto kLess = [](auto a, auto b, auto /*alpha*/) { return a < b; };
constexpr auto kAtMost = [](auto a, auto b, auto /*alpha*/) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b, auto /*alpha*/) { return a > b; };
constexpr auto kAtLeast = [](auto a, auto b, auto /*alpha*/) { return a >= b; };

}  // namespace
}  // namespace simulated_cann

NPU_CANN_WITHOUT_ALPHA(EqTensor, EqScalar, simulated_cann::kOfNumbers<simulated_cann::kEqual>,
                       simulated_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(NeTensor, NeScalar, simulated_cann::kOfNumbers<simulated_cann::kUnequal>,
                       simulated_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LtTensor, LtScalar, simulated_cann::kOfReals<simulated_cann::kLess>,
                       simulated_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LeTensor, LeScalar, simulated_cann::kOfReals<simulated_cann::kAtMost>,
                       simulated_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GtTensor, GtScalar, simulated_cann::kOfReals<simulated_cann::kGreater>,
                       simulated_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GeTensor, GeScalar, simulated_cann::kOfReals<simulated_cann::kAtLeast>,
                       simulated_cann::Computed::kAsInputs)
