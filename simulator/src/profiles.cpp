// Data of the SoCs. docs/figures.md has the sources of each figure and their spread; the letters are those of its list.
//   A  asc-devkit examples: measurements on an Ascend910B1 and a 950, in the READMEs
//   B  hicann/ge, fits of instructions for its automatic tiler
//   C  hicann/pto-isa, a cost model calibrated on an Ascend910B3
//   D  asc-devkit docs/zh
//   E  CANN's data/platform_config/*.ini, and its simulator/Ascend910B1/lib/config.json
//   guess: no published figure
// The project has run nothing on hardware. L2 is not modelled: every byte comes from and goes to DDR or HBM.
#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "src/chips.h"
#include "src/profile.h"

namespace ascend_sim {
namespace {

// Costs of instructions, for an A2 (Ascend910B) except where a line names another chip. The other chips use the same
// values unless their profiles replace them.
Profile with_instructions() {
    Profile p{};
    p.mte_issue_cycles = 20.6;           // A: copies of 128 bytes
    p.read_latency_cycles = 570;         // A: HBM, if the port has 128 bytes a cycle
    p.write_latency_cycles = 96;         // E, C
    p.burst_overhead_bytes = 12;         // A: rows of 128 bytes beside rows of 2 KiB
    p.gm_line_bytes = 512;               // A, D
    p.unaligned_extra_share = 0.28;      // A: rows of 2 KiB at odd addresses
    p.vector_issue_cycles = 22;          // A: 1000 Adds of 64 repeats take 86 cycles each
    p.function_issue_cycles = 29;        // B: 28 to 29; C: 31 to 33
    p.reduce_issue_cycles = 32;          // B: 32 to 35
    p.barrier_cycles = 1;                // measurements: barriers of V cost nothing beside the instructions' 22 cycles
    p.flag_cycles = 8;                   // guess
    p.scalar_cycles = 2.2;               // A: the scalar time of a loop of twelve instructions
    p.mask_cycles = 1;                   // D
    p.count_form_cycles = 17;            // C: 12 to 18; A: none if the size is a multiple of a repeat
    p.scalar_ub_cycles = 11;             // A: a scalar loop
    p.scalar_miss_cycles = 580;          // measurements on an A2: 320 ns
    p.core_signal_cycles = 1850;         // estimates of authors: 1 us
    p.repeat_cycles = 1;                 // A, B, C: operands in different banks
    p.bank_cycles = 1;                   // A, D: an Add of 64 repeats takes 86 or 150 cycles
    p.three_reads_cycles = 2;            // guess: half of an Add's rate
    p.division_cycles = 4;               // C
    p.function_cycles = 2;               // B, C
    p.estimate_cycles = 1;               // B, C
    p.gather_mask_cycles = 2;            // B
    p.whole_reduce_cycles = 7;           // B, C
    p.block_reduce_cycles = 1.3;         // B
    p.gathered_element_cycles = 0.1875;  // B
    p.sorted_element_cycles = 0.5;       // D: Sort32 and MrgSort take 2 elements a cycle
    p.index_store_cycles = 4;            // guess
    p.index_addition_cycles = p.vector_issue_cycles + p.repeat_cycles;
    return p;
}

// Bytes a second of a chip's memory. A: 302 MB in 203 us on an Ascend910B1. The chips of 1.5 GHz: 84 MB in 125 us on an
// Ascend910B4.
double memory_rate(const Chip& chip) { return chip.clock_ghz > 1.5 ? 1.49e12 : 0.674e12; }

// Ascend910B and 910_93 have the same core. An AI core has two vector cores.
Profile ascend910b(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.vector_cores;   // E
    p.clock_ghz = chip.clock_ghz;  // E
    p.ub_bytes = 192 << 10;        // asc-devkit: TOTAL_UB_SIZE
    p.reserved_from = 184 << 10;   // asc-devkit: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = memory_rate(chip) / (chip.clock_ghz * 1e9);
    p.core_gm_bytes_per_cycle = 25;  // A, B: one core alone, waits included
    p.mte3_bytes_per_cycle = 28;     // A: one core alone
    return p;
}

Profile ascend310p(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.ai_cores;                // E
    p.clock_ghz = chip.clock_ghz;           // E
    p.ub_bytes = 256 << 10;                 // asc-devkit: TOTAL_UB_SIZE
    p.reserved_from = 248 << 10;            // asc-devkit: TMP_UB_OFFSET
    p.gm_bytes_per_cycle = 17.0 * p.cores;  // E: ddr, an AI core
    p.core_gm_bytes_per_cycle = 17;         // E: ddr, one AI core
    p.mte3_bytes_per_cycle = 17;            // E: ub_to_ddr_rate
    p.vector_issue_cycles = 20;             // measurements of a kernel's author, barrier included
    p.bank_cycles = 0;                      // D: there are conflicts, but the layout of the banks is not published
    p.index_addition_cycles = p.vector_issue_cycles + p.repeat_cycles;
    return p;
}

Profile ascend950(const Chip& chip) {
    Profile p = with_instructions();
    p.name = chip.name;
    p.cores = chip.vector_cores;   // E
    p.clock_ghz = chip.clock_ghz;  // E
    p.ub_bytes = 248 << 10;        // asc-devkit: TOTAL_UB_SIZE, without the scratch
    p.reserved_from = 248 << 10;   // asc-devkit: the scratch begins there, so no buffer reaches it
    p.gm_bytes_per_cycle = 986 * 1.65 / chip.clock_ghz;  // A, of a chip of 1.65 GHz; the memory is the same
    p.core_gm_bytes_per_cycle = 21.5;                    // A
    p.mte3_bytes_per_cycle = 22.6;                       // hicann/cann-samples
    p.mte_issue_cycles = 39;                             // A
    p.burst_overhead_bytes = 15;                         // A
    p.gm_line_bytes = 128;                               // A
    p.unaligned_extra_share = 0.02;                      // A
    p.vector_issue_cycles = 34;                          // A
    p.function_issue_cycles = 34;                        // A, as the others
    p.reduce_issue_cycles = 34;                          // A, as the others
    p.scalar_ub_cycles = 10;                             // A: a scalar loop
    p.function_cycles = 4;                               // B
    p.estimate_cycles = 4;                               // C, of float
    p.whole_reduce_cycles = 7;                           // as on an A2; B has 1
    p.index_addition_cycles = p.vector_issue_cycles + p.repeat_cycles;
    return p;
}

Profile profile_of(const Chip& chip) {
    const Family& family = *find_family(chip.name);
    Profile p = family.arch == kArch910b   ? ascend910b(chip)
                : family.arch == kArch310p ? ascend310p(chip)
                                           : ascend950(chip);
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

const std::vector<Figure>& figures() {
    using P = Profile;
    static const auto* const all = new std::vector<Figure>{
        {"gm_bytes_per_cycle", &P::gm_bytes_per_cycle},
        {"core_gm_bytes_per_cycle", &P::core_gm_bytes_per_cycle},
        {"mte3_bytes_per_cycle", &P::mte3_bytes_per_cycle},
        {"read_latency_cycles", &P::read_latency_cycles},
        {"write_latency_cycles", &P::write_latency_cycles},
        {"burst_overhead_bytes", &P::burst_overhead_bytes},
        {"gm_line_bytes", &P::gm_line_bytes},
        {"unaligned_extra_share", &P::unaligned_extra_share},
        {"mte_issue_cycles", &P::mte_issue_cycles},
        {"vector_issue_cycles", &P::vector_issue_cycles},
        {"function_issue_cycles", &P::function_issue_cycles},
        {"reduce_issue_cycles", &P::reduce_issue_cycles},
        {"barrier_cycles", &P::barrier_cycles},
        {"flag_cycles", &P::flag_cycles},
        {"scalar_cycles", &P::scalar_cycles},
        {"mask_cycles", &P::mask_cycles},
        {"count_form_cycles", &P::count_form_cycles},
        {"scalar_ub_cycles", &P::scalar_ub_cycles},
        {"scalar_miss_cycles", &P::scalar_miss_cycles},
        {"core_signal_cycles", &P::core_signal_cycles},
        {"repeat_cycles", &P::repeat_cycles},
        {"bank_cycles", &P::bank_cycles},
        {"three_reads_cycles", &P::three_reads_cycles},
        {"division_cycles", &P::division_cycles},
        {"function_cycles", &P::function_cycles},
        {"estimate_cycles", &P::estimate_cycles},
        {"gather_mask_cycles", &P::gather_mask_cycles},
        {"whole_reduce_cycles", &P::whole_reduce_cycles},
        {"block_reduce_cycles", &P::block_reduce_cycles},
        {"gathered_element_cycles", &P::gathered_element_cycles},
        {"sorted_element_cycles", &P::sorted_element_cycles},
        {"index_store_cycles", &P::index_store_cycles},
        {"index_addition_cycles", &P::index_addition_cycles},
    };
    return *all;
}

const Profile* profile_at(int32_t index) {
    return index >= 0 && size_t(index) < profiles().size() ? &profiles()[size_t(index)] : nullptr;
}

}  // namespace ascend_sim
