// Shared parts of the launches of rotary_mul, rotary_mul_qk and rotary_embedding on NPU tensors.
#pragma once

#include "csrc/core/rotary_check.h"
#include "csrc/npu/launch.h"

namespace npu_rope {

// "bool interleaved, int first, int second, bool forward", the last arguments of the schemas. first and second:
// rotary_dim and offset; for rotary_embedding, num_heads and rotary_embedding_dim.
struct RotaryCall {
    RotaryAttributes attributes;
    bool forward;
};

struct TorchTables {
    const at::Tensor &cos, &sin;
};

// Raises ValueError or TypeError for a broken rule; returns false if there is nothing to launch.
bool accepts_rotary(RotaryTensors t, const RotaryCall& rotary, RotaryShape* shape);

// One launch of NpuRotaryMul for an accepted call: [B,S,N,D] or [S,N,D].
void launch_rotary_mul(const at::Tensor& x, const TorchTables& tables, const OptionalTensor& ids,
                       const RotaryCall& rotary, const at::Tensor& out);

}  // namespace npu_rope
