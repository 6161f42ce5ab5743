// rotary_mul, rotary_mul_qk and rotary_embedding on the CPU.
#pragma once

#include "csrc/core/rotary_check.h"

namespace npu_rope {

// Checks the call and computes it; writes nothing if a check fails. forward: rotates by the tables; otherwise computes
// the gradient for x.
Check run_rotary_cpu(const RotaryTensors& t, const RotaryAttributes& a, bool forward);

}  // namespace npu_rope
