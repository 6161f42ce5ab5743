// Names and sizes of the element types, for the checks and the CPU's kernels of every operator.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"

namespace npu_rope {

struct DtypeInfo {
    const char* name;
    int64_t bytes;
};

// Indexed by npu_rope_dtype.
constexpr DtypeInfo kDtypes[] = {{"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float64", 8},
                                 {"int32", 4},   {"int64", 8},   {"int8", 1}};

// Types that no operator takes; NPU_ROPE_INT16 is the first. Messages name them.
constexpr const char* kUnsupportedDtypes[] = {"int16", "uint8", "bool", "complex64", "complex128"};

constexpr bool is_known_dtype(int32_t d) { return d >= 0 && d < int32_t(sizeof kDtypes / sizeof *kDtypes); }
constexpr const char* dtype_name(int32_t d) {
    const int64_t unsupported = int64_t{d} - NPU_ROPE_INT16;
    if (unsupported >= 0 && unsupported < int64_t(sizeof kUnsupportedDtypes / sizeof *kUnsupportedDtypes))
        return kUnsupportedDtypes[unsupported];
    return is_known_dtype(d) ? kDtypes[d].name : "an unknown dtype";
}
constexpr int64_t dtype_bytes(int32_t d) { return is_known_dtype(d) ? kDtypes[d].bytes : 0; }

// Returns the element at offset `at` of positions, rows or position_ids, which are int64 or int32.
inline int64_t index_at(const void* data, bool is_int64, int64_t at) {
    return is_int64 ? static_cast<const int64_t*>(data)[at] : static_cast<const int32_t*>(data)[at];
}

// Returns how many elements of a dimension have to be read to know all its values and whether one is repeated. A
// dimension with stride 0 may be longer than any memory.
constexpr int64_t elements_to_read(int64_t size, int64_t stride) { return stride == 0 && size > 2 ? 2 : size; }

}  // namespace npu_rope
