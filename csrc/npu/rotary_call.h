// Shared parts of the launches of rotary_mul, rotary_mul_qk and rotary_embedding on NPU tensors.
#pragma once

#include "csrc/core/rotary_check.h"
#include "csrc/npu/launch.h"

namespace npu_rope {

// The last arguments of the schemas, in the form that the checks take.
struct RotaryCall {
    RotaryAttributes attributes;
    bool forward;
};

struct TorchTables {
    const at::Tensor &cos, &sin;
};

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
// Fills *shape.
bool check_rotary_call(RotaryTensors t, const RotaryCall& rotary, RotaryShape* shape);

// Launches NpuRotaryMul once, for a call that has elements to process. x: [B,S,N,D] or [S,N,D].
void launch_rotary_mul(const at::Tensor& x, const TorchTables& tables, const OptionalTensor& ids,
                       const RotaryCall& rotary, const at::Tensor& out);

}  // namespace npu_rope
