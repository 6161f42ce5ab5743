// Matrix products as the cube unit computes them: the inputs are rounded to one type, the products are added in float32
// in the order of k, and the sums are rounded to the type in which the kernel writes.
#pragma once

#include <vector>

#include "cann/opapi/first_phase.h"

namespace simulated_cann {

// cubeMathType of the documents.
enum CubeMathType : int8_t { kKeepDtype = 0, kAllowDownPrecision = 1, kUseFp16 = 2, kUseHf32 = 3, kUseFp32Add = 4 };

// The reason to report for functions whose source treats kUseFp32Add as kKeepDtype.
constexpr const char* kUnlistedFp32Add = "its document does not list cubeMathType 4";

// How a float32 input is rounded before the product.
enum class CubeRounding { kNone, kFloat16, kBfloat16, kHf32 };

struct CubeTypes {
    CubeRounding rounding = CubeRounding::kNone;
    int32_t compute = kFloat;  // the type to which CANN casts the inputs
    int32_t result = kFloat;   // the type that the kernel writes, before a conversion to out's type
};

// Checks cubeMathType and returns the types of a product of `a` and `b`. `takes_fp32_add` tells whether the function
// documents cubeMathType 4. For other functions, 4 acts as 0 on Ascend910B.
CubeTypes cube_types(FirstPhase* call, int32_t a, int32_t b, int32_t out, int8_t math_type, bool takes_fp32_add);

// Reports cubeMathType 2 with bfloat16, and cubeMathType 3 without float32. The documents of Mm, Matmul, Mv and Addmm
// do not support these combinations. The source ignores the option with a warning
// (matmul/common/op_host/op_api/cube_util.cpp, CheckCubeMathTypeForMm), or computes mixed types in float16.
void report_ignored_option(FirstPhase* call, int32_t a, int32_t b, int8_t math_type);

// Vectors of `length` elements in memory. `stride` is in elements.
struct Vectors {
    std::vector<const char*> addresses;
    int64_t length = 0, stride = 1;
    int32_t dtype = kFloat;
};

// Sets out[i * columns.addresses.size() + j] to the inner product of row i and column j.
void multiply(const Vectors& rows, const Vectors& columns, CubeRounding rounding, float* out);

// out = a @ b for the last two dimensions; the other dimensions broadcast. `a` and `b` have at least two dimensions and
// as many as the result. Returns the packed result in float32.
std::vector<float> batched_product(const Operand& a, const Operand& b, CubeRounding rounding);

// Rounds a float32 to HF32, which has 11 bits of fraction.
float rounded_to_hf32(float value);

}  // namespace simulated_cann
