// Exp with taylorExpandLevel, Log, Log2, Log10, Power.
//
// Rules: half and float; Exp not on Ascend310P; Power also of a tensor and a scalar, or a scalar and a tensor.
// Meaning: Exp is exp(floor(x)) times a Taylor polynomial of the fraction (level 0: the instruction). Log and Log10
// compute in the tensor's type, Log2 and Power in float. Power is exp(y * ln|x|) with the sign of an odd y, 1 for
// y = 0 or x = 1, and NaN for a negative finite x with a fractional y.
// Pages: Exp, Log, Log2, Log10, Power; GetPowerMaxMinTmpSize.
#pragma once

#include <limits>

#include "ascendc/library/program.h"

namespace ascend_sim {

template <class T, bool reuse>
struct ExpProgram : ProgramTraits {
    static constexpr bool kOverwrites = std::is_same_v<T, float> && !reuse;  // needs a copy of the source
    static constexpr uint32_t kTmpRegisters = kOverwrites ? 3 : 2;
    static constexpr bool kHasResultRegister = true;
    static constexpr bool kReusesSources = reuse;
    uint32_t level;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        Register& fraction = kOverwrites ? tmp[2] : x[0];
        if constexpr (kOverwrites) steps.adds(fraction, x[0], 0.0f);
        steps.round(tmp[0], fraction, RoundMode::CAST_FLOOR);
        steps.sub(fraction, fraction, tmp[0]);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(tmp[1], fraction, 0.0f);  // the current power over its factorial
        steps.adds(y, fraction, 1.0f);
        for (uint32_t i = 2; i <= level; ++i) {
            steps.mul(tmp[1], fraction, tmp[1]);
            steps.muls(tmp[1], tmp[1], 1.0f / float(i));
            steps.add(y, y, tmp[1]);
        }
        steps.mul(y, y, tmp[0]);
    }
};

// The logarithm to a base whose natural logarithm has the inverse `factor`.
template <class T, bool widens>
struct LogProgram : ProgramTraits {
    static constexpr bool kWidens = widens;
    float factor;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register*) const {
        steps.ln(y, x[0]);
        if (factor != 1.0f) steps.muls(y, y, factor);
    }
};

template <class Steps, class Register>
void power(Steps& steps, Register& y, Register& x, Register& e, Register* tmp) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity(), kEven = 0x1p25f;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    steps.abs(y, x);
    steps.ln(y, y);
    steps.mul(y, e, y);
    steps.exp(y, y);
    // The factor of negative bases: 1 or -1 by the exponent's parity, NaN for a fraction. Large exponents are even.
    steps.mins(tmp[0], e, kEven);
    steps.maxs(tmp[0], tmp[0], -kEven);
    steps.round(tmp[1], tmp[0], RoundMode::CAST_RINT);
    steps.sub(tmp[0], tmp[0], tmp[1]);
    steps.muls(tmp[1], tmp[1], 0.5f);
    steps.round(tmp[2], tmp[1], RoundMode::CAST_FLOOR);
    steps.sub(tmp[1], tmp[1], tmp[2]);
    steps.muls(tmp[1], tmp[1], -4.0f);
    steps.adds(tmp[1], tmp[1], 1.0f);
    steps.fill(tmp[3], 1.0f);
    steps.compare(tmp[2], x, -kInfinity, CMPMODE::EQ);
    steps.select(tmp[3], tmp[2], tmp[3], kNan);
    steps.compare(tmp[2], tmp[0], 0.0f, CMPMODE::EQ);
    steps.select(tmp[1], tmp[2], tmp[1], tmp[3]);
    steps.compare(tmp[2], x, 0.0f, CMPMODE::LT);
    steps.select(tmp[1], tmp[2], tmp[1], 1.0f);
    steps.mul(y, y, tmp[1]);
    // 1 for x = 1, y = 0, and x = -1 with an infinite exponent.
    steps.abs(tmp[0], e);
    steps.compare(tmp[2], tmp[0], kInfinity, CMPMODE::NE);
    steps.select(tmp[1], tmp[2], y, 1.0f);
    steps.compare(tmp[2], x, -1.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, tmp[1]);
    steps.compare(tmp[2], x, 1.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, 1.0f);
    steps.compare(tmp[2], tmp[0], 0.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, 1.0f);
}

