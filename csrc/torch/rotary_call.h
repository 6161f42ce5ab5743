// Shared parts of the registrations of rotary_mul, rotary_mul_qk and rotary_embedding.
#pragma once

#include "csrc/torch/rope_call.h"

namespace npu_rope {

// The last arguments of the schemas: bool interleaved, two integers, bool forward.
struct RotaryAttributes {
    int32_t interleaved;
    // The two integers: rotary_dim and offset; of rotary_embedding, num_heads and rotary_embedding_dim.
    int64_t first_integer, second_integer;
    int32_t forward;
    explicit RotaryAttributes(const StableIValue* s)
        : interleaved(torch::stable::detail::to<bool>(s[0])),
          first_integer(torch::stable::detail::to<int64_t>(s[1])),
          second_integer(torch::stable::detail::to<int64_t>(s[2])),
          forward(torch::stable::detail::to<bool>(s[3])) {}
};

}  // namespace npu_rope
