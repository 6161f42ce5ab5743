// Tanh, Sinh, Cosh, Asinh, Acosh, Atanh, Erf, Erfc.
//
// Rules: half and float. Ranges of x: Acosh 1 .. 65504, Asinh -65504 .. 65504, Atanh 0.001 .. 0.99 and -0.99 .. -0.001.
// Meaning: computed in float.
//   Sinh = exp(x - ln 2) - exp(-x - ln 2), Cosh = exp(x - ln 2) + exp(-x - ln 2)
//   Asinh = sign(x) ln(|x| + sqrt(x^2 + 1)), Acosh = ln(x + sqrt(x^2 - 1)), Atanh = ln((1 + x) / (1 - x)) / 2
//   Tanh = (exp(2 x) - 1) / (exp(2 x) + 1); Erf and Erfc are quotients of polynomials
// |x| is limited: to 8.8 in Tanh, 3.92 in Erf and 10 in Erfc.
// Pages: Tanh, Sinh, Cosh, Asinh, Acosh, Atanh, Erf, Erfc; the coefficients are those of asc-devkit's
// impl/adv_api/detail/math.
#pragma once

#include "ascendc/library/trigonometric.h"

namespace ascend_sim {

constexpr float kLn2 = 0.69314718055994530941723212145818f;

template <class T, bool>
struct TanhProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.mins(tmp[0], x[0], 8.8f);
        steps.maxs(tmp[0], tmp[0], -8.8f);
        steps.muls(tmp[0], tmp[0], 2.0f);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(y, tmp[0], -1.0f);
        steps.adds(tmp[0], tmp[0], 1.0f);
        steps.div(y, y, tmp[0]);
    }
};

template <class T, bool>
struct SinhProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.muls(tmp[0], x[0], -1.0f);
        steps.adds(tmp[0], tmp[0], -kLn2);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(y, x[0], -kLn2);
        steps.exp(y, y);
        steps.sub(y, y, tmp[0]);
    }
};

template <class T, bool>
struct CoshProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 2;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.adds(tmp[1], x[0], -kLn2);
        steps.exp(tmp[0], tmp[1]);
        steps.fill(y, 0.25f);
        steps.div(tmp[1], y, tmp[0]);
        steps.add(y, tmp[0], tmp[1]);
    }
};

template <class T, bool>
struct AsinhProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 3;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.abs(tmp[0], x[0]);
        steps.mul(tmp[1], tmp[0], tmp[0]);
        steps.adds(tmp[1], tmp[1], 1.0f);
        steps.sqrt(tmp[1], tmp[1]);
        steps.add(tmp[1], tmp[1], tmp[0]);
        steps.ln(tmp[1], tmp[1]);
        sign_of(steps, tmp[0], x[0], tmp[2]);
        steps.mul(y, tmp[1], tmp[0]);
    }
};

template <class T, bool>
struct AcoshProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.mul(tmp[0], x[0], x[0]);
        steps.adds(tmp[0], tmp[0], -1.0f);
        steps.sqrt(tmp[0], tmp[0]);
        steps.add(tmp[0], tmp[0], x[0]);
        steps.ln(y, tmp[0]);
    }
};

template <class T, bool>
struct AtanhProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.adds(tmp[0], x[0], 1.0f);
        steps.muls(y, x[0], -1.0f);
        steps.adds(y, y, 1.0f);
        steps.div(y, tmp[0], y);
        steps.ln(y, y);
        steps.muls(y, y, 0.5f);
    }
};

template <class T, bool>
struct ErfProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 3;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.mins(tmp[0], x[0], 3.92f);
        steps.maxs(y, tmp[0], -3.92f);
        steps.mul(tmp[0], y, y);
        polynomial(steps, tmp[1], tmp[0],
                   {0.053443748819f, 0.75517016694e1f, 0.10162808918e3f, 0.13938061484e4f, 0.50637915060e4f,
                    0.29639384698e5f});
        steps.mul(tmp[1], y, tmp[1]);
        steps.adds(tmp[2], tmp[0], 0.31212858877e2f);
        for (float coefficient : {0.39856963806e3f, 0.30231248150e4f, 0.13243365831e5f, 0.26267224157e5f}) {
            steps.mul(tmp[2], tmp[2], tmp[0]);
            steps.adds(tmp[2], tmp[2], coefficient);
        }
        steps.div(y, tmp[1], tmp[2]);
    }
};

// erfc |x| = exp(-x^2) * p(|x|) / q(|x|); erfc x = 1 - s + s * erfc |x|, where s is the sign of x, held in y.
template <class T, bool>
struct ErfcProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 5;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        constexpr float kTiny = 0x1p-62f;  // avoids 0 / 0 in x / |x|
        Register &x_abs = tmp[0], &p = tmp[1], &q = tmp[2];
        steps.mins(y, x[0], 10.0f);
        steps.maxs(y, y, -10.0f);
        steps.abs(x_abs, y);
        steps.adds(x_abs, x_abs, kTiny);
        steps.div(y, y, x_abs);
        polynomial(steps, p, x_abs,
                   {0.1735313680e-7f, -0.9856738394e-6f, 0.2517003236e-4f, -0.3848015171e-3f, 0.5681528564e0f,
                    0.5245623129e1f, 0.2107740710e2f, 0.4212761755e2f, 0.4380524149e2f});
        steps.adds(q, x_abs, 0.9349684299e1f);
        for (float coefficient : {0.3756930664e2f, 0.8058268949e2f, 0.9155653738e2f, 0.4380524152e2f}) {
            steps.mul(q, q, x_abs);
            steps.adds(q, q, coefficient);
        }
        steps.div(p, p, q);
        steps.mul(x_abs, x_abs, x_abs);
        steps.muls(x_abs, x_abs, -1.0f);
        steps.exp(x_abs, x_abs);
        steps.mul(p, x_abs, p);
        steps.muls(q, y, -1.0f);
        steps.adds(q, q, 1.0f);
        steps.mul(p, p, y);
        steps.add(y, p, q);
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
