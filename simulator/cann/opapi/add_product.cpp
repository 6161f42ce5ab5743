// Addmm, Baddbmm and their in-place forms: out = beta * self + alpha * (mat1 @ mat2).
//
// The functions are compositions, and each part rounds its result. beta * self is rounded to the type of self or to
// float32 (set_types), and the product to the type in which the matrix kernel writes. Their sum is rounded to the type
// to which these two types are promoted. Only a self of one row with alpha = beta = 1 is added before the product is
// rounded. Sources: hicann/ops-nn matmul/mat_mul_v3/op_host/op_api/aclnn_addmm.cpp and
// docs/aclnnAddmm&aclnnInplaceAddmm.md, matmul/batch_mat_mul_v3/op_host/op_api/aclnn_baddbmm.cpp and
// docs/aclnnBaddbmm&aclnnInplaceBaddbmm.md.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cann/opapi/cube.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kFactorTypes = kHalfToDoubleTypes | kIntegerTypes;

struct AddProduct {
    Operand self, first, second, out;
    float beta = 1, alpha = 1;
    CubeTypes types;
    int32_t scaled_self = kFloat;  // the type of beta * self
    bool is_fused = false;         // self is added to the product before it is rounded
};

struct AddProductArguments {
    const char *function, *first_name, *second_name;
    const aclTensor *self, *first, *second;
    const aclScalar *beta, *alpha;
    const aclTensor* out;  // null for the in-place form
    int8_t math_type;
    bool is_batched;
};

// Compares a factor as the source does, with float32's epsilon as the tolerance.
bool is_near(float value, float target) { return std::fabs(value - target) <= std::numeric_limits<float>::epsilon(); }

bool is_16_bits(int32_t dtype) { return dtype == kFloat16 || dtype == kBfloat16; }

// Whether self is a bias of one row that the kernel adds. The source's functions are NeedToConvertBias and
// check16In32Output.
bool is_bias(const AddProduct& p) {
    const std::vector<int64_t>& shape = p.self.shape;
    const bool is_row = shape.size() == 1 || (shape.size() == 2 && shape[0] == 1);
    const bool writes_float_sums =
        p.first.dtype == p.second.dtype && is_16_bits(p.first.dtype) && p.out.dtype == kFloat;
    const bool is_bias_type = p.first.dtype != kBfloat16 || p.self.dtype != kFloat16;
    // On Ascend310P the source splits long sums. Here self is then added separately, which rounds more often.
    return is_row && shape.back() == p.out.shape.back() && p.first.shape.size() == 2 && is_bias_type &&
           !writes_float_sums && is_near(p.alpha, 1) && is_near(p.beta, 1) && !is_ascend310p();
}

void set_types(AddProduct* p, int8_t math_type, bool is_batched) {
    p->is_fused = is_bias(*p);
    const bool has_16_bit_inputs = p->first.dtype == p->second.dtype && is_16_bits(p->first.dtype);
    // With these options, a product of 16-bit types is kept in float32 until beta * self is added, on Ascend910B.
    const bool adds_in_float =
        has_16_bit_inputs && !is_ascend310p() && !p->is_fused && !is_near(p->beta, 0) &&
        (math_type == kKeepDtype || math_type == kUseFp32Add || (math_type == kUseHf32 && !is_batched));
    if (adds_in_float) p->types.result = kFloat;
    p->scaled_self = p->self.dtype;
    const bool widens_self =
        has_16_bit_inputs && !is_ascend310p() && (p->out.dtype == kFloat || math_type == kUseFp32Add);
    if (widens_self) p->scaled_self = kFloat;
}

void check_shapes(FirstPhase* call, const AddProduct& p, const AddProductArguments& given) {
    const std::vector<int64_t>&a = p.first.shape, &b = p.second.shape;
    const size_t rank = a.size();
    call->require(a[rank - 1] == b[rank - 2], given.second_name, "have " + std::to_string(a[rank - 1]) + " rows",
                  b[rank - 2]);
    if (given.is_batched) {
        call->require(b[0] == a[0] || (b[0] == 1 && given.out), given.second_name,
                      "have the batch size " + std::to_string(a[0]) + (given.out && a[0] != 1 ? " or 1" : ""), b[0]);
        // batch_matmul_util.cpp fills the product with zeros, except in GemmV3, whose result is not known.
        const bool uses_gemm = given.math_type == kUseFp32Add || (is_16_bits(p.first.dtype) && p.out.dtype == kFloat);
        call->refuse_unsimulated(a[rank - 1] == 0 && p.out.count() && uses_gemm && !is_ascend310p(),
                                 "a product of no columns with float32 sums");
        const bool is_empty = a[0] == 0 || a[1] == 0 || b[2] == 0;  // aclnn_baddbmm.cpp, CheckShape
        call->require((p.self.count() == 0) == is_empty, given.out ? "self" : "selfRef",
                      std::string(is_empty ? "be empty" : "have elements") + ", as the product",
                      shape_text(p.self.shape));
    }
    std::vector<int64_t> shape(a.begin(), a.end() - 1);
    shape.push_back(b[rank - 1]);
    call->require_shape(given.out ? "out" : "selfRef", p.out, shape);
    Operand result = p.out;
    result.shape = shape;
    const std::string error = broadcast_error(p.self, result, "self");
    call->require(error.empty(), "self", "broadcast to " + shape_text(shape), shape_text(p.self.shape));
}

