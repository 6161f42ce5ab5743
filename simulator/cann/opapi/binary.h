// out[i] = f(a[i], b[i], alpha): the common code of arithmetic and comparison.
#pragma once

#include "cann/opapi/elements.h"

namespace npu_cann {

// The second argument, a tensor or a scalar, and alpha, which is 1 if absent.
struct Second {
    const aclTensor* tensor = nullptr;
    const aclScalar* scalar = nullptr;
    const aclScalar* alpha = nullptr;
};

// Functions that process a run in each of the compute types; results are converted to out's dtype. Null if the
// function is undefined, such as the order of complex numbers.
template <class C>
using RunFunction = void (*)(int64_t count, const C* a, const C* b, C alpha, C* out);
struct BinaryFunction {
    RunFunction<int64_t> integer;
    RunFunction<float> single;
    RunFunction<double> twofold;
    RunFunction<std::complex<float>> complex_single;
    RunFunction<std::complex<double>> complex_twofold;
};

enum class Computed {
    kAsOut,     // in out's dtype: arithmetic
    kAsInputs,  // in the promoted dtype of a and b: comparison
};

aclError prepare_binary(const char* name, const BinaryFunction& f, Computed computed, const aclTensor* self,
                        const Second& second, const aclTensor* out, uint64_t* workspace_bytes,
                        aclOpExecutor** executor);

}  // namespace npu_cann

// The four forms of an operator f; SCALAR is aclnn's name of the form with a scalar.
#define NPU_CANN_WITHOUT_ALPHA(TENSOR, SCALAR, f, computed)                                                            \
    NPU_CANN_API aclError aclnn##TENSOR##GetWorkspaceSize(const aclTensor* self, const aclTensor* other,               \
                                                          aclTensor* out, uint64_t* bytes, aclOpExecutor** e) {        \
        return npu_cann::prepare_binary("aclnn" #TENSOR, f, computed, self, {other, nullptr, nullptr}, out, bytes, e); \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnn##SCALAR##GetWorkspaceSize(const aclTensor* self, const aclScalar* other,               \
                                                          aclTensor* out, uint64_t* bytes, aclOpExecutor** e) {        \
        return npu_cann::prepare_binary("aclnn" #SCALAR, f, computed, self, {nullptr, other, nullptr}, out, bytes, e); \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnnInplace##TENSOR##GetWorkspaceSize(aclTensor* self, const aclTensor* other,              \
                                                                 uint64_t* bytes, aclOpExecutor** e) {                 \
        return npu_cann::prepare_binary("aclnnInplace" #TENSOR, f, computed, self, {other, nullptr, nullptr}, self,    \
                                        bytes, e);                                                                     \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnnInplace##SCALAR##GetWorkspaceSize(aclTensor* self, const aclScalar* other,              \
                                                                 uint64_t* bytes, aclOpExecutor** e) {                 \
        return npu_cann::prepare_binary("aclnnInplace" #SCALAR, f, computed, self, {nullptr, other, nullptr}, self,    \
                                        bytes, e);                                                                     \
    }                                                                                                                  \
    NPU_CANN_PHASE_TWO(aclnn##TENSOR)                                                                                  \
    NPU_CANN_PHASE_TWO(aclnn##SCALAR)                                                                                  \
    NPU_CANN_PHASE_TWO(aclnnInplace##TENSOR)                                                                           \
    NPU_CANN_PHASE_TWO(aclnnInplace##SCALAR)

#define NPU_CANN_WITH_ALPHA(TENSOR, SCALAR, f)                                                                         \
    NPU_CANN_API aclError aclnn##TENSOR##GetWorkspaceSize(const aclTensor* self, const aclTensor* other,               \
                                                          const aclScalar* alpha, aclTensor* out, uint64_t* bytes,     \
                                                          aclOpExecutor** e) {                                         \
        return npu_cann::prepare_binary("aclnn" #TENSOR, f, npu_cann::Computed::kAsOut, self, {other, nullptr, alpha}, \
                                        out, bytes, e);                                                                \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnn##SCALAR##GetWorkspaceSize(const aclTensor* self, const aclScalar* other,               \
                                                          const aclScalar* alpha, aclTensor* out, uint64_t* bytes,     \
                                                          aclOpExecutor** e) {                                         \
        return npu_cann::prepare_binary("aclnn" #SCALAR, f, npu_cann::Computed::kAsOut, self, {nullptr, other, alpha}, \
                                        out, bytes, e);                                                                \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnnInplace##TENSOR##GetWorkspaceSize(                                                      \
        aclTensor* self, const aclTensor* other, const aclScalar* alpha, uint64_t* bytes, aclOpExecutor** e) {         \
        return npu_cann::prepare_binary("aclnnInplace" #TENSOR, f, npu_cann::Computed::kAsOut, self,                   \
                                        {other, nullptr, alpha}, self, bytes, e);                                      \
    }                                                                                                                  \
    NPU_CANN_API aclError aclnnInplace##SCALAR##GetWorkspaceSize(                                                      \
        aclTensor* self, const aclScalar* other, const aclScalar* alpha, uint64_t* bytes, aclOpExecutor** e) {         \
        return npu_cann::prepare_binary("aclnnInplace" #SCALAR, f, npu_cann::Computed::kAsOut, self,                   \
                                        {nullptr, other, alpha}, self, bytes, e);                                      \
    }                                                                                                                  \
    NPU_CANN_PHASE_TWO(aclnn##TENSOR)                                                                                  \
    NPU_CANN_PHASE_TWO(aclnn##SCALAR)                                                                                  \
    NPU_CANN_PHASE_TWO(aclnnInplace##TENSOR)                                                                           \
    NPU_CANN_PHASE_TWO(aclnnInplace##SCALAR)
