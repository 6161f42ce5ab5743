// Rotate the pairs of a head that do not fill a vector, one at a time. Compiled for one instruction set, as vec.h is.
#pragma once

#include "csrc/cpu/elements.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {
namespace {

inline float negated(float v) {
    VF one = {};
    one[0] = v;
    return as_float(as_bits(one) ^ 0x80000000u)[0];
}

// Rotates pairs [first, pairs); get(lane) returns a lane as float. kCross: the tables have the order kCrossed. The code
// adds negated products instead of subtracting: gcc 12 combines an alternating difference and sum into one fused
// instruction, even if contraction is disabled.
template <typename E, Pairing kPairing, bool kCross, typename Get>
inline void rotate_pairs(Get get, typename E::T* y, int first, int pairs, const float* c, const float* s) {
    for (int i = first; i < pairs; ++i) {
        const int lane1 = kPairing == kHalf ? i : 2 * i, lane2 = kPairing == kHalf ? i + pairs : 2 * i + 1;
        const float ci = kCross ? c[2 * i] : c[i], si = kCross ? c[2 * i + 1] : s[i];
        const float minus_si = kCross ? s[2 * i] : negated(s[i]);
        const float a = get(lane1), b = get(lane2);
        y[lane1] = E::from_float(a * ci + b * minus_si);
        y[lane2] = E::from_float(a * si + b * ci);
    }
}

}  // namespace
}  // namespace npu_rope
