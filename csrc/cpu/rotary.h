// rotary_mul, rotary_mul_qk and rotary_embedding on the CPU.
#pragma once

#include "op_host/rotary_check.h"

namespace npu_rope {

// Checks the call and computes it; nothing is written where a check fails. forward: by the tables; else
// the gradient of that for x.
Check run_rotary_cpu(const RotaryTensors& t, const RotaryAttributes& a, bool forward);

}  // namespace npu_rope
