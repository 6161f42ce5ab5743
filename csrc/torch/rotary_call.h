// Shared part of the registrations of rotary_mul and rotary_mul_qk.
#pragma once

#include "csrc/torch/rope_call.h"

namespace npu_rope {

// Reads the last arguments of both schemas.
inline PackedTables read_tables(const StableIValue* s) {
    using torch::stable::detail::to;
    return {to<bool>(s[0]), to<int64_t>(s[1]), to<int64_t>(s[2]), to<bool>(s[3])};
}

}  // namespace npu_rope
