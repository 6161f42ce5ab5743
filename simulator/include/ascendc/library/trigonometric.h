// Sin, Cos, Tan, Asin, Acos, Atan.
//
// Rules: half and float. Sin, Cos and Tan take -65504 .. 65504, Asin and Acos -1 .. 1.
// Meaning: in float. Sin, Cos and Tan subtract the nearest multiple of pi, which has several parts, and evaluate a
// polynomial or a quotient of polynomials. Asin and Acos are Taylor series of x, or of sqrt(1 - x * x) where that is
// smaller; Atan is the least of four series around 0, pi/8, pi/4 and 3 pi/8.
// Pages: Sin, Cos, Tan, Asin, Acos, Atan; the coefficients are those of asc-devkit's impl/adv_api/detail/math.
#pragma once

#include "ascendc/library/program.h"

namespace ascend_sim {

constexpr float kInversePi = 0.3183098733425140380859375f;
// pi as a sum; a product of a short part and a multiple is exact.
constexpr float kPiParts[] = {3.140625f, 0.0009670257568359375f, 6.2771141529083251953125e-7f,
                              1.21644916362129151821136474609375e-10f, -1.0290623200529979163359041220560e-13f};
constexpr float kHalfPi = 1.57079637050628662109375f, kHalfPiRest = -0.00000004371139000189375f;

// r -= k * part
template <class M, class R>
void subtract_part(M& m, R& r, const R& from, R& k, R& t, float part) {
    m.muls(t, k, part);
    m.sub(r, from, t);
}

// y = the sine of r times the sign of (-1)^k; r2 and k are overwritten.
template <class M, class R>
void sine_of_rest(M& m, R& y, R& r, R& r2, R& k) {
    m.mul(r2, r, r);
    m.muls(y, k, 0.5f);  // the sign: 1 + 4 * floor(k / 2) - 2 * k
    m.round(y, y, RoundMode::CAST_FLOOR);
    m.muls(y, y, 4.0f);
    m.muls(k, k, -2.0f);
    m.add(y, y, k);
    m.adds(y, y, 1.0f);
    polynomial(m, k, r2, {2.604926501e-6f, -0.0001980894471f, 0.008333049340f, -0.1666665792f, 1.0f});
    m.mul(k, k, r);
    m.mul(y, k, y);
}

// The register of the reduced argument: the source itself, if it may be overwritten.
template <class T, bool reuse>
struct PeriodicTraits : ProgramTraits {
    static constexpr bool kReuses = std::is_same_v<T, float> && reuse;
    static constexpr uint32_t kTemps = kReuses ? 2 : 3;
};

template <class T, bool reuse>
struct SinProgram : PeriodicTraits<T, reuse> {
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        R& r = PeriodicTraits<T, reuse>::kReuses ? x[0] : t[2];
        m.muls(t[0], x[0], kInversePi);
        m.round(t[0], t[0], RoundMode::CAST_ROUND);
        for (int i = 0; i < 4; ++i) subtract_part(m, r, i ? r : x[0], t[0], t[1], kPiParts[i]);
        sine_of_rest(m, y, r, t[1], t[0]);
    }
};

template <class T, bool reuse>
struct CosProgram : PeriodicTraits<T, reuse> {
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        R& r = PeriodicTraits<T, reuse>::kReuses ? x[0] : t[2];
        m.muls(t[0], x[0], kInversePi);
        m.adds(t[0], t[0], 0.5f);
        m.round(t[0], t[0], RoundMode::CAST_RINT);
        for (int i = 0; i < 5; ++i) {
            subtract_part(m, r, i ? r : x[0], t[0], t[1], kPiParts[i]);
            if (i == 1) m.adds(r, r, kHalfPi);
        }
        m.adds(r, r, kHalfPiRest);
        sine_of_rest(m, y, r, t[1], t[0]);
        m.mins(y, y, 1.0f);
        m.maxs(y, y, -1.0f);
    }
};

// tan r = r * p(r^2) / ((r^2 - c) * (r + pi/2) * (r - pi/2))
template <class T, bool>
struct TanProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 4;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        R &k = t[0], &above = t[1], &below = t[2], &r = t[3];
        m.adds(r, x[0], 0.0f);
        m.muls(k, r, kInversePi);
        m.round(k, k, RoundMode::CAST_RINT);
        for (int i = 0; i < 5; ++i) {
            subtract_part(m, r, r, k, y, kPiParts[i]);
            if (i == 1) {
                m.adds(above, r, kHalfPi);
                m.adds(below, r, -kHalfPi);
            } else if (i > 1) {
                m.sub(above, above, y);
                m.sub(below, below, y);
            }
            if (i == 2) {
                m.adds(above, above, kHalfPiRest);
                m.adds(below, below, -kHalfPiRest);
            }
        }
        m.mul(k, r, r);
        polynomial(m, y, k, {0.0698520831551998762793f, -6.8711573651634203789f, 61.20362572811089435388f});
        m.mul(y, y, r);
        m.adds(k, k, -24.8048928861126769186219f);
        m.mul(k, k, above);
        m.mul(k, k, below);
        m.div(y, y, k);
    }
};

