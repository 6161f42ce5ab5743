// Shared parts of the simulator's entries: tensors as launch memory, the search for a compiled kernel, errors.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "ascend_sim.h"
#include "csrc/core/check.h"
#include "include/npu_rope_sim.h"
#include "op_host/platform.h"

namespace npu_rope {

// Builds a launch: each tensor's span of bytes once, and arguments that point into the spans.
class SimLaunch {
public:
    // Adds a tensor argument; NULL if t is nullptr.
    void add(const char* name, const npu_rope_tensor* t, ascend_sim_role role);
    // Adds an argument with the memory of an earlier one (in place).
    void add_again(int32_t earlier);
    int32_t count() const { return int32_t(args_.size()); }
    Check run(const char* op, const std::string& kernel, const npu_rope_sim_options& options, uint32_t block_dim,
              uint64_t tiling_key, const void* tiling, uint64_t tiling_bytes, uint64_t workspace_bytes);

private:
    std::vector<ascend_sim_memory> memories_;
    std::vector<ascend_sim_arg> args_;
};

// Adds the outputs after the xs, which must be added first. T: RopeTensors or RotaryTensors.
template <typename T, typename Shape>
void add_results(const T& t, const Shape& shape, SimLaunch* sim) {
    for (int k = 0; k < t.sides; ++k) {
        if (shape.side[k].in_place)
            sim->add_again(k);
        else
            sim->add(t.out_name[k], t.out[k], ASCEND_SIM_OUT);
    }
}

// The name of an element type in the compiles of kernels.
const char* kernel_type(const npu_rope_tensor& t);
// The name of the operator's compile for a chip and a column of types, as in cmake/NpuRopeSim.cmake.
std::string kernel_name(const char* op, const char* soc, const std::vector<const char*>& column);
// Fills the sizes and cores for the tiling.
Check platform_of(const char* op, const npu_rope_sim_options& options, Platform* platform);

npu_rope_status report_sim(const Check& check);

// Runs an entry's call and reports its result or exception.
template <typename F>
npu_rope_status reported(const char* op, F call) {
    try {
        return report_sim(call());
    } catch (const std::exception& e) {
        return report_sim({Check::kInternal, "[" + std::string(op) + "] call must succeed but got " + e.what() + "."});
    }
}

}  // namespace npu_rope
