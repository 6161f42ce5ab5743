// rotary_mul, rotary_mul_qk and rotary_embedding on the simulator: one launch of rotary_mul's kernel, or of
// rotary_mul_qk's.
#pragma once

#include "csrc/core/rotary_check.h"
#include "include/npu_rope_sim.h"

namespace npu_rope {

npu_rope_status rotary_sim_entry(const RotaryTensors& t, const RotaryAttributes& a, bool forward,
                                 const npu_rope_sim_options* options);

}  // namespace npu_rope
