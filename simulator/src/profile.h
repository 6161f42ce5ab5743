// Sizes, rates and costs of a chip for the simulator. profiles.cpp has the values, docs/figures.md their sources.
#pragma once

#include <cstdint>
#include <vector>

namespace ascend_sim {

struct Profile {
    const char* name;        // "Ascend910B1"
    const char* soc;         // "ascend910b", as in an OpDef's AddConfig
    int32_t arch;            // __CCE_AICORE__: 220, 200 or 310
    int32_t cores;           // vector cores (AI cores on Ascend310P)
    uint32_t ub_bytes;       // memory that TPipe can allocate
    uint32_t reserved_from;  // first byte that some APIs use as scratch
    double clock_ghz;

    // Global memory.
    double gm_bytes_per_cycle;       // all cores together, both directions
    double core_gm_bytes_per_cycle;  // one core's reads, with the time in which it waits for their data
    double mte3_bytes_per_cycle;     // one core's writes
    double read_latency_cycles;      // from the end of a read's issue until its data is available, at least
    double write_latency_cycles;     // from a write's last byte until the write is complete
    double burst_overhead_bytes;     // extra cost of a burst (a run of a copy)
    double gm_line_bytes;            // a transfer whose address is not a multiple of this costs more
    double unaligned_extra_share;    // its extra cost: a share of its bytes, at most one line per burst

    // Instructions, in cycles.
    double mte_issue_cycles;       // a copy, before its first byte
    double vector_issue_cycles;    // a vector instruction, before its first repeat
    double function_issue_cycles;  // Exp, Ln, Sqrt and Div, before their first repeat
    double reduce_issue_cycles;    // reductions of a repeat, before their first repeat
    double barrier_cycles;
    double flag_cycles;         // a WaitFlag, in the pipe that waits
    double scalar_cycles;       // issuing an instruction, setting a flag
    double mask_cycles;         // setting the mask register
    double count_form_cycles;   // extra cost of a call with an element count that is no multiple of a repeat
    double scalar_ub_cycles;    // GetValue or SetValue, in UB or of a line of GM in the cache
    double scalar_miss_cycles;  // the first access to a 64-byte line of GM
    double core_signal_cycles;  // from the last core's signal to a waiting core

    // A repeat of a vector instruction, in cycles.
    double repeat_cycles;       // moves, casts, comparisons, sums, products
    double bank_cycles;         // a group of UB's banks serves one line of 32 bytes; 0: conflicts are not modelled
    double three_reads_cycles;  // instructions that also read their destination, such as Axpy
    double division_cycles;     // Div of 64 elements
    double function_cycles;     // Exp, Ln, Sqrt of 64 elements
    double estimate_cycles;     // Rsqrt, Reciprocal
    double gather_mask_cycles;
    double whole_reduce_cycles;  // reduction of a repeat to one element, or to one per pair
    double block_reduce_cycles;  // reduction of float to one element per block

    // Single elements, in cycles.
    double gathered_element_cycles;  // Gather
    double sorted_element_cycles;    // Sort32, MrgSort
    double index_store_cycles;       // CreateVecIndex: an element that the scalar unit stores
    double index_addition_cycles;    // CreateVecIndex: an instruction that adds to earlier elements
};

// The costs and rates by their names.
struct Figure {
    const char* name;
    double Profile::* value;
};
const std::vector<Figure>& figures();

const Profile* find_profile(const char* name);  // by name or soc; nullptr if unknown
const Profile* profile_at(int32_t index);       // nullptr past the end

}  // namespace ascend_sim
