// What the places in UB hold over time, for the trace.
#include <algorithm>

#include "src/core.h"

namespace ascend_sim {

// Notes that the running instruction uses a tensor. Its place is the buffer; for a tensor at an address, the smallest
// one that contains the view.
void Machine::note_ub_use(const UbView& view, bool writes) {
    if (!is_traced()) return;
    const Buffer& b = buffers[view.buffer];
    std::pair<uint32_t, uint32_t> place{b.addr, b.bytes};
    if (view.buffer == static_buffer)
        for (const auto& tensor : ub_places.static_tensors)
            if (tensor.second < place.second && tensor.first <= view.addr &&
                view.addr + view.bytes <= tensor.first + tensor.second)
                place = tensor;
    const UbPlace fresh{place.first, place.second, view.generation};
    UbPlace* const found = &ub_places.places.emplace(place, fresh).first->second;
    for (UbPlaces::Use& use : ub_places.uses)
        if (use.place == found) {
            (writes ? use.writes : use.reads) = true;
            return;
        }
    ub_places.uses.push_back({found, view.generation, !writes, writes});
}

// Ends the running instruction's uses, which last from begin to end.
void Machine::note_ub_time(double begin, double end) {
    for (const UbPlaces::Use& use : ub_places.uses) {
        UbPlace& place = *use.place;
        const bool is_new = use.generation != place.generation || (use.writes && !use.reads && place.was_read);
        if (place.is_open && is_new) ub_contents.push_back(place.contents);
        if (!place.is_open || is_new) {
            place.is_open = true;
            place.was_read = false;
            place.generation = use.generation;
            place.contents = {int32_t(core), place.addr, place.bytes, current.api, current.site, begin, end, 0};
        }
        place.was_read = place.was_read || use.reads;
        place.contents.begin = std::min(place.contents.begin, begin);
        place.contents.end = std::max(place.contents.end, end);
        place.contents.uses++;
    }
    ub_places.uses.clear();
}

}  // namespace ascend_sim
