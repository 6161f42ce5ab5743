// Run rms_norm, rms_norm_rounded_last, rms_norm_backward and add_rms_norm on the CPU.
#pragma once

#include "csrc/core/rms_norm_check.h"

namespace npu_rope {

// Checks a call of any of these operators and computes it. Writes nothing if a check fails.
Check run_rms_norm_cpu(const RmsNormTensors& t, const RmsNormAttributes& a);

}  // namespace npu_rope
