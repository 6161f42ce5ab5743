// Shared part of the registrations of rotary_mul and rotary_mul_qk.
#pragma once

#include "csrc/torch/rope_call.h"

namespace npu_rope {

// The last arguments of both schemas, or these in a packed tensor.
struct RotaryMulAttributes {
    int32_t interleaved = 0;
    int64_t rotary_dim = 0, offset = 0;
    int32_t forward = 1;
    RotaryMulAttributes() = default;
    explicit RotaryMulAttributes(const StableIValue* s)
        : interleaved(torch::stable::detail::to<bool>(s[0])),
          rotary_dim(torch::stable::detail::to<int64_t>(s[1])),
          offset(torch::stable::detail::to<int64_t>(s[2])),
          forward(torch::stable::detail::to<bool>(s[3])) {}
};

}  // namespace npu_rope
