// Rotate the pairs of a head that do not fill a vector, one at a time. Compiled for one instruction set, like vec.h.
#pragma once

#include "csrc/cpu/elements.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {
namespace {

inline float with_other_sign(float v) {
    VF one = {};
    one[0] = v;
    return as_float(as_bits(one) ^ 0x80000000u)[0];
}

// Rotates pairs [from, pairs); get(lane) returns a lane's float. Crossed tables hold c next to s, and -s next to c. The
// code adds negated products instead of subtracting: gcc 12 combines an alternating difference and sum into one fused
// instruction, even if contraction is disabled.
template <typename E, Pairing kPairing, bool kCross, typename Get>
inline void rotate_pairs(Get get, typename E::T* y, int from, int pairs, const float* c, const float* s) {
    for (int i = from; i < pairs; ++i) {
        const int at = kPairing == kHalf ? i : 2 * i, other = kPairing == kHalf ? i + pairs : 2 * i + 1;
        const float ci = kCross ? c[2 * i] : c[i], si = kCross ? c[2 * i + 1] : s[i];
        const float minus_si = kCross ? s[2 * i] : with_other_sign(s[i]);
        const float a = get(at), b = get(other);
        y[at] = E::from_float(a * ci + b * minus_si);
        y[other] = E::from_float(a * si + b * ci);
    }
}

}  // namespace
}  // namespace npu_rope
