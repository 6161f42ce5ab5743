// Sin, Cos, Tan, Asin, Acos, Atan.
//
// Rules: half and float. Sin, Cos and Tan take -65504 .. 65504, Asin and Acos -1 .. 1.
// Meaning: computed in float. Sin, Cos and Tan subtract the nearest multiple of pi from x, part by part, and evaluate a
// polynomial or a quotient of polynomials. Asin and Acos are Taylor series of x, or of sqrt(1 - x * x) if that is
// smaller. Atan is the least of four Taylor series, for angles around 0, pi/8, pi/4 and 3 pi/8.
// Pages: Sin, Cos, Tan, Asin, Acos, Atan; the coefficients are those of asc-devkit's impl/adv_api/detail/math.
#pragma once

#include "ascendc/library/program.h"

namespace ascend_sim {

constexpr float kInversePi = 0.3183098733425140380859375f;
// pi as a sum of parts. The first parts have few bits, so that their products with an integer are exact.
constexpr float kPiParts[] = {3.140625f, 0.0009670257568359375f, 6.2771141529083251953125e-7f,
                              1.21644916362129151821136474609375e-10f, -1.0290623200529979163359041220560e-13f};
constexpr float kHalfPi = 1.57079637050628662109375f, kHalfPiRest = -0.00000004371139000189375f;  // their sum: pi / 2

// r = from - k * part
template <class Steps, class Register>
void subtract_part(Steps& steps, Register& r, const Register& from, Register& k, Register& tmp, float part) {
    steps.muls(tmp, k, part);
    steps.sub(r, from, tmp);
}

// y = (-1)^k * sin(r), where r is x without a multiple k of pi. Overwrites r2 and k.
template <class Steps, class Register>
void sine_of_reduced(Steps& steps, Register& y, Register& r, Register& r2, Register& k) {
    steps.mul(r2, r, r);
    steps.muls(y, k, 0.5f);  // (-1)^k = 1 + 4 * floor(k / 2) - 2 * k
    steps.round(y, y, RoundMode::CAST_FLOOR);
    steps.muls(y, y, 4.0f);
    steps.muls(k, k, -2.0f);
    steps.add(y, y, k);
    steps.adds(y, y, 1.0f);
    polynomial(steps, k, r2, {2.604926501e-6f, -0.0001980894471f, 0.008333049340f, -0.1666665792f, 1.0f});
    steps.mul(k, k, r);
    steps.mul(y, k, y);
}

// The reduced argument r overwrites the source if isReuseSource allows it; else r needs a third temporary register.
template <class T, bool reuse>
struct PeriodicTraits : ProgramTraits {
    static constexpr bool kReusesSources = std::is_same_v<T, float> && reuse;
    static constexpr uint32_t kTmpRegisters = kReusesSources ? 2 : 3;
};

template <class T, bool reuse>
struct SinProgram : PeriodicTraits<T, reuse> {
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        Register& r = PeriodicTraits<T, reuse>::kReusesSources ? x[0] : tmp[2];
        steps.muls(tmp[0], x[0], kInversePi);
        steps.round(tmp[0], tmp[0], RoundMode::CAST_ROUND);
        for (int i = 0; i < 4; ++i) subtract_part(steps, r, i ? r : x[0], tmp[0], tmp[1], kPiParts[i]);
        sine_of_reduced(steps, y, r, tmp[1], tmp[0]);
    }
};

template <class T, bool reuse>
struct CosProgram : PeriodicTraits<T, reuse> {
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        Register& r = PeriodicTraits<T, reuse>::kReusesSources ? x[0] : tmp[2];
        steps.muls(tmp[0], x[0], kInversePi);
        steps.adds(tmp[0], tmp[0], 0.5f);
        steps.round(tmp[0], tmp[0], RoundMode::CAST_RINT);
        for (int i = 0; i < 5; ++i) {
            subtract_part(steps, r, i ? r : x[0], tmp[0], tmp[1], kPiParts[i]);
            if (i == 1) steps.adds(r, r, kHalfPi);
        }
        steps.adds(r, r, kHalfPiRest);
        sine_of_reduced(steps, y, r, tmp[1], tmp[0]);
        steps.mins(y, y, 1.0f);
        steps.maxs(y, y, -1.0f);
    }
};

// tan r = r * p(r^2) / ((r^2 - 24.80489) * (r + pi/2) * (r - pi/2)) with a polynomial p. `above` is r + pi/2, `below`
// is r - pi/2.
template <class T, bool>
struct TanProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 4;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        Register &k = tmp[0], &above = tmp[1], &below = tmp[2], &r = tmp[3];
        steps.adds(r, x[0], 0.0f);
        steps.muls(k, r, kInversePi);
        steps.round(k, k, RoundMode::CAST_RINT);
        for (int i = 0; i < 5; ++i) {
            subtract_part(steps, r, r, k, y, kPiParts[i]);
            if (i == 1) {
                steps.adds(above, r, kHalfPi);
                steps.adds(below, r, -kHalfPi);
            } else if (i > 1) {
                steps.sub(above, above, y);
                steps.sub(below, below, y);
            }
            if (i == 2) {
                steps.adds(above, above, kHalfPiRest);
                steps.adds(below, below, -kHalfPiRest);
            }
        }
        steps.mul(k, r, r);
        polynomial(steps, y, k, {0.0698520831551998762793f, -6.8711573651634203789f, 61.20362572811089435388f});
        steps.mul(y, y, r);
        steps.adds(k, k, -24.8048928861126769186219f);
        steps.mul(k, k, above);
        steps.mul(k, k, below);
        steps.div(y, y, k);
    }
};

