// When a core's part of GM's bandwidth is in use.
#pragma once

#include <algorithm>
#include <vector>

#include "simulator/src/moment.h"

namespace npu_sim {

// A transfer has its turn when it is ready and the memory is idle, also ahead of transfers that were issued before it
// and are ready later. Once begun it runs to its end. Where that reaches into what is booked already, both are
// under way, each at the full rate, and the memory is in use for as much longer: at most two, one each way. Over a
// launch no more is moved than the rate allows. (One at a time, in the order in which they are ready, cannot be
// booked while the kernel still runs: what is issued later may be ready earlier.)
class Bookings {
public:
    struct Turn {
        Moment begin;
        double end;   // of the transfer
        double idle;  // when the memory is done with it and with all that it reached into
    };

    void clear() { busy_.clear(); }
    // When the memory is idle for good.
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

    // All of [turn.begin, turn.idle] is in use from now on; `done` is its end.
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
