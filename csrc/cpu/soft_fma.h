// A fused multiply-add for instruction sets that lack it: a * b + c, rounded once. Method: S. Boldo, G. Melquiond,
// "Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", IEEE Transactions on
// Computers 57(4), 2008. Only vec.h includes this file.
#pragma once

#include <cstdint>

namespace npu_rope {
namespace {

// Returns the rounded sum, and its rounding error, which is exact.
template <typename Doubles>
inline Doubles sum_and_error(Doubles a, Doubles b, Doubles* error) {
    Doubles sum = a + b, b_part = sum - a;
    *error = (a - (sum - b_part)) + (b - b_part);
    return sum;
}

// Splits a into two numbers of at most 26 bits, so that products of such parts are exact (Veltkamp).
template <typename Doubles>
inline Doubles upper_part(Doubles a, Doubles* lower) {
    Doubles scaled = a * 0x1.0000002p27, upper = scaled - (scaled - a);
    *lower = a - upper;
    return upper;
}

// Returns a + b, rounded to odd: an inexact sum is the neighbour whose last bit is 1. A later rounding to fewer bits
// then gives the same result as one rounding of the exact sum.
template <typename Doubles, typename Words>
inline Doubles sum_to_odd(Doubles a, Doubles b) {
    Doubles error, sum = sum_and_error(a, b, &error);
    Words inexact = (Words)(error != 0.0), opposite = (Words)((error > 0.0) != (sum > 0.0));
    Words even = ((Words)sum & 1) - 1;  // -1 if the last bit is 0, else 0
    return (Doubles)((Words)sum + ((opposite | 1) & inexact & even));
}

// Doubles: a vector of two doubles. Words: a vector of two int64_t.
template <typename Doubles, typename Words>
inline Doubles soft_fma(Doubles a, Doubles b, Doubles c) {
    Doubles product = a * b;
    auto magnitude = [](Doubles v) { return (Doubles)((Words)v & INT64_MAX); };
    // The errors below are exact in this range. The C library computes other numbers, NaNs and infinities.
    Words in_range = (Words)(magnitude(a) < 0x1p990) & (Words)(magnitude(b) < 0x1p990) &
                     (Words)(magnitude(c) < 0x1p1000) & (Words)(magnitude(product) < 0x1p1000);
    Words is_zero = (Words)(a == 0.0) | (Words)(b == 0.0);  // then the plain sum is exact, with the right sign
    in_range &= is_zero | (Words)(magnitude(product) > 0x1p-900);
    if (__builtin_expect((in_range[0] & in_range[1]) == 0, 0))
        return Doubles{__builtin_fma(a[0], b[0], c[0]), __builtin_fma(a[1], b[1], c[1])};

    Doubles a_lower, a_upper = upper_part(a, &a_lower), b_lower, b_upper = upper_part(b, &b_lower);
    Doubles product_error = ((a_upper * b_upper - product) + a_upper * b_lower + a_lower * b_upper) + a_lower * b_lower;
    Doubles low_error, low = sum_and_error(c, product_error, &low_error);
    Doubles high_error, high = sum_and_error(product, low, &high_error);
    Doubles rounded = high + sum_to_odd<Doubles, Words>(low_error, high_error);
    return (Doubles)(((Words)(product + c) & is_zero) | ((Words)rounded & ~is_zero));
}

}  // namespace
}  // namespace npu_rope
