// Rotate the last pairs of a head, which do not fill a vector, one at a time. Compiled for one instruction set, as
// vec.h is.
#pragma once

#include "csrc/cpu/elements.h"
#include "csrc/cpu/rope_kernels.h"

namespace npu_rope {
namespace {

inline float negated(float v) {
    FloatVec vector = {};
    vector[0] = v;
    return as_float(as_bits(vector) ^ kFloatSign)[0];
}

// Rotates pairs [first, pairs). to_float(lane) returns a lane of x. kPerLaneTable: the tables have the order kPerLane.
// The code adds negated products instead of subtracting: gcc 12 combines an alternating difference and sum into one
// fused instruction, even if contraction is disabled.
template <typename Element, Pairing kPairing, bool kPerLaneTable, typename ToFloat>
inline void rotate_pairs(ToFloat to_float, typename Element::T* y, int first, int pairs, const float* cos_table,
                         const float* sin_table) {
    for (int i = first; i < pairs; ++i) {
        const int lane1 = kPairing == kHalfApart ? i : 2 * i, lane2 = kPairing == kHalfApart ? i + pairs : 2 * i + 1;
        const float c = kPerLaneTable ? cos_table[2 * i] : cos_table[i];
        const float s = kPerLaneTable ? sin_table[2 * i + 1] : sin_table[i];
        const float minus_s = kPerLaneTable ? sin_table[2 * i] : negated(sin_table[i]);
        const float x1 = to_float(lane1), x2 = to_float(lane2);
        y[lane1] = Element::from_float(x1 * c + x2 * minus_s);
        y[lane2] = Element::from_float(x1 * s + x2 * c);
    }
}

}  // namespace
}  // namespace npu_rope
