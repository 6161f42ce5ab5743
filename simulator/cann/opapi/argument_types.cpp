#include "cann/opapi/argument_types.h"

#include <cstring>
#include <initializer_list>

namespace simulated_cann {
namespace {

struct ArgumentTypes {
    const char* function;  // the name without the prefixes aclnn and Inplace
    const char* source;    // path in hicann/ops-math
    TypesByChip inputs, outputs = inputs;
};

constexpr uint32_t kUndocumentedFills = kComplexTypes | type_set({kDouble});  // of FillTensor

// Inputs are tensors and scalars. The tensor of an in-place function is an input and an output.
// tests/programs/test_argument_types.py has an independent copy of these lists.
//
// If a source checks fewer arguments than the function's documentation lists (docs/ beside the source's op_api/), the
// table has the types of the documentation:
// - outputs of Add, Sub, Div and Neg;
// - scalars of Add, Sub, Mul and FillScalar;
// - inputs of EqTensor, GtTensor, GeTensor and GeScalar, because the source checks only the common type;
// - the value of FillTensor.
// The documents of Add, Sub, Div, Neg, Eq, Ne and Lt do not list Ascend310P; the sources accept calls on it.
constexpr ArgumentTypes kArgumentTypes[] = {
    {"Add", "math/add/op_api/aclnn_add.cpp", undocumented_on_310p(kNumberTypes)},
    {"Adds", "math/add/op_api/aclnn_add.cpp", with_bf16_except_310p(kNumberTypes)},
    {"Sub", "math/sub/op_api/aclnn_sub.cpp", undocumented_on_310p(kNumberTypes)},
    {"Subs", "math/sub/op_api/aclnn_sub.cpp", with_bf16_except_310p(kNumberTypes)},
    {"Mul", "math/mul/op_api/aclnn_mul.cpp", with_bf16_except_310p(kNumberTypes)},
    {"Muls", "math/mul/op_api/aclnn_mul.cpp", with_bf16_except_310p(kNumberTypes)},
    {"Div", "math/div/op_api/aclnn_div.cpp", undocumented_on_310p(kNumberTypes)},
    {"Divs", "math/div/op_api/aclnn_div.cpp", undocumented_on_310p(kNumberTypes)},
    {"Neg", "math/neg/op_api/aclnn_neg.cpp", undocumented_on_310p(kSignedTypes | kComplexTypes)},
    {"EqTensor", "math/equal/op_api/aclnn_eq_tensor.cpp",
     undocumented_on_310p(kNumberTypes | kBf16, kNumberTypes | kUnsigned32And64)},
    // The source treats every unknown chip as an Ascend910B and accepts bfloat16 there. But the kernel of Ascend310P
    // has no bfloat16 (equal.cpp beside the source), and the documentation does not list bfloat16 for this chip.
    {"EqScalar", "math/equal/op_api/aclnn_eq_scalar.cpp", undocumented_on_310p(kNumberTypes)},
    {"NeTensor", "math/not_equal/op_api/aclnn_ne_tensor.cpp", undocumented_on_310p(kNumberTypes)},
    {"NeScalar", "math/not_equal/op_api/aclnn_ne_scalar.cpp", undocumented_on_310p(kNumberTypes)},
    {"LtTensor", "math/less/op_api/aclnn_lt_tensor.cpp", undocumented_on_310p(kRealTypes | kWideUnsigned)},
    {"LtScalar", "math/less/op_api/aclnn_lt_scalar.cpp", undocumented_on_310p(kRealTypes | kWideUnsigned)},
    {"LeTensor", "math/less_equal/op_api/aclnn_le_tensor.cpp", with_bf16_except_310p(kRealTypes | kUnsigned16)},
    {"LeScalar", "math/less_equal/op_api/aclnn_le_scalar.cpp", with_bf16_except_310p(kRealTypes | kUnsigned16)},
    {"GtTensor", "math/greater/op_api/aclnn_gt_tensor.cpp", with_bf16_except_310p(kRealTypes | kWideUnsigned),
     with_bf16_except_310p(kNumberTypes | kWideUnsigned)},
    {"GtScalar", "math/greater/op_api/aclnn_gt_scalar.cpp", with_bf16_except_310p(kRealTypes | kWideUnsigned),
     with_bf16_except_310p(kNumberTypes | kWideUnsigned)},
    // The source accepts an output of bfloat16 on Ascend310P; the documentation does not list it.
    {"GeTensor", "math/greater_equal/op_api/aclnn_ge_tensor.cpp", with_bf16_except_310p(kRealTypes | kWideUnsigned),
     with_bf16_except_310p(kNumberTypes | kWideUnsigned)},
    {"GeScalar", "math/greater_equal/op_api/aclnn_ge_scalar.cpp", with_bf16_except_310p(kRealTypes | kWideUnsigned),
     with_bf16_except_310p(kNumberTypes | kWideUnsigned)},
    {"Arange", "math/range/op_api/aclnn_arange.cpp", with_bf16_except_310p(kRealTypes),
     with_bf16_except_310p(kRangeTypes)},
    {"Cast", "math/cast/op_api/aclnn_cast.cpp", with_bf16_except_310p(kNumberTypes | kWideUnsigned)},
    // Source and documentation have one list for all chips, and it includes bfloat16.
    {"Copy", "conversion/view_copy/op_api/aclnn_copy.cpp", on_all(kNumberTypes | kWideUnsigned | kBf16)},
    {"Complex", "math/complex/op_api/aclnn_complex.cpp", on_all(kHalfToDoubleTypes), on_all(kComplexTypes)},
    {"FillScalar", "conversion/fill/op_api/aclnn_fill_scalar.cpp",
     by_chip(kNumberTypes | kWideUnsigned | kBf16, kNumberTypes)},
    {"FillTensor", "conversion/fill/op_api/aclnn_fill_tensor.cpp",
     with_undocumented(with_bf16_except_310p(kNumberTypes & ~kUndocumentedFills), kUndocumentedFills,
                       kUndocumentedFills)},
    {"One", "math/ones_like/op_api/aclnn_ones.cpp", with_bf16_except_310p(kRealTypes)},
    // The source has one list for all simulated chips. According to math/zero_op/tests/ut/op_api/test_aclnn_zero.cpp,
    // chips without an AI core kernel for bfloat16 use an AI CPU kernel. The documentation does not list bfloat16 on
    // Ascend310P.
    {"Zero", "math/zero_op/op_api/aclnn_zero.cpp",
     with_undocumented(with_bf16_except_310p(kNumberTypes | kUnsigned16), 0, kBf16)},
};

// The largest number of dimensions, from the check of shapes in each source of hicann/ops-math. The simulation checks
// the limit for every function, but CANN does not:
// - for Muls and InplaceMuls, only the documentation has the limit;
// - Zero checks it only for types without an AI core kernel (math/zero_op/op_api/zero_op.cpp);
// - InplaceMul does not check it.
constexpr size_t kMaxRank = 8;

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

const char* base_name(const char* function) {
    for (const char* prefix : {"aclnn", "Inplace"})
        if (starts_with(function, prefix)) function += std::strlen(prefix);
    return function;
}

const ArgumentTypes* find_row(const char* function) {
    for (const ArgumentTypes& row : kArgumentTypes)
        if (std::strcmp(row.function, base_name(function)) == 0) return &row;
    return nullptr;
}

bool is_wide_unsigned(int32_t dtype) { return (kWideUnsigned >> dtype & 1) != 0; }

// hicann/ops-math math/add/op_api/aclnn_add.cpp and math/sub/op_api/aclnn_sub.cpp, PromoteTypeScalar.
int32_t type_with_scalar(int32_t self, int32_t scalar, int32_t out) {
    if (is_complex(self) || is_complex(scalar)) return promoted_dtype(self, true, scalar, true);
    if (is_floating(self)) return self;
    if (scalar == kDouble && out == kFloat) return kFloat;
    return is_floating(scalar) || self == kBool ? promoted_dtype(self, true, scalar, true) : self;
}

// Returns "" or the reason why the function refuses the type of an argument.
std::string type_error(const char* function, Role role, const char* argument_name, int32_t dtype) {
    const ArgumentTypes* row = find_row(function);
    if (!row) return "has no row in simulator/cann/opapi/argument_types.cpp.";
    return type_error(argument_name, role == Role::kInput ? row->inputs : row->outputs, dtype);
}

}  // namespace

void add_undocumented_type(BeyondDocument* beyond, const char* function, Role role, const char* argument_name,
                           int32_t dtype) {
    const ArgumentTypes* row = find_row(function);
    if (!row) return;
    const TypesByChip& types = role == Role::kInput ? row->inputs : row->outputs;
    const std::string reason = undocumented_type(argument_name, types, dtype);
    beyond->add(!reason.empty(), reason);
}

// hicann/opbase include/nnopbase/opdev/data_type_utils.h, CanCast.
bool can_cast(int32_t from, int32_t to) {
    if (is_complex(from) && !is_complex(to)) return false;
    if (is_floating(from) && !is_floating(to) && !is_complex(to) && to != kBool) return false;
    return from == kBool || to != kBool;
}

std::string read_argument(const char* function, Role role, const aclTensor* tensor, const char* argument_name,
                          Operand* out) {
    if (tensor && !dtype_bytes(tensor->dtype)) {
        const std::string error = type_error(function, role, argument_name, tensor->dtype);
        if (!error.empty()) return error;
    }
    return read_argument(tensor, argument_name, out);
}

std::string read_argument(const char* function, const aclScalar* scalar, const char* argument_name) {
    if (scalar && !dtype_bytes(scalar->dtype)) {
        const std::string error = argument_error(function, argument_name, *scalar);
        if (!error.empty()) return error;
    }
    return read_argument(scalar, argument_name);
}

std::string argument_error(const char* function, Role role, const char* argument_name, const Operand& argument) {
    std::string error = type_error(function, role, argument_name, argument.dtype);
    if (!error.empty() || argument.shape.size() <= kMaxRank) return error;
    return std::string(argument_name) + " must have at most " + std::to_string(kMaxRank) + " dimensions but got " +
           std::to_string(argument.shape.size()) + ".";
}

std::string argument_error(const char* function, const char* argument_name, const aclScalar& argument) {
    return type_error(function, Role::kInput, argument_name, argument.dtype);
}

// An unsigned type of at least 16 bits has a common type only with itself, or if `other` is complex (hicann/opbase
// include/nnopbase/opdev/data_type_utils.h, kPromoteTypesLookup).
std::string promotion_error(int32_t self, int32_t other, const char* other_name) {
    if (self == other || (!is_wide_unsigned(self) && !is_wide_unsigned(other)) ||
        (is_wide_unsigned(self) && is_complex(other)))
        return "";
    return std::string("self and ") + other_name + " must have a common type but got " + dtype_name(self) + " and " +
           dtype_name(other) + ".";
}

// The result of a comparison is bool, which converts to every type. Divs checks only that the type of self converts to
// the type of out (CheckPromoteTypeScalar). Muls checks no conversion on the simulated chips (CheckMulsPromoteDtype).
// Source: hicann/ops-math, CheckPromoteType of math/add/op_api/aclnn_add.cpp, math/sub/op_api/aclnn_sub.cpp,
// math/div/op_api/aclnn_div.cpp and math/neg/op_api/aclnn_neg.cpp, CheckMulPromoteType of
// math/mul/op_api/aclnn_mul.cpp.
std::string cast_error(const char* function, const CallTypes& types) {
    const char* base = base_name(function);
    const auto is_one_of = [base](std::initializer_list<const char*> names) {
        for (const char* name : names)
            if (std::strcmp(base, name) == 0) return true;
        return false;
    };
    int32_t result_dtype = types.self;
    if (is_one_of({"Add", "Adds", "Sub", "Subs", "Mul", "Div"}))
        result_dtype = types.is_other_scalar ? type_with_scalar(types.self, types.other, types.out)
                                             : promoted_dtype(types.self, true, types.other, true);
    else if (!is_one_of({"Divs", "Neg"}))
        return "";
    if (types.alpha >= 0 && result_dtype == kBool && (is_floating(types.alpha) || is_complex(types.alpha)))
        return std::string("alpha must be bool or an integer, as self and other are bool, but got ") +
               dtype_name(types.alpha) + ".";
    if (types.alpha >= 0 && result_dtype != kBool && !can_cast(types.alpha, result_dtype))
        return std::string("alpha must have a type that converts to ") + dtype_name(result_dtype) +
               ", the common type of self and other, but got " + dtype_name(types.alpha) + ".";
    if (can_cast(result_dtype, types.out)) return "";
    return std::string("out must have a type to which ") + dtype_name(result_dtype) +
           ", the type of the result, converts but got " + dtype_name(types.out) + ".";
}

// The documents of Muls and Divs, but not of their in-place forms, require that the promoted type of self and the
// scalar converts to the type of out. For Divs integers are promoted to float32: hicann/ops-math math/muls/docs and
// math/div/docs, with the table TensorScalar of docs/zh/context/deduction_relationship.md.
void add_undocumented_result(BeyondDocument* beyond, const char* function, const CallTypes& types) {
    const bool is_divs = std::strcmp(function, "aclnnDivs") == 0;
    if (!is_divs && std::strcmp(function, "aclnnMuls") != 0) return;
    int32_t result = promoted_dtype(types.self, true, types.other, false);
    if (is_divs && !is_floating(result) && !is_complex(result)) result = kFloat;
    beyond->add(!can_cast(result, types.out), std::string("its document does not convert ") + dtype_name(result) +
                                                  ", the type of the result, to " + dtype_name(types.out));
}

}  // namespace simulated_cann
