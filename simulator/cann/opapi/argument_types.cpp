#include "cann/opapi/argument_types.h"

#include <cstring>
#include <initializer_list>
#include <vector>

namespace simulated_cann {
namespace {

constexpr uint32_t types(std::initializer_list<Dtype> list) {
    uint32_t bits = 0;
    for (Dtype one : list) bits |= 1U << one;
    return bits;
}

constexpr uint32_t kHalfToDouble = types({kFloat16, kFloat, kDouble});
constexpr uint32_t kReal = types({kFloat16, kFloat, kDouble, kInt8, kUint8, kInt16, kInt32, kInt64, kBool});
constexpr uint32_t kSigned = types({kFloat16, kFloat, kDouble, kInt8, kInt32, kInt64});
constexpr uint32_t kRange = types({kFloat16, kFloat, kDouble, kInt32, kInt64});
constexpr uint32_t kComplex = types({kComplex64, kComplex128});
constexpr uint32_t kNumber = kReal | kComplex;
constexpr uint32_t kUnsigned16 = types({kUint16});
constexpr uint32_t kUnsigned32And64 = types({kUint32, kUint64});
constexpr uint32_t kWide = kUnsigned16 | kUnsigned32And64;  // unsigned types of at least 16 bits
constexpr uint32_t kBf16 = types({kBfloat16});

struct TypesByChip {
    uint32_t on_910, on_310p;  // on Ascend910B and Ascend910_93; on Ascend310P
};
// Types of all chips, and bfloat16, which Ascend310P lacks.
constexpr TypesByChip and_bf16(uint32_t all) { return {all | kBf16, all}; }
constexpr TypesByChip on_all(uint32_t all) { return {all, all}; }
constexpr TypesByChip by_chip(uint32_t on_910, uint32_t on_310p) { return {on_910, on_310p}; }

struct ArgumentTypes {
    const char* function;  // without aclnn and Inplace
    const char* source;    // in hicann/ops-math
    TypesByChip inputs, outputs = inputs;
};

// Inputs are tensors and scalars; an in-place function's tensor is an input and an output.
// tests/programs/test_argument_types.py has an independent copy of these lists.
//
// If a source checks fewer arguments than the function's documentation lists, the table has the documentation's
// types (docs/ beside the source's op_api/): outputs of Add, Sub, Div and Neg; scalars of Add, Sub, Mul and FillScalar;
// the inputs of EqTensor, GtTensor, GeTensor and GeScalar, whose source checks only the common type; the value of
// FillTensor.
constexpr ArgumentTypes kArgumentTypes[] = {
    {"Add", "math/add/op_api/aclnn_add.cpp", and_bf16(kNumber)},
    {"Adds", "math/add/op_api/aclnn_add.cpp", and_bf16(kNumber)},
    {"Sub", "math/sub/op_api/aclnn_sub.cpp", and_bf16(kNumber)},
    {"Subs", "math/sub/op_api/aclnn_sub.cpp", and_bf16(kNumber)},
    {"Mul", "math/mul/op_api/aclnn_mul.cpp", and_bf16(kNumber)},
    {"Muls", "math/mul/op_api/aclnn_mul.cpp", and_bf16(kNumber)},
    {"Div", "math/div/op_api/aclnn_div.cpp", and_bf16(kNumber)},
    {"Divs", "math/div/op_api/aclnn_div.cpp", and_bf16(kNumber)},
    {"Neg", "math/neg/op_api/aclnn_neg.cpp", and_bf16(kSigned | kComplex)},
    {"EqTensor", "math/equal/op_api/aclnn_eq_tensor.cpp", by_chip(kNumber | kBf16, kNumber | kUnsigned32And64)},
    // The source treats every unknown chip as an Ascend910B, including bfloat16. The kernel of Ascend310P has no
    // bfloat16 (equal.cpp beside it), and the documentation does not list it.
    {"EqScalar", "math/equal/op_api/aclnn_eq_scalar.cpp", and_bf16(kNumber)},
    {"NeTensor", "math/not_equal/op_api/aclnn_ne_tensor.cpp", and_bf16(kNumber)},
    {"NeScalar", "math/not_equal/op_api/aclnn_ne_scalar.cpp", and_bf16(kNumber)},
    {"LtTensor", "math/less/op_api/aclnn_lt_tensor.cpp", and_bf16(kReal | kWide)},
    {"LtScalar", "math/less/op_api/aclnn_lt_scalar.cpp", and_bf16(kReal | kWide)},
    {"LeTensor", "math/less_equal/op_api/aclnn_le_tensor.cpp", and_bf16(kReal | kUnsigned16)},
    {"LeScalar", "math/less_equal/op_api/aclnn_le_scalar.cpp", and_bf16(kReal | kUnsigned16)},
    {"GtTensor", "math/greater/op_api/aclnn_gt_tensor.cpp", and_bf16(kReal | kWide), and_bf16(kNumber | kWide)},
    {"GtScalar", "math/greater/op_api/aclnn_gt_scalar.cpp", and_bf16(kReal | kWide), and_bf16(kNumber | kWide)},
    // The source accepts an output of bfloat16 on Ascend310P; the documentation does not list it.
    {"GeTensor", "math/greater_equal/op_api/aclnn_ge_tensor.cpp", and_bf16(kReal | kWide), and_bf16(kNumber | kWide)},
    {"GeScalar", "math/greater_equal/op_api/aclnn_ge_scalar.cpp", and_bf16(kReal | kWide), and_bf16(kNumber | kWide)},
    {"Arange", "math/range/op_api/aclnn_arange.cpp", and_bf16(kReal), and_bf16(kRange)},
    {"Cast", "math/cast/op_api/aclnn_cast.cpp", and_bf16(kNumber | kWide)},
    // Source and documentation have one list for all chips, including bfloat16.
    {"Copy", "conversion/view_copy/op_api/aclnn_copy.cpp", on_all(kNumber | kWide | kBf16)},
    {"Complex", "math/complex/op_api/aclnn_complex.cpp", on_all(kHalfToDouble), on_all(kComplex)},
    {"FillScalar", "conversion/fill/op_api/aclnn_fill_scalar.cpp", by_chip(kNumber | kWide | kBf16, kNumber)},
    {"FillTensor", "conversion/fill/op_api/aclnn_fill_tensor.cpp", and_bf16(kNumber)},
    {"One", "math/ones_like/op_api/aclnn_ones.cpp", and_bf16(kReal)},
    // The source has one list for all simulated chips. By math/zero_op/tests/ut/op_api/test_aclnn_zero.cpp, bfloat16
    // has an AI CPU kernel on chips without an AI core kernel. The documentation does not list it on Ascend310P.
    {"Zero", "math/zero_op/op_api/aclnn_zero.cpp", on_all(kNumber | kUnsigned16 | kBf16)},
};

// hicann/ops-math, the check of shapes in each source. For Muls and its in-place form only the documentation has the
// limit. Zero checks it for types without an AI core kernel only (math/zero_op/op_api/zero_op.cpp). The in-place form
// of Mul does not check it. The simulation always does.
constexpr size_t kMaxRank = 8;

std::string list_of(uint32_t allowed) {
    std::vector<int32_t> found;
    for (int32_t dtype = 0; dtype < 32; ++dtype)
        if (allowed >> dtype & 1) found.push_back(dtype);
    std::string text;
    for (size_t i = 0; i < found.size(); ++i)
        text += std::string(i == 0 ? "" : i + 1 == found.size() ? " or " : ", ") + dtype_name(found[i]);
    return text;
}

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

const char* base_of(const char* function) {
    for (const char* prefix : {"aclnn", "Inplace"})
        if (starts_with(function, prefix)) function += std::strlen(prefix);
    return function;
}

const ArgumentTypes* row_of(const char* function) {
    for (const ArgumentTypes& row : kArgumentTypes)
        if (std::strcmp(row.function, base_of(function)) == 0) return &row;
    return nullptr;
}

bool is_wide(int32_t dtype) { return (kWide >> dtype & 1) != 0; }

// hicann/opbase include/nnopbase/opdev/data_type_utils.h, CanCast.
bool can_cast(int32_t from, int32_t to) {
    if (is_complex(from) && !is_complex(to)) return false;
    if (is_floating(from) && !is_floating(to) && !is_complex(to) && to != kBool) return false;
    return from == kBool || to != kBool;
}

// hicann/ops-math math/add/op_api/aclnn_add.cpp and math/sub/op_api/aclnn_sub.cpp, PromoteTypeScalar.
int32_t type_with_scalar(int32_t self, int32_t scalar, int32_t out) {
    if (is_complex(self) || is_complex(scalar)) return promoted(self, true, scalar, true);
    if (is_floating(self)) return self;
    if (scalar == kDouble && out == kFloat) return kFloat;
    return is_floating(scalar) || self == kBool ? promoted(self, true, scalar, true) : self;
}

// The part of argument_rule for the type.
std::string type_rule(const char* function, Role role, const char* what, int32_t dtype) {
    const ArgumentTypes* row = row_of(function);
    if (!row) return "has no row in simulator/cann/opapi/argument_types.cpp.";
    const TypesByChip& types = role == Role::kInput ? row->inputs : row->outputs;
    const uint32_t allowed = is_ascend310p() ? types.on_310p : types.on_910;
    if (allowed >> dtype & 1) return "";
    return std::string(what) + " must be " + list_of(allowed) + " on " + soc_name() + " but got " + dtype_name(dtype) +
           ".";
}

}  // namespace

const char* dtype_name(int32_t dtype) {
    static constexpr struct {
        Dtype dtype;
        const char* name;
    } names[] = {{kFloat16, "float16"}, {kBfloat16, "bfloat16"},   {kFloat, "float32"},        {kDouble, "float64"},
                 {kInt8, "int8"},       {kUint8, "uint8"},         {kInt16, "int16"},          {kUint16, "uint16"},
                 {kInt32, "int32"},     {kUint32, "uint32"},       {kInt64, "int64"},          {kUint64, "uint64"},
                 {kBool, "bool"},       {kComplex64, "complex64"}, {kComplex128, "complex128"}};
    for (const auto& one : names)
        if (one.dtype == dtype) return one.name;
    return "another type";
}

std::string argument_rule(const char* function, Role role, const char* what, const Operand& argument) {
    std::string error = type_rule(function, role, what, argument.dtype);
    if (!error.empty() || argument.shape.size() <= kMaxRank) return error;
    return std::string(what) + " must have at most " + std::to_string(kMaxRank) + " dimensions but got " +
           std::to_string(argument.shape.size()) + ".";
}

std::string argument_rule(const char* function, const char* what, const aclScalar& argument) {
    return type_rule(function, Role::kInput, what, argument.dtype);
}

// hicann/opbase include/nnopbase/opdev/data_type_utils.h, kPromoteTypesLookup: an unsigned type of at least 16
// bits has a common type only with itself, and with a complex type that is the second of the two.
std::string promotion_rule(int32_t self, int32_t other) {
    if (self == other || (!is_wide(self) && !is_wide(other)) || (is_wide(self) && is_complex(other))) return "";
    return std::string("self and other must have a common type but got ") + dtype_name(self) + " and " +
           dtype_name(other) + ".";
}

// hicann/ops-math, CheckPromoteType of math/add/op_api/aclnn_add.cpp, math/sub/op_api/aclnn_sub.cpp,
// math/div/op_api/aclnn_div.cpp and math/neg/op_api/aclnn_neg.cpp, CheckMulPromoteType of
// math/mul/op_api/aclnn_mul.cpp. The result of a comparison is bool, which converts to every type. Divs checks only
// that the type of self converts to out's (CheckPromoteTypeScalar). Muls checks no conversion on Ascend910B,
// Ascend910_93 and Ascend310P (CheckMulsPromoteDtype).
std::string cast_rule(const char* function, const CallTypes& types) {
    const char* base = base_of(function);
    const auto is_one_of = [base](std::initializer_list<const char*> names) {
        for (const char* name : names)
            if (std::strcmp(base, name) == 0) return true;
        return false;
    };
    int32_t result = types.self;
    if (is_one_of({"Add", "Adds", "Sub", "Subs", "Mul", "Div"}))
        result = types.other_is_scalar ? type_with_scalar(types.self, types.other, types.out)
                                       : promoted(types.self, true, types.other, true);
    else if (!is_one_of({"Divs", "Neg"}))
        return "";
    if (types.alpha >= 0 && result == kBool && (is_floating(types.alpha) || is_complex(types.alpha)))
        return std::string("alpha must be bool or an integer, as self and other are bool, but got ") +
               dtype_name(types.alpha) + ".";
    if (types.alpha >= 0 && result != kBool && !can_cast(types.alpha, result))
        return std::string("alpha must have a type that converts to ") + dtype_name(result) +
               ", the common type of self and other, but got " + dtype_name(types.alpha) + ".";
    if (can_cast(result, types.out)) return "";
    return std::string("out must have a type that ") + dtype_name(result) +
           ", the type of the result, converts to but got " + dtype_name(types.out) + ".";
}

}  // namespace simulated_cann
