// Run rms_norm_rope on the CPU.
#pragma once

#include <cstdint>

#include "csrc/core/rms_norm_rope_check.h"

namespace npu_rope {

// Checks the call and computes it. Writes nothing if a check fails.
Check run_rms_norm_rope_cpu(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                            bool intermediate_rounding, int32_t angle_policy);

}  // namespace npu_rope