struct PowerTensorsProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 4;
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register* tmp) const {
        power(steps, y, x[0], x[1], tmp);
    }
};
template <bool kScalarExponent>
struct PowerScalarProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 5;
    static constexpr bool kHasResultRegister = true;
    float scalar;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.fill(tmp[4], scalar);
        if constexpr (kScalarExponent)
            power(steps, y, x[0], tmp[4], tmp);
        else
            power(steps, y, tmp[4], x[0], tmp);
    }
};

template <class P, class T, size_t N>
void power_function(const Call& call, const P& program, const AscendC::LocalTensor<T>& dst,
                    const std::array<AscendC::LocalTensor<T>, N>& src, const AscendC::LocalTensor<uint8_t>* tmp,
                    uint32_t count) {
    static constexpr const char* kNames[2] = {"src0Tensor", "src1Tensor"};
    const TmpSizes sizes = power_sizes(count, N == 2, sizeof(T), kIs310p, kIs950);
    const AscendC::LocalTensor<uint8_t> memory = call.temporary_memory(tmp, sizes);
    const Range to = call.check_operand("dstTensor", dst, count), used = range_of(memory);
    call.check_apart("sharedTmpBuffer", used, "dstTensor", to);
    const char* names[N];
    for (size_t k = 0; k < N; ++k) {
        names[k] = kNames[k];
        const Range from = call.check_operand(names[k], src[k], count);
        call.check_apart("dstTensor", to, names[k], from);
        call.check_apart("sharedTmpBuffer", used, names[k], from);
    }
    if constexpr (kIs950)
        run_in_registers(program, dst, src, names, count, call.site());
    else
        run_in_ub(program, dst, src, memory[kPowerConstants], count, call);
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, uint8_t taylorExpandLevel, bool isReuseSource = false>
void Exp(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<uint8_t>& sharedTmpBuffer,
         const uint32_t calCount, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(TaylorExp, T);
    ascend_sim::ExpProgram<T, isReuseSource> program;
    program.level = taylorExpandLevel;
    const ascend_sim::Call call("Exp", site);
    if (taylorExpandLevel == 0) return Exp(dstLocal, srcLocal, int32_t(calCount), site);
    ascend_sim::unary_function(call, program, ascend_sim::tmp_sizes::kExp, dstLocal, srcLocal, &sharedTmpBuffer,
                               calCount);
}
template <class T, uint8_t taylorExpandLevel, bool isReuseSource = false>
void Exp(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t calCount, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(TaylorExp, T);
    ascend_sim::ExpProgram<T, isReuseSource> program;
    program.level = taylorExpandLevel;
    const ascend_sim::Call call("Exp", site);
    if (taylorExpandLevel == 0) return Exp(dstLocal, srcLocal, int32_t(calCount), site);
    ascend_sim::unary_function(call, program, ascend_sim::tmp_sizes::kExp, dstLocal, srcLocal, nullptr, calCount);
}

#define ASCEND_SIM_LOG(Name, widens, factor_)                                                                         \
    template <class T, bool isReuseSource = false>                                                                    \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const uint32_t calCount,              \
              ASCEND_SIM_SITE) {                                                                                      \
        ASCEND_SIM_NEEDS(Name, T);                                                                                    \
        ascend_sim::LogProgram<T, widens> program;                                                                    \
        program.factor = factor_;                                                                                     \
        ascend_sim::unary_function(ascend_sim::Call(#Name, site), program, ascend_sim::tmp_sizes::k##Name, dstTensor, \
                                   srcTensor, nullptr, calCount);                                                     \
    }                                                                                                                 \
    template <class T, bool isReuseSource = false>                                                                    \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, ASCEND_SIM_SITE) {                    \
        Name<T, isReuseSource>(dstTensor, srcTensor, srcTensor.GetSize(), site);                                      \
    }
