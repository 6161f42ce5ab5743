// Common code of arithmetic and comparison: out[i] = function(self[i], other[i], alpha).
#pragma once

#include <tuple>

#include "cann/opapi/elements.h"

namespace simulated_cann {

// The second argument of a call, and alpha. The argument is a tensor or a scalar; the other pointer is null. If `alpha`
// is null, alpha is 1.
struct SecondArgument {
    const aclTensor* tensor = nullptr;
    const aclScalar* scalar = nullptr;
    const aclScalar* alpha = nullptr;
};

// Functions that process a run of elements, one for each compute type. A function is null if its type lacks the
// operation: complex numbers have no order.
template <class Compute>
using RunFunction = void (*)(int64_t count, const Compute* a, const Compute* b, Compute alpha, Compute* out);
using BinaryFunction = std::tuple<RunFunction<int64_t>, RunFunction<float>, RunFunction<double>,
                                  RunFunction<std::complex<float>>, RunFunction<std::complex<double>>>;

// Functions that compute op(a, b, alpha) for each element. kForAllTypes has one for every compute type, kForRealTypes
// only for the real ones.
template <const auto& op, class Compute>
void apply_to_run(int64_t count, const Compute* a, const Compute* b, Compute alpha, Compute* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = Compute(op(a[i], b[i], alpha));
}
template <const auto& op>
constexpr BinaryFunction kForAllTypes{apply_to_run<op, int64_t>, apply_to_run<op, float>, apply_to_run<op, double>,
                                      apply_to_run<op, std::complex<float>>, apply_to_run<op, std::complex<double>>};
template <const auto& op>
constexpr BinaryFunction kForRealTypes{apply_to_run<op, int64_t>, apply_to_run<op, float>, apply_to_run<op, double>,
                                       nullptr, nullptr};

// The dtype in which a function computes.
enum class ComputeDtype {
    // The dtype of out. If the second argument is a scalar and out is an integer, it is the promoted dtype of the
    // inputs. Arithmetic uses this value.
    kOutput,
    // The promoted dtype of the two inputs. Comparisons use this value.
    kPromotedInputs,
};

inline SecondArgument second_argument(const aclTensor* other, const aclScalar* alpha = nullptr) {
    return {other, nullptr, alpha};
}
inline SecondArgument second_argument(const aclScalar* other, const aclScalar* alpha = nullptr) {
    return {nullptr, other, alpha};
}

// Runs the first phase of a function of two inputs.
aclError prepare_binary(const char* name, const BinaryFunction& function, ComputeDtype compute_dtype,
                        const aclTensor* self, const SecondArgument& second, const aclTensor* out,
                        uint64_t* workspace_bytes, aclOpExecutor** executor);

}  // namespace simulated_cann

// Defines the two functions of one form of an operator. `second` is the argument list of second_argument(), `result` is
// out or self. The variadic arguments are the form's parameters after self.
#define NPU_CANN_BINARY(name, function, compute_dtype, second, result, ...)                                     \
    NPU_CANN_API aclError name##GetWorkspaceSize(aclTensor* self, __VA_ARGS__, uint64_t* bytes,                 \
                                                 aclOpExecutor** executor) {                                    \
        return simulated_cann::prepare_binary(#name, function, compute_dtype, self,                             \
                                              simulated_cann::second_argument second, result, bytes, executor); \
    }                                                                                                           \
    NPU_CANN_SECOND_PHASE(name)

// Define the four forms of an operator. TENSOR and SCALAR are aclnn's names of the forms with a tensor and a scalar.
#define NPU_CANN_WITHOUT_ALPHA(TENSOR, SCALAR, function, compute_dtype)                                           \
    NPU_CANN_BINARY(aclnn##TENSOR, function, compute_dtype, (other), out, const aclTensor* other, aclTensor* out) \
    NPU_CANN_BINARY(aclnn##SCALAR, function, compute_dtype, (other), out, const aclScalar* other, aclTensor* out) \
    NPU_CANN_BINARY(aclnnInplace##TENSOR, function, compute_dtype, (other), self, const aclTensor* other)         \
    NPU_CANN_BINARY(aclnnInplace##SCALAR, function, compute_dtype, (other), self, const aclScalar* other)

#define NPU_CANN_WITH_ALPHA(TENSOR, SCALAR, function)                                                            \
    NPU_CANN_BINARY(aclnn##TENSOR, function, simulated_cann::ComputeDtype::kOutput, (other, alpha), out,         \
                    const aclTensor* other, const aclScalar* alpha, aclTensor* out)                              \
    NPU_CANN_BINARY(aclnn##SCALAR, function, simulated_cann::ComputeDtype::kOutput, (other, alpha), out,         \
                    const aclScalar* other, const aclScalar* alpha, aclTensor* out)                              \
    NPU_CANN_BINARY(aclnnInplace##TENSOR, function, simulated_cann::ComputeDtype::kOutput, (other, alpha), self, \
                    const aclTensor* other, const aclScalar* alpha)                                              \
    NPU_CANN_BINARY(aclnnInplace##SCALAR, function, simulated_cann::ComputeDtype::kOutput, (other, alpha), self, \
                    const aclScalar* other, const aclScalar* alpha)
