// Written by scripts/rope_polynomials.py; do not edit. With r in [-1/2, 1/2] turns and z = r*r:
// sin(pi r) = 2 r + r (kSin0 + .. + kSin4 z^4), 2 cos(pi r) = kCos0 + .. + kCos5 z^5.
// Largest error in float32 of sin(2 pi r): 2.74e-07, of cos(2 pi r): 4.24e-07.
#pragma once

namespace rotation {

constexpr float kSin0 = 1.14159262f;
constexpr float kSin1 = -5.16770983f;
constexpr float kSin2 = 2.55007625f;
constexpr float kSin3 = -0.598286569f;
constexpr float kSin4 = 0.0776471645f;

constexpr float kCos0 = 2.0f;
constexpr float kCos1 = -9.86960411f;
constexpr float kCos2 = 8.11741829f;
constexpr float kCos3 = -2.67042327f;
constexpr float kCos4 = 0.469871044f;
constexpr float kCos5 = -0.0487863645f;

}  // namespace rotation