// The documents of Baddbmm list one type for all tensors. They allow a product of 16-bit types whose self and out are
// float32 on Ascend910B. The sources promote the types.
void report_types(FirstPhase* call, const AddProduct& p, const AddProductArguments& given) {
    const int32_t type = p.first.dtype, out = p.out.dtype;
    if (given.is_batched) {
        const bool is_wider_sum = is_16_bits(type) && out == kFloat && !is_ascend310p();
        call->report_beyond_document(p.second.dtype != type || p.self.dtype != out || (out != type && !is_wider_sum),
                                     "its document requires one type for self, batch1, batch2 and out");
        call->report_beyond_document(p.self.shape.empty(), "its document requires 1 to 3 dimensions for self");
    } else if (given.out) {
        call->report_beyond_document(out != promoted_dtype(p.self.dtype, true, p.second.dtype, true),
                                     "its document requires the common type of self and mat2 for out");
    }
}

void run(const AddProduct& p) {
    if (p.out.count() == 0) return;
    std::vector<float> scaled = values_of<float>(p.self.broadcast_to(p.out.shape));
    if (!is_near(p.beta, 1))
        for (float& value : scaled) value *= p.beta;
    round_to(p.scaled_self, &scaled);
    const bool is_empty_addmm = p.first.shape.size() == 2 && p.first.shape.back() == 0;
    if (is_near(p.alpha, 0) || is_empty_addmm) return set_values(p.out, scaled);
    std::vector<float> sums = batched_product(p.first, p.second, p.types.rounding);
    if (p.is_fused) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += scaled[i];
        round_to(p.types.result, &sums);
        return set_values(p.out, sums);
    }
    round_to(p.types.result, &sums);
    if (!is_near(p.alpha, 1))
        for (float& value : sums) value *= p.alpha;
    if (is_near(p.beta, 0)) {
        round_to(p.types.result, &sums);
        return set_values(p.out, sums);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += scaled[i];
    round_to(promoted_dtype(p.scaled_self, true, p.types.result, true), &sums);
    set_values(p.out, sums);
}

aclError prepare_add_product(const AddProductArguments& given, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(given.function);
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const RankRange ranks{given.is_batched ? 3U : 2U, given.is_batched ? 3U : 2U};
    AddProduct p;
    if (given.out)
        p.self = call.input("self", given.self, types, {given.is_batched ? 0U : 1U, ranks.most});
    else
        p.self = call.in_place("selfRef", given.self, types, ranks);
    p.first = call.input(given.first_name, given.first, types, ranks);
    p.second = call.input(given.second_name, given.second, types, ranks);
    const TypesByChip factors = on_all(kFactorTypes | (given.is_batched ? kBoolType : 0));
    p.beta = call.scalar<float>("beta", given.beta, factors);
    p.alpha = call.scalar<float>("alpha", given.alpha, factors);
    p.out = given.out ? call.output("out", given.out, types, ranks) : p.self;
    if (given.is_batched) {
        call.require_format_of(given.first_name, given.first, given.second_name, given.second);
        call.require_format_of(given.first_name, given.first, given.out ? "out" : "selfRef",
                               given.out ? given.out : given.self);
    }
    if (!given.is_batched) report_ignored_option(&call, p.first.dtype, p.second.dtype, given.math_type);
    p.types = cube_types(&call, p.first.dtype, p.second.dtype, p.out.dtype, given.math_type, true);
    if (call.is_valid()) check_shapes(&call, p, given);
    report_types(&call, p, given);
    if (call.is_valid()) {
        set_types(&p, given.math_type, given.is_batched);
        // The product and beta * self are in the workspace.
        call.ask_workspace(p.out.count() * dtype_bytes(p.types.result));
        call.ask_workspace(p.self.count() * dtype_bytes(p.scaled_self));
    }
    return call.finish([p] { run(p); }, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

#define NPU_CANN_ADD_PRODUCT(name, first, second, is_batched)                                                         \
    NPU_CANN_API aclError aclnn##name##GetWorkspaceSize(                                                              \
        const aclTensor* self, const aclTensor* first, const aclTensor* second, const aclScalar* beta,                \
        const aclScalar* alpha, aclTensor* out, int8_t cubeMathType, uint64_t* bytes, aclOpExecutor** executor) {     \
        if (!out) return simulated_cann::refuse("aclnn" #name, std::string("out") + simulated_cann::kMustNotBeNull);  \
        return simulated_cann::prepare_add_product(                                                                   \
            {"aclnn" #name, #first, #second, self, first, second, beta, alpha, out, cubeMathType, is_batched}, bytes, \
            executor);                                                                                                \
    }                                                                                                                 \
    NPU_CANN_SECOND_PHASE(aclnn##name)                                                                                \
    NPU_CANN_API aclError aclnnInplace##name##GetWorkspaceSize(                                                       \
        aclTensor* selfRef, const aclTensor* first, const aclTensor* second, const aclScalar* beta,                   \
        const aclScalar* alpha, int8_t cubeMathType, uint64_t* bytes, aclOpExecutor** executor) {                     \
        return simulated_cann::prepare_add_product({"aclnnInplace" #name, #first, #second, selfRef, first, second,    \
                                                    beta, alpha, nullptr, cubeMathType, is_batched},                  \
                                                   bytes, executor);                                                  \
    }                                                                                                                 \
    NPU_CANN_SECOND_PHASE(aclnnInplace##name)

NPU_CANN_ADD_PRODUCT(Addmm, mat1, mat2, false)
NPU_CANN_ADD_PRODUCT(Baddbmm, batch1, batch2, true)
