#include "cann/opapi/type_sets.h"

#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

// The numbers of types that no set can contain are 32 and more (the float8 types), and negative ones.
bool contains(uint32_t set, int32_t dtype) { return dtype >= 0 && dtype < 32 && (set >> dtype & 1) != 0; }

std::string names_of(uint32_t allowed) {
    std::vector<int32_t> found;
    for (int32_t dtype = 0; dtype < 32; ++dtype)
        if (allowed >> dtype & 1) found.push_back(dtype);
    std::string text;
    for (size_t i = 0; i < found.size(); ++i)
        text += std::string(i == 0 ? "" : i + 1 == found.size() ? " or " : ", ") + dtype_name(found[i]);
    return text;
}

}  // namespace

const char* dtype_name(int32_t dtype) {
    static constexpr struct {
        Dtype dtype;
        const char* name;
    } names[] = {
        {kFloat16, "float16"}, {kBfloat16, "bfloat16"}, {kFloat, "float32"},       {kDouble, "float64"},
        {kInt8, "int8"},       {kUint8, "uint8"},       {kInt16, "int16"},         {kUint16, "uint16"},
        {kInt32, "int32"},     {kUint32, "uint32"},     {kInt64, "int64"},         {kUint64, "uint64"},
        {kInt4, "int4"},       {kBool, "bool"},         {kComplex64, "complex64"}, {kComplex128, "complex128"}};
    for (const auto& row : names)
        if (row.dtype == dtype) return row.name;
    return "another type";
}

std::string type_error(const char* argument_name, const TypesByChip& types, int32_t dtype) {
    const uint32_t allowed = is_ascend310p() ? types.on_310p : types.on_910b;
    if (contains(allowed, dtype)) return "";
    const bool has_name = dtype_bytes(dtype) || dtype == kInt4;
    const std::string got = has_name ? dtype_name(dtype) : "aclDataType " + std::to_string(dtype);
    return std::string(argument_name) + " must be " + names_of(allowed) + " on " + soc_name() + " but got " + got + ".";
}

std::string undocumented_type(const char* argument_name, const TypesByChip& types, int32_t dtype) {
    const uint32_t undocumented = is_ascend310p() ? types.undocumented_on_310p : types.undocumented_on_910b;
    if (!contains(undocumented, dtype)) return "";
    if (undocumented == (is_ascend310p() ? types.on_310p : types.on_910b)) return kUnlistedChip;
    return std::string("its document does not list ") + dtype_name(dtype) + " for " + argument_name;
}

}  // namespace simulated_cann
