// A time on the timeline.
#pragma once

#include <cstdint>

namespace ascend_sim {

// The time at which an activity ends, and the step that ended then.
struct Moment {
    double time = 0;
    int32_t step = -1;
};
inline Moment later(const Moment& a, const Moment& b) { return b.time > a.time ? b : a; }

}  // namespace ascend_sim
