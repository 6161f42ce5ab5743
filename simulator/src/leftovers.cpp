// Data that an earlier, longer copy of the same line left behind a shorter one. A kernel may read it, as long as no
// result depends on it: a further pass overwrites it, and the results must be the same.
#include <algorithm>
#include <cstring>

#include "src/core.h"

namespace ascend_sim {
namespace {

constexpr int kSpoiled = 0xFF;  // NaN in half, bfloat16 and float; -1 in integers

// Calls f(first, end) for the bytes behind the place's last copy that an earlier copy of the same line wrote.
template <class F>
void for_each_leftover(Machine& m, const CopyPlace& place, Range range, F f) {
    const Range behind{std::max(range.begin, place.end), std::min(range.end, place.longest_end)};
    if (behind.begin >= behind.end) return;
    m.writer.for_each(behind.begin, behind.end, [&](uint32_t first, uint32_t end, uint32_t word) {
        const uint32_t number = word >> 1;
        if (number < m.core_first || number >= place.number) return;
        const Record& record = m.record(number);
        if (record.pipe == Pipe::MTE2 && is_same(record.site, place.site)) f(first, end);
    });
}

}  // namespace

void Machine::note_copy(const Range& range) {
    const auto found = std::find_if(copies.begin(), copies.end(), [&](const CopyPlace& p) {
        return p.begin == range.begin && is_same(p.site, current.site);
    });
    if (found == copies.end()) {
        copies.push_back({current.site, range.begin, range.end, range.end, number});
        return;
    }
    CopyPlace& place = *found;
    place.end = range.end;
    place.longest_end = std::max(place.longest_end, range.end);
    place.number = number;
    has_leftovers |= place.end < place.longest_end;
    if (!options.spoils) return;
    for_each_leftover(*this, place, {place.end, place.longest_end},
                      [&](uint32_t first, uint32_t end) { std::memset(ub.get() + first, kSpoiled, end - first); });
}

void Machine::note_reads_of_leftovers(const Range& range) {
    for (const CopyPlace& place : copies)
        for_each_leftover(*this, place, range, [&](uint32_t, uint32_t) {
            if (!leftover_read.api) leftover_read = {current.api, current.site, place.site, core};
        });
}

}  // namespace ascend_sim