// d = asin of the square root of `square`, which becomes the square root.
template <class M, class R>
void asin_of_square(M& m, R& d, R& square) {
    polynomial(m, d, square,
               {0.01396484375f, 0.01735276442307692f, 0.022372159090909092f, 0.030381944444444444f,
                0.044642857142857144f, 0.075f, 0.16666666666666666f, 1.0f});
    m.sqrt(square, square);
    m.mul(d, d, square);
}

// y becomes -1 or 1 by the sign of x (0 for 0); denominator is overwritten.
template <class M, class R>
void sign_of(M& m, R& y, const R& x, R& denominator) {
    m.muls(y, x, 0x1p62f);
    m.abs(denominator, y);
    m.adds(denominator, denominator, 0x1p-62f);
    m.div(y, y, denominator);
}

template <class T, bool>
struct AsinProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 2;
    static constexpr bool kOwnResult = true;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.mul(t[0], x[0], x[0]);
        m.muls(t[0], t[0], -1.0f);
        m.adds(t[0], t[0], 1.0f);
        asin_of_square(m, t[1], t[0]);  // of sqrt(1 - x * x)
        m.muls(t[1], t[1], -1.0f);
        m.adds(t[1], t[1], kHalfPi);
        m.mul(t[0], x[0], x[0]);
        asin_of_square(m, y, t[0]);  // of |x|
        // The first one where |x| is at least sqrt(1/2): its weight is 0 or 1.
        m.muls(t[0], t[0], 0.70710678118654752f);
        m.adds(t[0], t[0], 0.5f);
        m.round(t[0], t[0], RoundMode::CAST_FLOOR);
        m.mins(t[0], t[0], 1.0f);
        m.mul(t[1], t[1], t[0]);
        m.muls(t[0], t[0], -1.0f);
        m.adds(t[0], t[0], 1.0f);
        m.mul(y, y, t[0]);
        m.add(y, y, t[1]);
        sign_of(m, t[0], x[0], t[1]);
        m.mul(y, y, t[0]);
    }
};

template <class T, bool reuse>
struct AcosProgram : AsinProgram<T, reuse> {
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        AsinProgram<T, reuse>::operator()(m, y, x, t);
        m.adds(y, y, -kHalfPi);
        m.muls(y, y, -1.0f);
    }
};

// d = the Taylor series of atan x up to the power 2 * level + 1.
template <class M, class R>
void atan_series(M& m, R& d, R& x, R& square, int level) {
    m.mul(square, x, x);
    m.muls(d, square, (level % 2 ? -1.0f : 1.0f) / float(2 * level + 1));
    for (int i = level - 1; i > 0; --i) {
        m.adds(d, d, (i % 2 ? -1.0f : 1.0f) / float(2 * i + 1));
        m.mul(d, d, square);
    }
    m.adds(d, d, 1.0f);
    m.mul(d, d, x);
}
// d = |(x - s) / (1 + s * x)|, so that atan x = atan s + atan d for x >= s.
template <class M, class R>
void rotate_by(M& m, R& d, R& x, R& t, float s) {
    m.muls(d, x, s);
    m.adds(d, d, 1.0f);
    m.adds(t, x, -s);
    m.div(d, t, d);
    m.abs(d, d);
}

template <class T, bool>
struct AtanProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 5;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        constexpr float kMost = 10000, kTanEighth = 0.4142135623730950f;  // tan(pi / 8)
        constexpr float kQuarter = kHalfPi / 2, kEighth = kHalfPi / 4;
        R &clipped = t[0], &a = t[1], &b = t[2], &c = t[3], &square = t[4];
        m.mins(clipped, x[0], kMost);
        m.maxs(clipped, clipped, -kMost);
        m.abs(a, clipped);
        atan_series(m, y, a, square, 4);
        rotate_by(m, b, a, c, kTanEighth);
        atan_series(m, c, b, square, 4);
        m.adds(c, c, kEighth);
        m.min(y, y, c);
        rotate_by(m, b, a, c, 1.0f);
        atan_series(m, c, b, square, 4);
        m.adds(c, c, kQuarter);
        m.min(y, y, c);
        rotate_by(m, a, b, c, kTanEighth);
        atan_series(m, c, a, square, 6);
        m.adds(c, c, kEighth);
        m.adds(c, c, kQuarter);
        m.min(y, y, c);
        sign_of(m, a, clipped, c);
        m.mul(y, y, a);
    }
};

// On Ascend950 Sin and Cos need no memory.
namespace tmp_sizes {
constexpr TmpArrays kSinHere = kIs950 ? kNone : kSin, kCosHere = kIs950 ? kNone : kCos;
}

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_FUNCTION(Sin, SinProgram, kSinHere)
ASCEND_SIM_FUNCTION(Cos, CosProgram, kCosHere)
ASCEND_SIM_FUNCTION(Tan, TanProgram, kTan)
ASCEND_SIM_FUNCTION(Asin, AsinProgram, kAsin)
ASCEND_SIM_FUNCTION(Acos, AcosProgram, kAcos)
ASCEND_SIM_FUNCTION(Atan, AtanProgram, kAtan)

}  // namespace AscendC
