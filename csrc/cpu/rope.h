// rope, rope_qk and rope_set_rows on the CPU.
#pragma once

#include <cstdint>

#include "csrc/core/rope_check.h"

namespace npu_rope {

// Checks the call and computes it; writes nothing if a check fails.
Check run_rope_cpu(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle);

}  // namespace npu_rope
