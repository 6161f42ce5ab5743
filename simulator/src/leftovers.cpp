// Data that a kernel may read as long as no result depends on it. One kind is leftovers: data of an earlier, longer
// copy that a later, shorter copy of the same line did not overwrite. The other kind is undefined bytes among a vector
// instruction's lanes. Further passes overwrite the data, and the results must be the same.
#include <algorithm>
#include <cstring>

#include "src/core.h"

namespace ascend_sim {
namespace {

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
    if (!options.spoiling.leftovers) return;
    for_each_leftover(*this, place, {place.end, place.longest_end},
                      [&](uint32_t first, uint32_t end) { std::memset(ub.get() + first, kSpoiled, end - first); });
}

void Machine::note_reads_of_leftovers(const Range& range) {
    for (const CopyPlace& place : copies)
        for_each_leftover(*this, place, range, [&](uint32_t, uint32_t) {
            if (!leftover_read.api) leftover_read = {current.api, current.site, place.site, core};
        });
}

void Machine::note_undefined_read(const Range& range, const std::string& text) {
    const Spoiling& spoiling = options.spoiling;
    const bool chosen = !spoiling.only_site.file || is_same(spoiling.only_site, current.site);
    if (spoiling.fill >= 0 && chosen) std::memset(ub.get() + range.begin, spoiling.fill, range.end - range.begin);
    const bool is_new = std::none_of(undefined_reads.begin(), undefined_reads.end(),
                                     [&](const UndefinedRead& r) { return is_same(r.site, current.site); });
    if (is_new) undefined_reads.push_back({current.api, current.site, core, text});
}

}  // namespace ascend_sim
