// rope, rope_qk and rope_set_rows on the simulator: one launch of the kernel of the tensors' operator.
#pragma once

#include "include/npu_rope_sim.h"
#include "op_host/rope_check.h"

namespace npu_rope {

npu_rope_status rope_sim_entry(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle,
                               const npu_rope_sim_options* options);

}  // namespace npu_rope
