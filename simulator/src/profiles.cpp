// Data of the SoCs. The letters name the source in the project's notes on the Ascend architecture: A.1 storage
// (UB), B.0 call forms, E.1 the chip table (CANN's platform files), E.2 the vendor's measured samples (of an
// A2), E.3 the vector unit. "Guess" marks a value without a published figure; it follows E.3 if E.3 suggests
// one. L2 is not modelled: every byte comes from and goes to DDR or HBM. No value was fitted to hardware.
#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "src/chips.h"
#include "src/profile.h"

namespace ascend_sim {
namespace {

// Costs of instructions: measured on an A2. For the other chips these are guesses, except for values that
// their profiles replace.
Profile with_instructions() {
    Profile p{};
    p.mte_issue_cycles = 20;              // E.2: 128-byte copies take about 20 cycles each
    p.read_latency_cycles = 240;          // E.3: 241 in the vendor's model of L2
    p.write_latency_cycles = 96;          // E.3: 96 in the same model
    p.burst_overhead_bytes = 15;          // E.2: rows of 128 bytes: 1.47 of the 1.63 TB/s of 2 KiB
    p.gm_line_bytes = 512;                // E.2: 512-byte aligned addresses are the fastest,
    p.off_line_share = 0.43;              // E.2: 32-byte aligned ones have 70 % of the bandwidth at worst
    p.vector_issue_cycles = 22;           // E.3: 1000 Adds of 64 repeats take 86 cycles each
    p.barrier_cycles = 1;                 // guess: the 22 cycles include the pipeline's depth
    p.flag_cycles = 8;                    // guess, E.3: 5 to 10
    p.scalar_cycles = 2;                  // guess
    p.mask_cycles = 1;                    // E.3: mask instructions take 1 cycle each
    p.count_form_cycles = 4;              // B.0, E.3: four of them
    p.scalar_ub_cycles = 30;              // guess, E.3: 30 to 60 for a round trip
    p.scalar_gm_cycles = 60;              // guess: a miss of the scalar cache costs more, a hit less
    p.repeat_cycles = 1;                  // E.3: 256 bytes a cycle
    p.three_reads_cycles = 2;             // E.3: half rate
    p.division_cycles = 4;                // guess of E.3
    p.function_cycles = 4;                // guess of E.3
    p.gather_mask_cycles = 2;             // guess of E.3
    p.whole_reduce_cycles = 3;            // guess, E.3: 2 to 5 times an Add
    p.block_reduce_cycles = 2;            // guess, E.3: cheaper than whole repeats
    p.gathered_element_cycles = 1.0 / 8;  // guess, E.3: 8 to 16 cycles a repeat of 64
    p.index_store_cycles = 4;             // guess
    p.index_addition_cycles = p.vector_issue_cycles + p.repeat_cycles;
    return p;
}

// Ascend910B and 910_93 have the same core. Two of them form an AI core, which CANN's files count.
Profile a2(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.vector_cores;                // E.1
    p.clock_ghz = chip.clock_ghz;               // E.1
    p.ub_bytes = 192 << 10;                     // A.1: TOTAL_UB_SIZE
    p.reserved_from = 184 << 10;                // A.1: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = 32.0 * p.cores / 2;  // E.1: ddr, an AI core
    p.core_gm_bytes_per_cycle = 24;             // E.2: one core alone reads 43 GB/s at 1.8 GHz
    p.mte3_bytes_per_cycle = 64;                // E.1: ub_to_l2_rate, ub_to_ddr_rate
    return p;
}

Profile ascend310p(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.ai_cores;                // E.1
    p.clock_ghz = chip.clock_ghz;           // E.1
    p.ub_bytes = 256 << 10;                 // A.1: TOTAL_UB_SIZE
    p.reserved_from = 248 << 10;            // A.1: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = 17.0 * p.cores;  // E.1: ddr, an AI core
    p.core_gm_bytes_per_cycle = 17;         // E.1: ddr, one AI core
    p.mte3_bytes_per_cycle = 17;            // E.1: ub_to_ddr_rate
    return p;
}

Profile ascend950(const Chip& chip) {
    Profile p = with_instructions();
    p.name = "Ascend950";
    p.cores = chip.vector_cores;                // E.1
    p.clock_ghz = chip.clock_ghz;               // E.1
    p.ub_bytes = 248 << 10;                     // A.1: TOTAL_UB_SIZE without the scratch
    p.reserved_from = 248 << 10;                // A.1: the scratch begins there, so no buffer reaches it
    p.gm_bytes_per_cycle = 31.0 * p.cores / 2;  // E.1: ddr, an AI core of two vector cores
    p.core_gm_bytes_per_cycle = 24;             // guess: an A2's
    p.mte3_bytes_per_cycle = 64;                // guess: an A2's
    p.mte_issue_cycles = 39;                    // E.2
    return p;
}

Profile profile_of(const Chip& chip) {
    const Family& family = *find_family(chip.name);
    Profile p = family.arch == kArch910b ? a2(chip) : family.arch == kArch310p ? ascend310p(chip) : ascend950(chip);
    p.soc = family.soc;
    p.arch = family.arch;
    return p;
}

// In the order of kChips. Never destroyed, because a process may run kernels while it exits.
const std::vector<Profile>& profiles() {
    static const auto* const all = [] {
        auto* made = new std::vector<Profile>;
        for (const Chip& chip : kChips) made->push_back(profile_of(chip));
        return made;
    }();
    return *all;
}

}  // namespace

// The case of letters does not matter: tools print Ascend910B4, configuration files have ascend910b4.
const Profile* find_profile(const char* name) {
    const auto is = [name](std::string_view known) {
        const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
        return std::equal(known.begin(), known.end(), name, name + std::char_traits<char>::length(name),
                          [&](char a, char b) { return lower(a) == lower(b); });
    };
    for (const Profile& p : profiles())
        if (is(p.name) || is(p.soc)) return &p;
    return nullptr;
}

const Profile* profile_at(int32_t index) {
    return index >= 0 && size_t(index) < profiles().size() ? &profiles()[size_t(index)] : nullptr;
}

}  // namespace ascend_sim
