// aclnnEq, -Ne, -Lt, -Le, -Gt, -Ge, with a tensor or a scalar. torch's out is bool, or in place the input's dtype.
#include "cann/opapi/binary.h"

namespace npu_cann {
namespace {

constexpr auto kEqual = [](auto a, auto b, auto /*alpha*/) { return a == b; };
constexpr auto kUnequal = [](auto a, auto b, auto /*alpha*/) { return a != b; };
constexpr auto kLess = [](auto a, auto b, auto /*alpha*/) { return a < b; };
constexpr auto kAtMost = [](auto a, auto b, auto /*alpha*/) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b, auto /*alpha*/) { return a > b; };
constexpr auto kAtLeast = [](auto a, auto b, auto /*alpha*/) { return a >= b; };

}  // namespace
}  // namespace npu_cann

NPU_CANN_WITHOUT_ALPHA(EqTensor, EqScalar, npu_cann::kOfNumbers<npu_cann::kEqual>, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(NeTensor, NeScalar, npu_cann::kOfNumbers<npu_cann::kUnequal>, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LtTensor, LtScalar, npu_cann::kOfReals<npu_cann::kLess>, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LeTensor, LeScalar, npu_cann::kOfReals<npu_cann::kAtMost>, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GtTensor, GtScalar, npu_cann::kOfReals<npu_cann::kGreater>, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GeTensor, GeScalar, npu_cann::kOfReals<npu_cann::kAtLeast>, npu_cann::Computed::kAsInputs)
