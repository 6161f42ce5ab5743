// Tanh, Sinh, Cosh, Asinh, Acosh, Atanh, Erf, Erfc.
//
// Rules: half and float. Acosh takes 1 .. 65504, Asinh -65504 .. 65504, Atanh 0.001 .. 0.99 and the negatives.
// Meaning: in float. Sinh and Cosh are exp(x - ln 2) -/+ exp(-x - ln 2); Asinh, Acosh and Atanh are logarithms; Erf and
// Erfc are quotients of polynomials. Arguments are limited: Tanh to 8.8, Erf to 3.92, Erfc to 10.
// Pages: Tanh, Sinh, Cosh, Asinh, Acosh, Atanh, Erf, Erfc; the coefficients are those of asc-devkit's
// impl/adv_api/detail/math.
#pragma once

#include "ascendc/library/trigonometric.h"

namespace ascend_sim {

constexpr float kLn2 = 0.69314718055994530941723212145818f;

template <class T, bool>
struct TanhProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 1;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.mins(t[0], x[0], 8.8f);
        m.maxs(t[0], t[0], -8.8f);
        m.muls(t[0], t[0], 2.0f);
        m.exp(t[0], t[0]);
        m.adds(y, t[0], -1.0f);
        m.adds(t[0], t[0], 1.0f);
        m.div(y, y, t[0]);
    }
};

template <class T, bool>
struct SinhProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 1;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.muls(t[0], x[0], -1.0f);
        m.adds(t[0], t[0], -kLn2);
        m.exp(t[0], t[0]);
        m.adds(y, x[0], -kLn2);
        m.exp(y, y);
        m.sub(y, y, t[0]);
    }
};

template <class T, bool>
struct CoshProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 2;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.adds(t[1], x[0], -kLn2);
        m.exp(t[0], t[1]);
        m.fill(y, 0.25f);
        m.div(t[1], y, t[0]);
        m.add(y, t[0], t[1]);
    }
};

template <class T, bool>
struct AsinhProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 3;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.abs(t[0], x[0]);
        m.mul(t[1], t[0], t[0]);
        m.adds(t[1], t[1], 1.0f);
        m.sqrt(t[1], t[1]);
        m.add(t[1], t[1], t[0]);
        m.ln(t[1], t[1]);
        sign_of(m, t[0], x[0], t[2]);
        m.mul(y, t[1], t[0]);
    }
};

template <class T, bool>
struct AcoshProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 1;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.mul(t[0], x[0], x[0]);
        m.adds(t[0], t[0], -1.0f);
        m.sqrt(t[0], t[0]);
        m.add(t[0], t[0], x[0]);
        m.ln(y, t[0]);
    }
};

template <class T, bool>
struct AtanhProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 1;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.adds(t[0], x[0], 1.0f);
        m.muls(y, x[0], -1.0f);
        m.adds(y, y, 1.0f);
        m.div(y, t[0], y);
        m.ln(y, y);
        m.muls(y, y, 0.5f);
    }
};

template <class T, bool>
struct ErfProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 3;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        m.mins(t[0], x[0], 3.92f);
        m.maxs(y, t[0], -3.92f);
        m.mul(t[0], y, y);
        polynomial(m, t[1], t[0],
                   {0.053443748819f, 0.75517016694e1f, 0.10162808918e3f, 0.13938061484e4f, 0.50637915060e4f,
                    0.29639384698e5f});
        m.mul(t[1], y, t[1]);
        m.adds(t[2], t[0], 0.31212858877e2f);
        for (float c : {0.39856963806e3f, 0.30231248150e4f, 0.13243365831e5f, 0.26267224157e5f}) {
            m.mul(t[2], t[2], t[0]);
            m.adds(t[2], t[2], c);
        }
        m.div(y, t[1], t[2]);
    }
};

// erfc |x| = exp(-x^2) * p(|x|) / q(|x|); erfc x = 1 - s + s * erfc |x| with the sign s of x.
template <class T, bool>
struct ErfcProgram : ProgramTraits {
    static constexpr uint32_t kTemps = 5;
    template <class M, class R>
    void operator()(M& m, R& y, R (&x)[1], R* t) const {
        constexpr float kTiny = 2.168404344971009e-19f;
        R &a = t[0], &p = t[1], &q = t[2];
        m.mins(y, x[0], 10.0f);
        m.maxs(y, y, -10.0f);
        m.abs(a, y);
        m.adds(a, a, kTiny);
        m.div(y, y, a);
        polynomial(m, p, a,
                   {0.1735313680e-7f, -0.9856738394e-6f, 0.2517003236e-4f, -0.3848015171e-3f, 0.5681528564e0f,
                    0.5245623129e1f, 0.2107740710e2f, 0.4212761755e2f, 0.4380524149e2f});
        m.adds(q, a, 0.9349684299e1f);
        for (float c : {0.3756930664e2f, 0.8058268949e2f, 0.9155653738e2f, 0.4380524152e2f}) {
            m.mul(q, q, a);
            m.adds(q, q, c);
        }
        m.div(p, p, q);
        m.mul(a, a, a);
        m.muls(a, a, -1.0f);
        m.exp(a, a);
        m.mul(p, a, p);
        m.muls(q, y, -1.0f);
        m.adds(q, q, 1.0f);
        m.mul(p, p, y);
        m.add(y, p, q);
    }
};

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_FUNCTION(Tanh, TanhProgram, kTanh)
ASCEND_SIM_FUNCTION(Sinh, SinhProgram, kSinh)
ASCEND_SIM_FUNCTION(Cosh, CoshProgram, kCosh)
ASCEND_SIM_FUNCTION(Asinh, AsinhProgram, kAsinh)
ASCEND_SIM_FUNCTION(Acosh, AcoshProgram, kAcosh)
ASCEND_SIM_FUNCTION(Atanh, AtanhProgram, kAtanh)
ASCEND_SIM_FUNCTION(Erf, ErfProgram, kErf)
ASCEND_SIM_FUNCTION(Erfc, ErfcProgram, kErfc)

}  // namespace AscendC
