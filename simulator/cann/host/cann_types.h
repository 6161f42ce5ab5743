// Element types by CANN's numbers, and the text of lists in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/types.h"

namespace npu_cann {

struct TypeRow {
    ge::DataType type;
    const char* name;    // in messages
    const char* kernel;  // in a compiled kernel's name
    int64_t bytes;
};

constexpr TypeRow kTypes[] = {
    {ge::DT_FLOAT, "float32", "float", 4},      {ge::DT_FLOAT16, "float16", "half", 2},
    {ge::DT_BF16, "bfloat16", "bfloat16_t", 2}, {ge::DT_DOUBLE, "float64", "double", 8},
    {ge::DT_INT8, "int8", "int8_t", 1},         {ge::DT_UINT8, "uint8", "uint8_t", 1},
    {ge::DT_INT16, "int16", "int16_t", 2},      {ge::DT_UINT16, "uint16", "uint16_t", 2},
    {ge::DT_INT32, "int32", "int32_t", 4},      {ge::DT_UINT32, "uint32", "uint32_t", 4},
    {ge::DT_INT64, "int64", "int64_t", 8},      {ge::DT_UINT64, "uint64", "uint64_t", 8},
    {ge::DT_BOOL, "bool", "bool", 1},
};

// Null if the simulator lacks the type.
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

}  // namespace npu_cann