// result = asin(sqrt(square)). `square` becomes its square root.
template <class Steps, class Register>
void asin_of_square(Steps& steps, Register& result, Register& square) {
    polynomial(steps, result, square,
               {0.01396484375f, 0.01735276442307692f, 0.022372159090909092f, 0.030381944444444444f,
                0.044642857142857144f, 0.075f, 0.16666666666666666f, 1.0f});
    steps.sqrt(square, square);
    steps.mul(result, result, square);
}

// y = the sign of x: -1, 0 or 1. Overwrites `denominator`.
template <class Steps, class Register>
void sign_of(Steps& steps, Register& y, const Register& x, Register& denominator) {
    steps.muls(y, x, 0x1p62f);
    steps.abs(denominator, y);
    steps.adds(denominator, denominator, 0x1p-62f);
    steps.div(y, y, denominator);
}

template <class T, bool>
struct AsinProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 2;
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.mul(tmp[0], x[0], x[0]);
        steps.muls(tmp[0], tmp[0], -1.0f);
        steps.adds(tmp[0], tmp[0], 1.0f);
        asin_of_square(steps, tmp[1], tmp[0]);  // asin(sqrt(1 - x * x))
        steps.muls(tmp[1], tmp[1], -1.0f);
        steps.adds(tmp[1], tmp[1], kHalfPi);
        steps.mul(tmp[0], x[0], x[0]);
        asin_of_square(steps, y, tmp[0]);  // asin(|x|)
        // The weight of the first series is 1 where |x| >= sqrt(1/2), else 0.
        steps.muls(tmp[0], tmp[0], 0.70710678118654752f);
        steps.adds(tmp[0], tmp[0], 0.5f);
        steps.round(tmp[0], tmp[0], RoundMode::CAST_FLOOR);
        steps.mins(tmp[0], tmp[0], 1.0f);
        steps.mul(tmp[1], tmp[1], tmp[0]);
        steps.muls(tmp[0], tmp[0], -1.0f);
        steps.adds(tmp[0], tmp[0], 1.0f);
        steps.mul(y, y, tmp[0]);
        steps.add(y, y, tmp[1]);
        sign_of(steps, tmp[0], x[0], tmp[1]);
        steps.mul(y, y, tmp[0]);
    }
};

template <class T, bool reuse>
struct AcosProgram : AsinProgram<T, reuse> {
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        AsinProgram<T, reuse>::operator()(steps, y, x, tmp);
        steps.adds(y, y, -kHalfPi);
        steps.muls(y, y, -1.0f);
    }
};

// result = the Taylor series of atan(x) up to the power 2 * level + 1.
template <class Steps, class Register>
void atan_series(Steps& steps, Register& result, Register& x, Register& square, int level) {
    steps.mul(square, x, x);
    steps.muls(result, square, (level % 2 ? -1.0f : 1.0f) / float(2 * level + 1));
    for (int i = level - 1; i > 0; --i) {
        steps.adds(result, result, (i % 2 ? -1.0f : 1.0f) / float(2 * i + 1));
        steps.mul(result, result, square);
    }
    steps.adds(result, result, 1.0f);
    steps.mul(result, result, x);
}
// result = |(x - center) / (1 + center * x)|, so that atan(x) = atan(center) + atan(result) for x >= center.
template <class Steps, class Register>
void subtract_angle(Steps& steps, Register& result, Register& x, Register& tmp, float center) {
    steps.muls(result, x, center);
    steps.adds(result, result, 1.0f);
    steps.adds(tmp, x, -center);
    steps.div(result, tmp, result);
    steps.abs(result, result);
}

template <class T, bool>
struct AtanProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 5;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        constexpr float kMost = 10000, kTanEighth = 0.4142135623730950f;  // tan(pi / 8)
        constexpr float kQuarter = kHalfPi / 2, kEighth = kHalfPi / 4;
        Register &clipped = tmp[0], &a = tmp[1], &b = tmp[2], &c = tmp[3], &square = tmp[4];
        steps.mins(clipped, x[0], kMost);
        steps.maxs(clipped, clipped, -kMost);
        steps.abs(a, clipped);
        atan_series(steps, y, a, square, 4);
        subtract_angle(steps, b, a, c, kTanEighth);
        atan_series(steps, c, b, square, 4);
        steps.adds(c, c, kEighth);
        steps.min(y, y, c);
        subtract_angle(steps, b, a, c, 1.0f);
        atan_series(steps, c, b, square, 4);
        steps.adds(c, c, kQuarter);
        steps.min(y, y, c);
        subtract_angle(steps, a, b, c, kTanEighth);
        atan_series(steps, c, a, square, 6);
        steps.adds(c, c, kEighth);
        steps.adds(c, c, kQuarter);
        steps.min(y, y, c);
        sign_of(steps, a, clipped, c);
        steps.mul(y, y, a);
    }
};

// Temporary memory: on Ascend950 Sin and Cos need none.
namespace tmp_sizes {
constexpr TmpArrays kSinOnSoc = kIs950 ? kNone : kSin, kCosOnSoc = kIs950 ? kNone : kCos;
}

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_FUNCTION(Sin, SinProgram, kSinOnSoc)
ASCEND_SIM_FUNCTION(Cos, CosProgram, kCosOnSoc)
ASCEND_SIM_FUNCTION(Tan, TanProgram, kTan)
ASCEND_SIM_FUNCTION(Asin, AsinProgram, kAsin)
ASCEND_SIM_FUNCTION(Acos, AcosProgram, kAcos)
ASCEND_SIM_FUNCTION(Atan, AtanProgram, kAtan)

}  // namespace AscendC
