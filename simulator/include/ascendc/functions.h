// The values of Exp, Ln, Sqrt, Rsqrt, Reciprocal and Div.
//
// Ascend950 has two differences from the other chips, which round the exact value once:
// - It has no subnormal numbers there: subnormal operands and results count as zeros of the same sign (asc-devkit
//   docs/zh/guide, migration from 2201 to 3510, "Subnormal"; the pages of the functions, default config INTRINSIC).
// - The largest error is one unit in the last place (the pages of the functions, INTRINSIC), so a result need not be
// the
//   nearest number. The simulator takes the less favourable reading: the neighbour of the exact value that is not the
//   nearest one. Values that the type represents are exact.
#pragma once

#include <cmath>

#include "ascendc/types.h"

namespace ascend_sim {

// The value, or a zero of its sign if it is subnormal in the type T.
template <class T, class Number>
inline Number flushed(Number value) {
    constexpr double kSmallestNormal = std::is_same_v<T, half> ? 0x1p-14 : 0x1p-126;
    return std::fabs(value) < kSmallestNormal ? std::copysign(Number(0), value) : value;
}

// The exact value has two neighbours in the type T. Returns the one that is further away.
template <class T>
inline double less_near_neighbour(double exact) {
    if (!std::isfinite(exact) || exact == 0) return exact;
    constexpr int kBits = std::is_same_v<T, half> ? 11 : 24;
    const double unit = std::ldexp(1.0, std::ilogb(exact) + 1 - kBits), nearest = std::rint(exact / unit) * unit;
    return nearest == exact ? exact : nearest < exact ? nearest + unit : nearest - unit;
}

// compute(x...) as a function instruction of the type T computes it. compute takes floats, on Ascend950 doubles.
template <class T, class F, class... Floats>
inline float function_value(F compute, Floats... x) {
    if constexpr (!kIs950)
        return float(compute(x...));
    else
        return float(flushed<T>(less_near_neighbour<T>(double(compute(double(flushed<T>(x))...)))));
}

// compute(x) as an instruction that returns an approximation, with fewer bits than the type T.
template <class T, class F>
inline float estimate_value(F compute, float x) {
    if constexpr (!kIs950)
        return compute(x);
    else
        return flushed<T>(compute(flushed<T>(x)));
}

}  // namespace ascend_sim
