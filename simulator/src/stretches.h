// Stretches of equal values in the shadow of UB and GM.
#pragma once

#include <cstdint>

namespace ascend_sim {

// Calls f(first, past the last, value) for each stretch of equal values in values[begin, end).
template <class F>
void for_each_stretch(const uint32_t* values, uint64_t begin, uint64_t end, F f) {
    constexpr uint32_t kStep = 16;
    for (uint64_t i = begin; i < end;) {
        const uint32_t value = values[i];
        const uint64_t first = i++;
        for (; i + kStep <= end; i += kStep) {
            uint32_t differs = 0;
            for (uint32_t k = 0; k < kStep; ++k) differs |= values[i + k] ^ value;
            if (differs) break;
        }
        while (i < end && values[i] == value) ++i;
        f(first, i, value);
    }
}

}  // namespace ascend_sim
