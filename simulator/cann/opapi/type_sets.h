// Sets of data types that an argument of an aclnn function accepts, by chip.
#pragma once

#include <initializer_list>
#include <string>

#include "cann/opapi/elements.h"

namespace simulated_cann {

// A set of types. Bit n is set if the set contains the type with the number n in aclDataType.
constexpr uint32_t type_set(std::initializer_list<Dtype> list) {
    uint32_t bits = 0;
    for (Dtype dtype : list) bits |= 1U << dtype;
    return bits;
}

constexpr uint32_t kHalfToDoubleTypes = type_set({kFloat16, kFloat, kDouble});
constexpr uint32_t kHalfAndFloatTypes = type_set({kFloat16, kFloat});
constexpr uint32_t kIntegerTypes = type_set({kInt8, kUint8, kInt16, kInt32, kInt64});
constexpr uint32_t kIndexTypes = type_set({kInt32, kInt64});
constexpr uint32_t kBoolType = type_set({kBool});
constexpr uint32_t kRealTypes = kHalfToDoubleTypes | kIntegerTypes | kBoolType;
constexpr uint32_t kSignedTypes = kHalfToDoubleTypes | type_set({kInt8, kInt32, kInt64});
constexpr uint32_t kRangeTypes = kHalfToDoubleTypes | kIndexTypes;  // of aclnnArange and aclnnRange
constexpr uint32_t kComplexTypes = type_set({kComplex64, kComplex128});
constexpr uint32_t kNumberTypes = kRealTypes | kComplexTypes;
constexpr uint32_t kUnsigned16 = type_set({kUint16});
constexpr uint32_t kUnsigned32And64 = type_set({kUint32, kUint64});
constexpr uint32_t kWideUnsigned = kUnsigned16 | kUnsigned32And64;  // unsigned types of at least 16 bits
constexpr uint32_t kBf16 = type_set({kBfloat16});

// The types that CANN's sources and kernels accept. `on_910b` is for Ascend910B and all other chips except Ascend310P.
// A call with an undocumented type runs and is reported.
struct TypesByChip {
    uint32_t on_910b, on_310p;
    uint32_t undocumented_on_910b = 0, undocumented_on_310p = 0;
};
// The types `all` on every chip, and bfloat16 on every chip but Ascend310P.
constexpr TypesByChip with_bf16_except_310p(uint32_t all) { return {all | kBf16, all}; }
constexpr TypesByChip on_all(uint32_t all) { return {all, all}; }
constexpr TypesByChip only_910b(uint32_t all) { return {all, 0}; }
constexpr TypesByChip by_chip(uint32_t on_910b, uint32_t on_310p) { return {on_910b, on_310p}; }
// For a function whose document does not list Ascend310P. With one argument, the types `all` are accepted on every
// chip, and bfloat16 is accepted on every chip except Ascend310P.
constexpr TypesByChip undocumented_on_310p(uint32_t on_910b, uint32_t on_310p) {
    return {on_910b, on_310p, 0, on_310p};
}
constexpr TypesByChip undocumented_on_310p(uint32_t all) { return undocumented_on_310p(all | kBf16, all); }
// Adds types that the document does not list.
constexpr TypesByChip with_undocumented(TypesByChip documented, uint32_t on_910b, uint32_t on_310p) {
    return {documented.on_910b | on_910b, documented.on_310p | on_310p,
            documented.undocumented_on_910b | (on_910b & ~documented.on_910b),
            documented.undocumented_on_310p | (on_310p & ~documented.on_310p)};
}

const char* dtype_name(int32_t dtype);  // torch's name

// Returns "" or the reason why this argument's type is not in the set of this process's chip.
std::string type_error(const char* argument_name, const TypesByChip& types, int32_t dtype);
// Returns "" or how a type that is accepted goes beyond the function's document.
std::string undocumented_type(const char* argument_name, const TypesByChip& types, int32_t dtype);

}  // namespace simulated_cann
