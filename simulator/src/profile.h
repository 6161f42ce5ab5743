// What an SoC is to the simulator: sizes and rates, as data (profiles.cpp).
#pragma once

#include <cstdint>

namespace npu_sim {

struct Profile {
    const char* name;        // "Ascend910B1"
    const char* soc;         // "ascend910b": what an OpDef's AddConfig names
    int32_t arch;            // __CCE_AICORE__: 220, 200 or 310
    int32_t cores;           // vector cores (AI cores on Ascend310P)
    uint32_t ub_bytes;       // what TPipe may hand out
    uint32_t reserved_from;  // first byte that some APIs use as scratch
    double clock_ghz;
    double gm_bytes_per_cycle;       // all cores together, both directions
    double core_gm_bytes_per_cycle;  // one core alone
    double mte3_bytes_per_cycle;     // one core's way out
    double mte_issue_cycles;         // a copy instruction, before its first byte
    double read_latency_cycles;      // until a read's data can be used
    double write_latency_cycles;
    double burst_overhead_bytes;  // what a burst costs beyond its bytes
    double vector_issue_cycles;   // a vector instruction, before its first repeat
    double barrier_cycles;
    double flag_cycles;           // a SetFlag, WaitFlag pair
    double scalar_cycles;         // issuing an instruction
    double scalar_access_cycles;  // GetValue or SetValue
};

const Profile* find_profile(const char* name);  // by name or soc; nullptr where there is none
const Profile* profile_at(int32_t index);       // nullptr past the end

}  // namespace npu_sim
