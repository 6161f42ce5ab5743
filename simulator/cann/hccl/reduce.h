// Data types of HCCL and reductions of them.
#pragma once

#include <cstdint>

#include "hccl/hccl_types.h"

namespace simulated_cann {

uint64_t bytes_of_type(HcclDataType type);  // 0 for types that no operation has here
const char* name_of_type(HcclDataType type);
const char* name_of_reduction(HcclReduceOp op);

// A set of data types has the bit 1 << type for each of its types.
constexpr uint32_t types_of() { return 0; }
template <class... Rest>
constexpr uint32_t types_of(HcclDataType first, Rest... rest) {
    return 1u << first | types_of(rest...);
}

// Reduces `count` numbers of `next` into `result`. float16 and bfloat16 are rounded after each step, integers wrap
// around, and a NaN stays NaN. HCCL's rounding of a sum is not public, but HCCL does the steps in the type of the data
// (hicann/hccl src/ops/op_common, the reductions of the copy engine).
void reduce(HcclDataType type, HcclReduceOp op, char* result, const char* next, uint64_t count);

}  // namespace simulated_cann
