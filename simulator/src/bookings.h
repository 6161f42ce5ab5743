// Times on the timeline, and those at which a core's part of GM's bandwidth is in use.
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
// a launch the transfers stay within the rate. (Bookings one at a time in the order of readiness are not possible
// while the kernel runs, because a transfer that is issued later may be ready earlier.)
class Bookings {
public:
    struct Turn {
        Moment begin;
        double end;   // of the transfer
        double idle;  // end of this transfer and of the bookings it overlaps
    };

    void clear() { busy_.clear(); }
    // End of the last booking.
    Moment last() const { return busy_.empty() ? Moment{} : busy_.back().end; }

    Turn find(const Moment& ready, double cycles) const {
        auto next = std::upper_bound(busy_.begin(), busy_.end(), ready.time,
                                     [](double time, const Busy& b) { return time < b.end.time; });
        Turn turn{ready, 0, 0};
        if (next != busy_.end() && next->begin <= ready.time) turn.begin = (next++)->end;
        turn.end = turn.begin.time + cycles;
        double from = turn.begin.time;
        for (; next != busy_.end() && cycles > next->begin - from; ++next) {
            cycles -= next->begin - from;
            from = next->end.time;
        }
        turn.idle = from + cycles;
        return turn;
    }

    // Marks [turn.begin, turn.idle] as in use; `done` is the moment of its end.
    void book(const Turn& turn, const Moment& done) {
        if (done.time <= turn.begin.time) return;
        const auto first = std::lower_bound(busy_.begin(), busy_.end(), turn.begin.time,
                                            [](const Busy& b, double time) { return b.end.time < time; });
        const auto last =
            std::upper_bound(first, busy_.end(), done.time, [](double time, const Busy& b) { return time < b.begin; });
        Busy all{turn.begin.time, done};
        if (first != last) {
            all.begin = std::min(all.begin, first->begin);
            if (const Moment& end = std::prev(last)->end; end.time > done.time) all.end = end;
        }
        busy_.insert(busy_.erase(first, last), all);
    }

private:
    struct Busy {
        double begin;
        Moment end;
    };
    std::vector<Busy> busy_;  // disjoint, ascending
};

}  // namespace ascend_sim
