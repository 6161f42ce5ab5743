// rms_norm, rms_norm_backward and add_rms_norm on the CPU.
#pragma once

#include "csrc/core/rms_norm_check.h"

namespace npu_rope {

// Check the call and compute it; write nothing if a check fails.
Check run_rms_norm_cpu(const RmsNormTensors& t, const RmsNormAttributes& a);
Check run_rms_norm_backward_cpu(const RmsNormBackwardTensors& t, const RmsNormAttributes& a);
Check run_add_rms_norm_cpu(const AddRmsNormTensors& t, const RmsNormAttributes& a);

}  // namespace npu_rope
