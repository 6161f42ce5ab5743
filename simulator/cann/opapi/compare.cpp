// aclnnEq, -Ne, -Lt, -Le, -Gt, -Ge, of a tensor and of a scalar: out is bool, or the input's dtype in place.
#include "cann/opapi/binary.h"

namespace npu_cann {
namespace {

#define NPU_CANN_COMPARISON(name, sign, ...)                                      \
    template <class C>                                                            \
    void name##_run(int64_t count, const C* a, const C* b, C /*alpha*/, C* out) { \
        for (int64_t i = 0; i < count; ++i) out[i] = C(a[i] sign b[i]);           \
    }                                                                             \
    constexpr BinaryFunction name{name##_run<int64_t>, name##_run<float>, name##_run<double>, __VA_ARGS__};

NPU_CANN_COMPARISON(equal, ==, equal_run<std::complex<float>>, equal_run<std::complex<double>>)
NPU_CANN_COMPARISON(unequal, !=, unequal_run<std::complex<float>>, unequal_run<std::complex<double>>)
NPU_CANN_COMPARISON(less, <, nullptr, nullptr)
NPU_CANN_COMPARISON(at_most, <=, nullptr, nullptr)
NPU_CANN_COMPARISON(greater, >, nullptr, nullptr)
NPU_CANN_COMPARISON(at_least, >=, nullptr, nullptr)
#undef NPU_CANN_COMPARISON

}  // namespace
}  // namespace npu_cann

NPU_CANN_WITHOUT_ALPHA(EqTensor, EqScalar, npu_cann::equal, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(NeTensor, NeScalar, npu_cann::unequal, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LtTensor, LtScalar, npu_cann::less, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(LeTensor, LeScalar, npu_cann::at_most, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GtTensor, GtScalar, npu_cann::greater, npu_cann::Computed::kAsInputs)
NPU_CANN_WITHOUT_ALPHA(GeTensor, GeScalar, npu_cann::at_least, npu_cann::Computed::kAsInputs)
