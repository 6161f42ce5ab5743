// rope, rope_qk and rope_set_rows on the simulator: one launch of the kernel of the tensors' operator.
#pragma once

#include <vector>

#include "csrc/core/rope_check.h"
#include "include/npu_rope_sim.h"
#include "op_host/platform.h"

namespace npu_rope {

// Data for the launch of a rotation by positions.
struct RopeOnSim {
    Platform platform;
    std::vector<float> factors;
    npu_rope_tensor packed_factors;  // factors in the form that the kernel reads
};

// Checks whether the simulated chip supports a call that its operator's rules accept.
Check accept_rope_on_sim(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params, int32_t angle,
                         const npu_rope_sim_options* options, RopeOnSim* call);

npu_rope_status rope_sim_entry(const RopeTensors& t, const npu_rope_params* params, int32_t forward, int32_t angle,
                               const npu_rope_sim_options* options);

}  // namespace npu_rope
