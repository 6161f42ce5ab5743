// Random fills and reads of Shadow (aligned, unaligned and small), compared with a plain array; and the families of
// chips' names.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "src/chips.h"
#include "src/shadow.h"

namespace {

bool random_accesses() {
    constexpr uint32_t kBytes = 4096, kSteps = 200000;
    ascend_sim::Shadow shadow;
    shadow.reset(kBytes);
    std::vector<uint32_t> plain(kBytes, 0);
    std::mt19937 random(1);
    auto below = [&](uint32_t n) { return uint32_t(random() % n); };
    for (uint32_t step = 0; step < kSteps; ++step) {
        uint32_t begin = below(kBytes), end = below(kBytes);
        if (below(3) == 0) begin &= ~31u, end &= ~31u;
        if (below(2)) end = std::min(kBytes, begin + below(70));
        if (begin > end) std::swap(begin, end);
        if (step % 2) {
            const uint32_t word = below(5);
            shadow.fill(begin, end, word);
            std::fill(plain.begin() + begin, plain.begin() + end, word);
            continue;
        }
        uint32_t at = begin;
        bool same = true;
        shadow.for_each(begin, end, [&](uint32_t first, uint32_t last, uint32_t word) {
            same = same && first == at && last > first;
            at = last;
            for (uint32_t i = first; i < last; ++i) same = same && plain[i] == word;
        });
        if (!same || at != end) {
            std::printf("step %u: [%u, %u) differs\n", step, begin, end);
            return false;
        }
    }
    return true;
}

// A digit must follow the prefix of a family.
bool families_of_names() {
    constexpr const char* kCases[][2] = {
        {"Ascend910B1", "ascend910b"},  {"Ascend910_9392", "ascend910_93"},
        {"Ascend950PR_9", "ascend950"}, {"Ascend910B", "none"},
        {"Ascend910BX", "none"},        {"Ascend910", "none"},
    };
    for (const auto& [name, soc] : kCases) {
        const ascend_sim::Family* family = ascend_sim::find_family(name);
        const std::string found = family ? family->soc : "none";
        if (found == soc) continue;
        std::printf("%s: the family is %s\n", name, found.c_str());
        return false;
    }
    return true;
}

}  // namespace

int main() {
    if (!random_accesses() || !families_of_names()) return 1;
    std::puts("shadow: ok");
    return 0;
}
