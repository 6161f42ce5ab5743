// The chip that this runtime simulates. src/chips.h has the data of CANN's chips.
#pragma once

#include <cstdint>
#include <string>

namespace npu_cann {

struct SimulatedChip {
    std::string name;
    int64_t ai_cores, vector_cores, l2_bytes;
    int32_t kernel_cores;  // cores that run vector kernels: src/chips.h
};

// The chip of ASCEND_SIM_SOC: a chip of the table, or NAME:CORES, a chip that the table lacks but whose family
// it has, with a number of AI cores. Any other value ends the process.
const SimulatedChip& this_chip();

}  // namespace npu_cann
