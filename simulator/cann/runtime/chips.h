// The chip that this runtime plays. The chips of CANN are data in op_host/chips.h.
#pragma once

#include <cstdint>
#include <string>

namespace npu_cann {

struct SimulatedChip {
    std::string name;
    int64_t ai_cores, vector_cores, l2_bytes;
    int32_t kernel_cores;  // that run our kernels: op_host/chips.h
};

// NPU_ROPE_SIM_SOC names it: a chip of the table, or NAME:CORES, a chip that the table lacks, of a family
// that it has, with a number of AI cores. Another value ends the process.
const SimulatedChip& this_chip();

}  // namespace npu_cann
