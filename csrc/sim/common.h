// What the simulator's entries share: tensors as launch memory, finding a compiled kernel, errors.
#pragma once

#include <string>
#include <vector>

#include "include/npu_rope_sim.h"
#include "op_host/check.h"
#include "op_host/platform.h"
#include "simulator/include/npu_sim.h"

namespace npu_rope {

// A launch being put together: each tensor's span of bytes once, arguments pointing into them.
class SimLaunch {
public:
    // A tensor argument; NULL where t is nullptr.
    void add(const char* name, const npu_rope_tensor* t, npu_sim_role role);
    // An argument that names the memory of an earlier one (in place).
    void add_again(int32_t earlier);
    int32_t count() const { return int32_t(args_.size()); }
    Check run(const char* op, const std::string& kernel, const npu_rope_sim_options& options, uint32_t block_dim,
              uint64_t tiling_key, const void* tiling, uint64_t tiling_bytes, uint64_t workspace_bytes);

private:
    std::vector<npu_sim_memory> memories_;
    std::vector<npu_sim_arg> args_;
};

// The SoC the kernels of a chip were compiled for ("Ascend910B3" -> "ascend910b"); empty: none.
std::string kernel_soc(const char* soc);
// Sizes and cores for the tiling.
Check platform_of(const char* op, const npu_rope_sim_options& options, Platform* platform);

npu_rope_status report_sim(const Check& check);

}  // namespace npu_rope
