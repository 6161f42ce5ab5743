// When a core's part of GM's bandwidth is in use.
#pragma once

#include <algorithm>
#include <vector>

#include "simulator/src/moment.h"

namespace npu_sim {

// A transfer takes what is idle from the moment it is ready, also ahead of transfers that were issued before it
// and are not ready yet; what is booked stays booked.
class Bookings {
public:
    struct Turn {
        Moment begin;
        double end;
    };

    void clear() { busy_.clear(); }

    // The first `cycles` of idle time from `ready` on, other transfers' time between them left out.
    Turn find(const Moment& ready, double cycles) const {
        auto next = std::upper_bound(busy_.begin(), busy_.end(), ready.time,
                                     [](double time, const Busy& b) { return time < b.end.time; });
        Turn turn{ready, 0};
        if (next != busy_.end() && next->begin <= ready.time) turn.begin = (next++)->end;
        double from = turn.begin.time;
        for (; next != busy_.end() && cycles > next->begin - from; ++next) {
            cycles -= next->begin - from;
            from = next->end.time;
        }
        turn.end = from + cycles;
        return turn;
    }

    // All of [turn.begin, done] is in use from now on.
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
    std::vector<Busy> busy_;  // apart from each other, ascending
};

}  // namespace npu_sim
