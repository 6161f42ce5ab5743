// Sums in the order of the vector unit: lane i of 64 adds the elements i, i + 64, ... and the lanes are added pairwise.
// Sums of integers wrap.
#pragma once

#include <cstdint>

#include "cann/opapi/elements.h"

namespace simulated_cann {

constexpr int64_t kSumLanes = 64;  // float32 lanes of a vector register

// Adds term(value) of each of `count` values.
template <class Compute, class Term>
Compute lane_sum(const Compute* values, int64_t count, Term term) {
    decltype(to_wrapping(Compute{})) lanes[kSumLanes] = {};
    int64_t i = 0;
    for (; i + kSumLanes <= count; i += kSumLanes)
        for (int64_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += to_wrapping(term(values[i + lane]));
    for (int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += to_wrapping(term(values[i + lane]));
    for (int64_t half = kSumLanes / 2; half; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return static_cast<Compute>(lanes[0]);
}

template <class Compute>
Compute lane_sum(const Compute* values, int64_t count) {
    return lane_sum(values, count, [](Compute value) { return value; });
}

}  // namespace simulated_cann
