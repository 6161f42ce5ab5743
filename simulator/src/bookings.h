// Moments of the timeline, and the bookings of a core's part of GM's bandwidth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ascend_sim {

// The time at which an activity ends, and the step that ended then.
struct Moment {
    double time = 0;
    int32_t step = -1;
};
inline Moment later(const Moment& a, const Moment& b) { return b.time > a.time ? b : a; }

// A transfer begins when it is ready and the memory is idle. It may begin before a transfer that was issued earlier
// but is ready later. It is not interrupted. If it overlaps an earlier booking, both run at the full rate, and the
// memory stays in use longer by the length of the overlap. At most two transfers overlap, one in each direction. Over
// a launch the transfers stay within the rate. (The transfers cannot be booked in the order in which they are ready: a
// transfer that is issued later may be ready earlier, and the kernel is still running.)
class Bookings {
public:
    struct Slot {
        Moment begin;
        double end;   // of the transfer
        double idle;  // from here on the memory is idle; later than `end` if the transfer overlaps bookings
    };

    void clear() { busy_.clear(); }
    // End of the last booking.
    Moment last() const { return busy_.empty() ? Moment{} : busy_.back().end; }

    Slot find(const Moment& ready, double cycles) const {
        auto next = std::upper_bound(busy_.begin(), busy_.end(), ready.time,
                                     [](double time, const Busy& b) { return time < b.end.time; });
        Slot slot{ready, 0, 0};
        if (next != busy_.end() && next->begin <= ready.time) slot.begin = (next++)->end;
        slot.end = slot.begin.time + cycles;
        double from = slot.begin.time;
        for (; next != busy_.end() && cycles > next->begin - from; ++next) {
            cycles -= next->begin - from;
            from = next->end.time;
        }
        slot.idle = from + cycles;
        return slot;
    }

    // Marks [slot.begin, slot.idle] as in use; `done` is the moment of its end.
    void book(const Slot& slot, const Moment& done) {
        if (done.time <= slot.begin.time) return;
        const auto first = std::lower_bound(busy_.begin(), busy_.end(), slot.begin.time,
                                            [](const Busy& b, double time) { return b.end.time < time; });
        const auto last =
            std::upper_bound(first, busy_.end(), done.time, [](double time, const Busy& b) { return time < b.begin; });
        Busy merged{slot.begin.time, done};
        if (first != last) {
            merged.begin = std::min(merged.begin, first->begin);
            if (const Moment& end = std::prev(last)->end; end.time > done.time) merged.end = end;
        }
        busy_.insert(busy_.erase(first, last), merged);
    }

private:
    struct Busy {
        double begin;
        Moment end;
    };
    std::vector<Busy> busy_;  // disjoint, ascending
};

}  // namespace ascend_sim
