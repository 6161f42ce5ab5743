// What the simulator's entries share: tensors as launch memory, finding a compiled kernel, errors.
#pragma once

#include <exception>
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

// What is written, behind xs, which were added first. T: RopeTensors or RotaryTensors.
template <typename T, typename Shape>
void add_results(const T& t, const Shape& shape, SimLaunch* sim) {
    for (int k = 0; k < t.sides; ++k) {
        if (shape.side[k].in_place)
            sim->add_again(k);
        else
            sim->add(t.out_name[k], t.out[k], NPU_SIM_OUT);
    }
}

// An element type as kernels are compiled for it.
const char* kernel_type(const npu_rope_tensor& t);
// The operator's compile for a chip and a column of types, as cmake/NpuRopeSim.cmake names it.
std::string kernel_name(const char* op, const char* soc, const std::vector<const char*>& column);
// Sizes and cores for the tiling.
Check platform_of(const char* op, const npu_rope_sim_options& options, Platform* platform);

npu_rope_status report_sim(const Check& check);

// An entry's call, whatever becomes of it.
template <typename F>
npu_rope_status reported(const char* op, F call) {
    try {
        return report_sim(call());
    } catch (const std::exception& e) {
        return report_sim({Check::kInternal, "[" + std::string(op) + "] call must succeed but got " + e.what() + "."});
    }
}

}  // namespace npu_rope
