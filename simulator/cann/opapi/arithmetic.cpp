// aclnnAdd, -Sub, -Mul, -Div with their scalar and in-place forms, and aclnnNeg.
#include "cann/opapi/binary.h"

namespace npu_cann {
namespace {

// Integers wrap in two's complement.
template <class C>
C wrapped(uint64_t value) {
    return C(value);
}

template <class C>
void add(int64_t count, const C* a, const C* b, C alpha, C* out) {
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<C>)
            out[i] = wrapped<C>(uint64_t(a[i]) + uint64_t(alpha) * uint64_t(b[i]));
        else
            out[i] = a[i] + alpha * b[i];
    }
}

template <class C>
void subtract(int64_t count, const C* a, const C* b, C alpha, C* out) {
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<C>)
            out[i] = wrapped<C>(uint64_t(a[i]) - uint64_t(alpha) * uint64_t(b[i]));
        else
            out[i] = a[i] - alpha * b[i];
    }
}

template <class C>
void multiply(int64_t count, const C* a, const C* b, C /*alpha*/, C* out) {
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<C>)
            out[i] = wrapped<C>(uint64_t(a[i]) * uint64_t(b[i]));
        else
            out[i] = a[i] * b[i];
    }
}

// True division. The output is floating-point, so C is never an integer.
template <class C>
void divide(int64_t count, const C* a, const C* b, C /*alpha*/, C* out) {
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<C>)
            out[i] = b[i] && !(b[i] == -1) ? a[i] / b[i] : wrapped<C>(-uint64_t(a[i]));
        else
            out[i] = a[i] / b[i];
    }
}

template <class C>
void negate(int64_t count, const C* a, const C* /*b*/, C /*alpha*/, C* out) {
    for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<C>)
            out[i] = wrapped<C>(-uint64_t(a[i]));
        else
            out[i] = -a[i];
    }
}

using Single = std::complex<float>;
using Twofold = std::complex<double>;

constexpr BinaryFunction kAdd{add<int64_t>, add<float>, add<double>, add<Single>, add<Twofold>};
constexpr BinaryFunction kSubtract{subtract<int64_t>, subtract<float>, subtract<double>, subtract<Single>,
                                   subtract<Twofold>};
constexpr BinaryFunction kMultiply{multiply<int64_t>, multiply<float>, multiply<double>, multiply<Single>,
                                   multiply<Twofold>};
constexpr BinaryFunction kDivide{divide<int64_t>, divide<float>, divide<double>, divide<Single>, divide<Twofold>};
constexpr BinaryFunction kNegate{negate<int64_t>, negate<float>, negate<double>, negate<Single>, negate<Twofold>};

aclError prepare_negate(const char* name, const aclTensor* self, const aclTensor* out, uint64_t* bytes,
                        aclOpExecutor** executor) {
    static const aclScalar unused = [] {
        aclScalar zero;
        zero.dtype = kInt64;
        return zero;
    }();
    return prepare_binary(name, kNegate, Computed::kAsOut, self, {nullptr, &unused, nullptr}, out, bytes, executor);
}

}  // namespace
}  // namespace npu_cann

NPU_CANN_WITH_ALPHA(Add, Adds, npu_cann::kAdd)
NPU_CANN_WITH_ALPHA(Sub, Subs, npu_cann::kSubtract)
NPU_CANN_WITHOUT_ALPHA(Mul, Muls, npu_cann::kMultiply, npu_cann::Computed::kAsOut)
NPU_CANN_WITHOUT_ALPHA(Div, Divs, npu_cann::kDivide, npu_cann::Computed::kAsOut)

NPU_CANN_API aclError aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                               aclOpExecutor** executor) {
    return npu_cann::prepare_negate("aclnnNeg", self, out, bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnNeg)
NPU_CANN_API aclError aclnnInplaceNegGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
    return npu_cann::prepare_negate("aclnnInplaceNeg", self, self, bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceNeg)
