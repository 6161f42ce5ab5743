// Bank conflicts of UB: the cycles in which an instruction waits, because its operands access the same banks.
//
// Ascend910B (asc-devkit, "bank conflicts" for architecture 2201, and the sample bank_conflict_ub): the lines of 32
// bytes are in 16 groups of banks in turn. In a cycle a group serves one line that the instruction reads and one that
// it writes. A source with repeat stride 0 is read once, one with block stride 0 once in each repeat.
// Ascend950 (sample add_high_performance): each repeat with two sources takes two cycles, whatever their addresses.
// Conflicts of a read with a write are not modelled.
#include <algorithm>
#include <array>

#include "src/chips.h"
#include "src/core.h"

namespace ascend_sim {
namespace {

constexpr uint32_t kBankLineBytes = 32, kBankGroups = 16;

bool is_dense(const UbLines& lines) { return lines.block_stride <= kBankLineBytes; }

// The accesses of one direction in a repeat, counted for each group of banks. A set of groups has a bit for each group.
class Accesses {
public:
    void add(const UbLines& lines, uint32_t repeat) {
        const uint32_t first = (lines.address + repeat * lines.repeat_stride) / kBankLineBytes % kBankGroups;
        const uint32_t blocks = lines.block_stride == 0 ? std::min(lines.blocks, 1u) : lines.blocks;
        if (is_dense(lines)) {
            const uint32_t groups = ((1u << blocks) - 1) << first;
            add_once((groups | groups >> kBankGroups) & ((1u << kBankGroups) - 1));
        } else {
            for (uint32_t b = 0; b < blocks; ++b)
                add_once(1u << (first + b * lines.block_stride / kBankLineBytes) % kBankGroups);
        }
    }
    uint32_t max_count() const { return max_count_; }  // accesses of the busiest group

private:
    // Adds one access to each group of the set.
    void add_once(uint32_t groups) {
        for (uint32_t n = 0; groups; ++n) {
            if (n == max_count_) more_than_[max_count_++] = 0;
            const uint32_t both = more_than_[n] & groups;
            more_than_[n] |= groups;
            groups = both;
        }
    }
    std::array<uint32_t, 24> more_than_;  // more_than_[n]: the set of the groups with more than n accesses
    uint32_t max_count_ = 0;
};

// Cycles in which the banks serve a repeat, if one line takes one cycle.
uint32_t cycles_of_repeat(const UbLines* sources, size_t n, const UbLines& destination, uint32_t repeat) {
    Accesses reads, writes;
    for (size_t k = 0; k < n; ++k)
        if (repeat == 0 || sources[k].repeat_stride != 0) reads.add(sources[k], repeat);
    if (!is_dense(destination)) writes.add(destination, repeat);
    return std::max({reads.max_count(), writes.max_count(), 1u});
}

}  // namespace

void access_banks(const UbLines* sources, size_t n, const UbLines& destination, uint32_t repeats,
                  double cycles_per_repeat) {
    Machine& m = machine();
    const double line_cycles = m.profile->bank_cycles;
    if (line_cycles == 0 || repeats == 0) return;
    const auto wait = [&](uint32_t lines) { return std::max(0.0, lines * line_cycles - cycles_per_repeat); };
    if (m.profile->arch == kArch950) {
        m.bank_wait = n < 2 ? 0 : repeats * wait(2);
        return;
    }
    if (std::all_of(sources, sources + n, is_dense) && is_dense(destination) && wait(uint32_t(n)) == 0) return;
    m.bank_wait = wait(cycles_of_repeat(sources, n, destination, 0));
    // From the second repeat on, the groups of all operands recur after 16 repeats.
    for (uint32_t r = 1; r < repeats && r <= kBankGroups; ++r)
        m.bank_wait += ((repeats - 1 - r) / kBankGroups + 1) * wait(cycles_of_repeat(sources, n, destination, r));
}

}  // namespace ascend_sim
