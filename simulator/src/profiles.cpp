// Data of the SoCs. Each line names its source, in mirror-cann/asc-devkit or CANN 8.1:
//   sample     asc-devkit examples/01_simd_cpp_api/05_best_practices: measurements on an A2 and a 950, in the READMEs
//   docs       asc-devkit docs/zh
//   constants  asc-devkit impl/basic_api/utils/kernel_utils_constants.h
//   platform   CANN's data/platform_config/*.ini
//   model      CANN's simulator/Ascend910B1/lib/config.json
//   guess      no published figure
// The project has run nothing on hardware. L2 is not modelled: every byte comes from and goes to DDR or HBM.
#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "src/chips.h"
#include "src/profile.h"

namespace ascend_sim {
namespace {

// Costs of instructions, for an A2 except where a line names another chip. The other chips use the same values unless
// their profiles replace them.
Profile with_instructions() {
    Profile p{};
    p.mte_issue_cycles = 20;              // sample: 128-byte copies take about 20 cycles each
    p.read_latency_cycles = 240;          // model: 241 for L2
    p.write_latency_cycles = 96;          // model: 96 for L2
    p.burst_overhead_bytes = 15;          // sample, a 950: 1.47 TB/s in rows of 128 bytes, 1.63 TB/s in rows of 2 KiB
    p.gm_line_bytes = 512;                // docs: 512-byte aligned addresses are the fastest
    p.unaligned_extra_share = 0.43;       // docs: other addresses reach 70 % of the bandwidth at worst: 1 / 0.7 - 1
    p.vector_issue_cycles = 22;           // sample: 1000 Adds of 64 repeats take 86 cycles each
    p.barrier_cycles = 1;                 // guess: the 22 cycles include the pipeline's depth
    p.flag_cycles = 8;                    // guess: 5 to 10
    p.scalar_cycles = 2;                  // guess
    p.mask_cycles = 1;                    // docs: mask instructions take 1 cycle each
    p.count_form_cycles = 4;              // docs: four mask instructions
    p.scalar_ub_cycles = 30;              // guess: 30 to 60 for a round trip
    p.scalar_gm_cycles = 60;              // guess: a miss of the scalar cache costs more, a hit less
    p.core_signal_cycles = 400;           // guess: a round trip to memory and back
    p.repeat_cycles = 1;                  // sample: 256 bytes a cycle
    p.three_reads_cycles = 2;             // guess: half of an Add's rate
    p.division_cycles = 4;                // guess
    p.function_cycles = 4;                // guess
    p.gather_mask_cycles = 2;             // guess
    p.whole_reduce_cycles = 3;            // guess: 2 to 5 times an Add
    p.block_reduce_cycles = 2;            // guess: cheaper than a reduction to one element
    p.gathered_element_cycles = 1.0 / 8;  // guess: 8 to 16 cycles a repeat of 64
    p.index_store_cycles = 4;             // guess
    p.index_addition_cycles = p.vector_issue_cycles + p.repeat_cycles;
    return p;
}

// Ascend910B and 910_93 have the same core. An AI core has two vector cores; the platform files give the DDR bandwidth
// of an AI core.
Profile a2(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.vector_cores;                // platform
    p.clock_ghz = chip.clock_ghz;               // platform
    p.ub_bytes = 192 << 10;                     // constants: TOTAL_UB_SIZE
    p.reserved_from = 184 << 10;                // constants: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = 32.0 * p.cores / 2;  // platform: ddr, an AI core
    p.core_gm_bytes_per_cycle = 24;             // sample: one core alone reads 43 GB/s at 1.8 GHz
    p.mte3_bytes_per_cycle = 64;                // platform: ub_to_l2_rate, ub_to_ddr_rate
    return p;
}

Profile ascend310p(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.ai_cores;                // platform
    p.clock_ghz = chip.clock_ghz;           // platform
    p.ub_bytes = 256 << 10;                 // constants: TOTAL_UB_SIZE
    p.reserved_from = 248 << 10;            // constants: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = 17.0 * p.cores;  // platform: ddr, an AI core
    p.core_gm_bytes_per_cycle = 17;         // platform: ddr, one AI core
    p.mte3_bytes_per_cycle = 17;            // platform: ub_to_ddr_rate
    return p;
}

Profile ascend950(const Chip& chip) {
    Profile p = with_instructions();
    p.name = "Ascend950";
    p.cores = chip.vector_cores;                // platform
    p.clock_ghz = chip.clock_ghz;               // platform
    p.ub_bytes = 248 << 10;                     // constants: TOTAL_UB_SIZE, without the scratch
    p.reserved_from = 248 << 10;                // constants: the scratch begins there, so no buffer reaches it
    p.gm_bytes_per_cycle = 31.0 * p.cores / 2;  // platform: ddr, an AI core
    p.core_gm_bytes_per_cycle = 24;             // guess: as on an A2
    p.mte3_bytes_per_cycle = 64;                // guess: as on an A2
    p.mte_issue_cycles = 39;                    // sample: 128-byte copies take about 39 cycles each
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
