// rms_norm, add_rms_norm and rms_norm_backward on the simulator: the checks of every native path, the real tiling, the
// real kernel.
#pragma once

#include <initializer_list>

#include "csrc/sim/common.h"
#include "op_host/rms_norm_tiling.h"

namespace npu_rope {

// A tensor of a launch; again: the index of an earlier tensor with the same memory, or -1.
struct SimTensor {
    const char* name;
    const npu_rope_tensor* tensor;
    ascend_sim_role role;
    int32_t again;
};

// Launches an accepted call with elements; tensors: in the order of the kernel's arguments.
Check launch_rms_norm_on_sim(const RmsNormTilingInput& in, std::initializer_list<SimTensor> tensors,
                             const npu_rope_sim_options* options);

}  // namespace npu_rope
