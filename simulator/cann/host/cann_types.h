// Element types: their CANN numbers, names and sizes. Also the text of lists in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/types.h"

namespace simulated_cann {

struct TypeRow {
    ge::DataType type;
    const char* name;         // in messages
    const char* kernel_type;  // the value of DTYPE_X in the source of a kernel; part of the kernel's name
    const char* enumerator;   // the value of ORIG_DTYPE_X in the source of a kernel
    int64_t bytes;
};

constexpr TypeRow kTypes[] = {
    {ge::DT_FLOAT, "float32", "float", "DT_FLOAT", 4},     {ge::DT_FLOAT16, "float16", "half", "DT_FLOAT16", 2},
    {ge::DT_BF16, "bfloat16", "bfloat16_t", "DT_BF16", 2}, {ge::DT_DOUBLE, "float64", "double", "DT_DOUBLE", 8},
    {ge::DT_INT8, "int8", "int8_t", "DT_INT8", 1},         {ge::DT_UINT8, "uint8", "uint8_t", "DT_UINT8", 1},
    {ge::DT_INT16, "int16", "int16_t", "DT_INT16", 2},     {ge::DT_UINT16, "uint16", "uint16_t", "DT_UINT16", 2},
    {ge::DT_INT32, "int32", "int32_t", "DT_INT32", 4},     {ge::DT_UINT32, "uint32", "uint32_t", "DT_UINT32", 4},
    {ge::DT_INT64, "int64", "int64_t", "DT_INT64", 8},     {ge::DT_UINT64, "uint64", "uint64_t", "DT_UINT64", 8},
    {ge::DT_BOOL, "bool", "bool", "DT_BOOL", 1},
};

// Returns null if the type is not simulated.
inline const TypeRow* find_type(int32_t type) {
    for (const TypeRow& row : kTypes)
        if (row.type == type) return &row;
    return nullptr;
}

inline std::string type_name(int32_t type) {
    const TypeRow* row = find_type(type);
    return row ? row->name : "type " + std::to_string(type);
}

inline std::string list_text(const std::vector<int64_t>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
    return text + "]";
}

}  // namespace simulated_cann
