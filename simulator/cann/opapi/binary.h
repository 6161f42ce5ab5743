// out[i] = f(a[i], b[i], alpha): the common code of arithmetic and comparison.
#pragma once

#include <tuple>

#include "cann/opapi/elements.h"

namespace simulated_cann {

// The second argument, a tensor or a scalar, and alpha, which is 1 if it is null.
struct SecondArgument {
    const aclTensor* tensor = nullptr;
    const aclScalar* scalar = nullptr;
    const aclScalar* alpha = nullptr;
};

// Functions that process a run, one for each compute type. Null for a type without the function: complex numbers have
// no order.
template <class C>
using RunFunction = void (*)(int64_t count, const C* a, const C* b, C alpha, C* out);
using BinaryFunction = std::tuple<RunFunction<int64_t>, RunFunction<float>, RunFunction<double>,
                                  RunFunction<std::complex<float>>, RunFunction<std::complex<double>>>;

// Compute op(a, b, alpha) for each element: kOfNumbers in all compute types, kOfReals in the real ones.
template <const auto& op, class C>
void each_element(int64_t count, const C* a, const C* b, C alpha, C* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = C(op(a[i], b[i], alpha));
}
template <const auto& op>
constexpr BinaryFunction kOfNumbers{each_element<op, int64_t>, each_element<op, float>, each_element<op, double>,
                                    each_element<op, std::complex<float>>, each_element<op, std::complex<double>>};
template <const auto& op>
constexpr BinaryFunction kOfReals{each_element<op, int64_t>, each_element<op, float>, each_element<op, double>, nullptr,
                                  nullptr};

enum class Computed {
    kAsOut,     // in out's dtype, or for a scalar and an integer out in the inputs' promoted dtype: arithmetic
    kAsInputs,  // in the promoted dtype of a and b: comparison
};

inline SecondArgument second_of(const aclTensor* b, const aclScalar* alpha = nullptr) { return {b, nullptr, alpha}; }
inline SecondArgument second_of(const aclScalar* b, const aclScalar* alpha = nullptr) { return {nullptr, b, alpha}; }

aclError prepare_binary(const char* name, const BinaryFunction& f, Computed computed, const aclTensor* self,
                        const SecondArgument& second, const aclTensor* out, uint64_t* workspace_bytes,
                        aclOpExecutor** executor);

}  // namespace simulated_cann

// One form of an operator f. The variadic arguments are the form's parameters after self; `result` is out or self.
#define NPU_CANN_BINARY(name, f, computed, second, result, ...)                                                      \
    NPU_CANN_API aclError name##GetWorkspaceSize(aclTensor* self, __VA_ARGS__, uint64_t* bytes, aclOpExecutor** e) { \
        return simulated_cann::prepare_binary(#name, f, computed, self, simulated_cann::second_of second, result,    \
                                              bytes, e);                                                             \
    }                                                                                                                \
    NPU_CANN_PHASE_TWO(name)

// The four forms of an operator; SCALAR is aclnn's name of the form with a scalar.
#define NPU_CANN_WITHOUT_ALPHA(TENSOR, SCALAR, f, computed)                                           \
    NPU_CANN_BINARY(aclnn##TENSOR, f, computed, (other), out, const aclTensor* other, aclTensor* out) \
    NPU_CANN_BINARY(aclnn##SCALAR, f, computed, (other), out, const aclScalar* other, aclTensor* out) \
    NPU_CANN_BINARY(aclnnInplace##TENSOR, f, computed, (other), self, const aclTensor* other)         \
    NPU_CANN_BINARY(aclnnInplace##SCALAR, f, computed, (other), self, const aclScalar* other)

#define NPU_CANN_WITH_ALPHA(TENSOR, SCALAR, f)                                                                       \
    NPU_CANN_BINARY(aclnn##TENSOR, f, simulated_cann::Computed::kAsOut, (other, alpha), out, const aclTensor* other, \
                    const aclScalar* alpha, aclTensor* out)                                                          \
    NPU_CANN_BINARY(aclnn##SCALAR, f, simulated_cann::Computed::kAsOut, (other, alpha), out, const aclScalar* other, \
                    const aclScalar* alpha, aclTensor* out)                                                          \
    NPU_CANN_BINARY(aclnnInplace##TENSOR, f, simulated_cann::Computed::kAsOut, (other, alpha), self,                 \
                    const aclTensor* other, const aclScalar* alpha)                                                  \
    NPU_CANN_BINARY(aclnnInplace##SCALAR, f, simulated_cann::Computed::kAsOut, (other, alpha), self,                 \
                    const aclScalar* other, const aclScalar* alpha)
