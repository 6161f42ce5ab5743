// Run rope, rope_qk and rope_set_rows on the CPU.
#pragma once

#include <cstdint>

#include "csrc/core/rope_check.h"

namespace npu_rope {

// Checks the call and computes it. Writes nothing if a check fails. forward: 0 rotates by minus the angle.
Check run_rope_cpu(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle_policy);

}  // namespace npu_rope
