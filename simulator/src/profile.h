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

    // Global memory.
    double gm_bytes_per_cycle;       // all cores together, both directions
    double core_gm_bytes_per_cycle;  // one core's way in
    double mte3_bytes_per_cycle;     // one core's way out
    double read_latency_cycles;      // until a read's data can be used
    double write_latency_cycles;
    double burst_overhead_bytes;  // what a burst costs beyond its bytes
    double gm_line_bytes;         // a transfer off such a line costs more:
    double off_line_share;        // so much of its bytes again, a line a burst at most

    // Instructions, in cycles.
    double mte_issue_cycles;     // a copy, before its first byte
    double vector_issue_cycles;  // a vector instruction, before its first repeat
    double barrier_cycles;
    double flag_cycles;                         // a SetFlag, WaitFlag pair
    double scalar_cycles;                       // issuing an instruction
    double mask_cycles;                         // setting the mask register
    double count_form_cycles;                   // the mask instructions around a count form
    double scalar_ub_cycles, scalar_gm_cycles;  // GetValue or SetValue

    // A repeat of a vector instruction, in cycles.
    double repeat_cycles;       // moves, casts, comparisons, sums, products
    double three_reads_cycles;  // what reads its destination too
    double division_cycles;     // Div
    double function_cycles;     // Exp, Ln, Sqrt, Rsqrt, Reciprocal
    double gather_mask_cycles;
    double whole_reduce_cycles;  // a repeat to one element
    double block_reduce_cycles;  // to one a block, or a pair

    // Single elements, in cycles.
    double gathered_element_cycles;
    double index_store_cycles;     // CreateVecIndex: of its first repeat, by the scalar unit
    double index_addition_cycles;  // and an instruction of one repeat for each that follows
};

const Profile* find_profile(const char* name);  // by name or soc; nullptr where there is none
const Profile* profile_at(int32_t index);       // nullptr past the end

}  // namespace npu_sim
