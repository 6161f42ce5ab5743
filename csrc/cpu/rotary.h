// Run rotary_mul, rotary_mul_qk and rotary_embedding on the CPU.
#pragma once

#include "csrc/core/rotary_check.h"

namespace npu_rope {

// Checks the call and computes it. Writes nothing if a check fails. If forward is false, x is the gradient of the
// output, and the function computes the gradient of the input.
Check run_rotary_cpu(const RotaryTensors& t, const RotaryAttributes& a, bool forward);

}  // namespace npu_rope