ASCEND_SIM_LOG(Log, false, 1.0f)
ASCEND_SIM_LOG(Log10, false, 0.43429448190325176f)
ASCEND_SIM_LOG(Log2, true, 1.4426950408889634f)
template <class T, bool isReuseSource = false>
void Log2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
          const uint32_t calCount, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Log2, T);
    ascend_sim::LogProgram<T, true> program;
    program.factor = 1.4426950408889634f;
    ascend_sim::unary_function(ascend_sim::Call("Log2", site), program, ascend_sim::tmp_sizes::kLog2, dstTensor,
                               srcTensor, &sharedTmpBuffer, calCount);
}
template <class T, bool isReuseSource = false>
void Log2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
          ASCEND_SIM_SITE) {
    Log2<T, isReuseSource>(dstTensor, srcTensor, sharedTmpBuffer, srcTensor.GetSize(), site);
}

namespace sim_detail {
template <class T>
void PowerCall(const LocalTensor<T>& dst, const LocalTensor<T>& x, const LocalTensor<T>& e,
               const LocalTensor<uint8_t>* tmp, uint32_t count, ascend_sim::Site site) {
    ascend_sim::power_function(ascend_sim::Call("Power", site), ascend_sim::PowerTensorsProgram(), dst,
                               std::array<LocalTensor<T>, 2>{x, e}, tmp, count);
}
template <class T>
void PowerCall(const LocalTensor<T>& dst, const LocalTensor<T>& x, const T& e, const LocalTensor<uint8_t>* tmp,
               uint32_t count, ascend_sim::Site site) {
    ascend_sim::PowerScalarProgram<true> program;
    program.scalar = float(e);
    ascend_sim::power_function(ascend_sim::Call("Power", site), program, dst, std::array<LocalTensor<T>, 1>{x}, tmp,
                               count);
}
template <class T>
void PowerCall(const LocalTensor<T>& dst, const T& x, const LocalTensor<T>& e, const LocalTensor<uint8_t>* tmp,
               uint32_t count, ascend_sim::Site site) {
    ascend_sim::PowerScalarProgram<false> program;
    program.scalar = float(x);
    ascend_sim::power_function(ascend_sim::Call("Power", site), program, dst, std::array<LocalTensor<T>, 1>{e}, tmp,
                               count);
}
}  // namespace sim_detail

// A and B: the types of base and exponent; whole: the tensor whose size is the number of elements.
#define ASCEND_SIM_POWER(A, B, whole)                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Power(const LocalTensor<T>& dstTensor, const A& src0, const B& src1,                                       \
               const LocalTensor<uint8_t>& sharedTmpBuffer, uint32_t calCount, ASCEND_SIM_SITE) {                   \
        ASCEND_SIM_NEEDS(Power, T);                                                                                 \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, "Power: config is for Ascend950 only");         \
        sim_detail::PowerCall<T>(dstTensor, src0, src1, &sharedTmpBuffer, calCount, site);                          \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Power(const LocalTensor<T>& dstTensor, const A& src0, const B& src1,                                       \
               const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {                                      \
        Power<T, isReuseSource, config...>(dstTensor, src0, src1, sharedTmpBuffer, whole.GetSize(), site);          \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Power(const LocalTensor<T>& dstTensor, const A& src0, const B& src1, uint32_t calCount, ASCEND_SIM_SITE) { \
        ASCEND_SIM_NEEDS(Power, T);                                                                                 \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, "Power: config is for Ascend950 only");         \
        sim_detail::PowerCall<T>(dstTensor, src0, src1, nullptr, calCount, site);                                   \
    }                                                                                                               \
    template <class T, bool isReuseSource = false, const auto & ... config>                                         \
    void Power(const LocalTensor<T>& dstTensor, const A& src0, const B& src1, ASCEND_SIM_SITE) {                    \
        Power<T, isReuseSource, config...>(dstTensor, src0, src1, whole.GetSize(), site);                           \
    }
ASCEND_SIM_POWER(LocalTensor<T>, LocalTensor<T>, src0)
ASCEND_SIM_POWER(LocalTensor<T>, T, src0)
ASCEND_SIM_POWER(T, LocalTensor<T>, src1)

}  // namespace AscendC
