// Exp with taylorExpandLevel, Log, Log2, Log10, Power.
//
// Rules: half and float; Exp not on Ascend310P. Base and exponent of Power: two tensors, or a tensor and a scalar.
// Meaning: Exp is exp(floor(x)) times a Taylor polynomial of the fraction of x; with level 0 it is the instruction Exp.
// Log and Log10 compute in the tensor's type, Log2 and Power in float. Power is exp(exponent * ln|base|), negative for
// a negative base with an odd exponent. It is 1 for exponent 0 or base 1, and NaN for a negative finite base with a
// fractional exponent.
// Pages: Exp, Log, Log2, Log10, Power; GetPowerMaxMinTmpSize.
#pragma once

#include <limits>

#include "ascendc/library/program.h"

namespace ascend_sim {

template <class T, bool reuse>
struct ExpProgram : ProgramTraits {
    static constexpr bool kCopiesSource = std::is_same_v<T, float> && !reuse;  // because the steps overwrite it
    static constexpr uint32_t kTmpRegisters = kCopiesSource ? 3 : 2;
    static constexpr bool kHasResultRegister = true;
    static constexpr bool kReusesSources = reuse;
    uint32_t level;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        Register& fraction = kCopiesSource ? tmp[2] : x[0];
        if constexpr (kCopiesSource) steps.adds(fraction, x[0], 0.0f);
        steps.round(tmp[0], fraction, RoundMode::CAST_FLOOR);
        steps.sub(fraction, fraction, tmp[0]);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(tmp[1], fraction, 0.0f);  // fraction^i / i!
        steps.adds(y, fraction, 1.0f);
        for (uint32_t i = 2; i <= level; ++i) {
            steps.mul(tmp[1], fraction, tmp[1]);
            steps.muls(tmp[1], tmp[1], 1.0f / float(i));
            steps.add(y, y, tmp[1]);
        }
        steps.mul(y, y, tmp[0]);
    }
};

// factor * ln(x): a logarithm to the base exp(1 / factor).
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
void raise_to_power(Steps& steps, Register& y, Register& base, Register& exponent, Register* tmp) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity(), kEven = 0x1p25f;  // larger floats are even
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    steps.abs(y, base);
    steps.ln(y, y);
    steps.mul(y, exponent, y);
    steps.exp(y, y);
    // The factor of negative bases: 1 for even, -1 for odd and NaN for fractional exponents.
    steps.mins(tmp[0], exponent, kEven);
    steps.maxs(tmp[0], tmp[0], -kEven);
    steps.round(tmp[1], tmp[0], RoundMode::CAST_RINT);
    steps.sub(tmp[0], tmp[0], tmp[1]);
    steps.muls(tmp[1], tmp[1], 0.5f);
    steps.round(tmp[2], tmp[1], RoundMode::CAST_FLOOR);
    steps.sub(tmp[1], tmp[1], tmp[2]);
    steps.muls(tmp[1], tmp[1], -4.0f);
    steps.adds(tmp[1], tmp[1], 1.0f);
    steps.fill(tmp[3], 1.0f);
    steps.compare(tmp[2], base, -kInfinity, CMPMODE::EQ);
    steps.select(tmp[3], tmp[2], tmp[3], kNan);
    steps.compare(tmp[2], tmp[0], 0.0f, CMPMODE::EQ);
    steps.select(tmp[1], tmp[2], tmp[1], tmp[3]);
    steps.compare(tmp[2], base, 0.0f, CMPMODE::LT);
    steps.select(tmp[1], tmp[2], tmp[1], 1.0f);
    steps.mul(y, y, tmp[1]);
    // The result is 1 for base 1, exponent 0, and base -1 with an infinite exponent.
    steps.abs(tmp[0], exponent);
    steps.compare(tmp[2], tmp[0], kInfinity, CMPMODE::NE);
    steps.select(tmp[1], tmp[2], y, 1.0f);
    steps.compare(tmp[2], base, -1.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, tmp[1]);
    steps.compare(tmp[2], base, 1.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, 1.0f);
    steps.compare(tmp[2], tmp[0], 0.0f, CMPMODE::NE);
    steps.select(y, tmp[2], y, 1.0f);
}

struct PowerTensorsProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 4;
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register* tmp) const {
        raise_to_power(steps, y, x[0], x[1], tmp);
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
            raise_to_power(steps, y, x[0], tmp[4], tmp);
        else
            raise_to_power(steps, y, tmp[4], x[0], tmp);
    }
};

template <class Program, class T, size_t N>
void power_function(const Call& call, const Program& program, const AscendC::LocalTensor<T>& dst,
                    const std::array<AscendC::LocalTensor<T>, N>& src, const AscendC::LocalTensor<uint8_t>* tmp,
                    uint32_t count) {
    static constexpr const char* kNames[2] = {"src0Tensor", "src1Tensor"};
    const TmpSizes sizes = power_sizes(count, N == 2, sizeof(T), kIs310p, kIs950);
    const AscendC::LocalTensor<uint8_t> memory = call.temporary_memory(tmp, sizes);
    const Range dst_bytes = call.check_operand("dstTensor", dst, count), tmp_bytes = range_of(memory);
    call.check_apart("sharedTmpBuffer", tmp_bytes, "dstTensor", dst_bytes);
    const char* names[N];
    for (size_t k = 0; k < N; ++k) {
        names[k] = kNames[k];
        const Range src_bytes = call.check_operand(names[k], src[k], count);
        call.check_apart("dstTensor", dst_bytes, names[k], src_bytes);
        call.check_apart("sharedTmpBuffer", tmp_bytes, names[k], src_bytes);
    }
    if constexpr (kIs950)
        run_in_registers(program, dst, src, names, count, call.site());
    else
        run_in_ub(program, dst, src, memory[kPowerConstantBytes], count, call);
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
void PowerCall(const LocalTensor<T>& dst, const LocalTensor<T>& base, const LocalTensor<T>& exponent,
               const LocalTensor<uint8_t>* tmp, uint32_t count, ascend_sim::Site site) {
    ascend_sim::power_function(ascend_sim::Call("Power", site), ascend_sim::PowerTensorsProgram(), dst,
                               std::array<LocalTensor<T>, 2>{base, exponent}, tmp, count);
}
template <class T>
void PowerCall(const LocalTensor<T>& dst, const LocalTensor<T>& base, const T& exponent,
               const LocalTensor<uint8_t>* tmp, uint32_t count, ascend_sim::Site site) {
    ascend_sim::PowerScalarProgram<true> program;
    program.scalar = float(exponent);
    ascend_sim::power_function(ascend_sim::Call("Power", site), program, dst, std::array<LocalTensor<T>, 1>{base}, tmp,
                               count);
}
template <class T>
void PowerCall(const LocalTensor<T>& dst, const T& base, const LocalTensor<T>& exponent,
               const LocalTensor<uint8_t>* tmp, uint32_t count, ascend_sim::Site site) {
    ascend_sim::PowerScalarProgram<false> program;
    program.scalar = float(base);
    ascend_sim::power_function(ascend_sim::Call("Power", site), program, dst, std::array<LocalTensor<T>, 1>{exponent},
                               tmp, count);
}
}  // namespace sim_detail

// sized: the tensor that gives the number of elements if calCount is absent.
#define ASCEND_SIM_POWER(Base, Exponent, sized)                                                             \
    template <class T, bool isReuseSource = false, const auto & ... config>                                 \
    void Power(const LocalTensor<T>& dstTensor, const Base& src0, const Exponent& src1,                     \
               const LocalTensor<uint8_t>& sharedTmpBuffer, uint32_t calCount, ASCEND_SIM_SITE) {           \
        ASCEND_SIM_NEEDS(Power, T);                                                                         \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, "Power: config is for Ascend950 only"); \
        sim_detail::PowerCall<T>(dstTensor, src0, src1, &sharedTmpBuffer, calCount, site);                  \
    }                                                                                                       \
    template <class T, bool isReuseSource = false, const auto & ... config>                                 \
    void Power(const LocalTensor<T>& dstTensor, const Base& src0, const Exponent& src1,                     \
               const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {                              \
        Power<T, isReuseSource, config...>(dstTensor, src0, src1, sharedTmpBuffer, sized.GetSize(), site);  \
    }                                                                                                       \
    template <class T, bool isReuseSource = false, const auto & ... config>                                 \
    void Power(const LocalTensor<T>& dstTensor, const Base& src0, const Exponent& src1, uint32_t calCount,  \
               ASCEND_SIM_SITE) {                                                                           \
        ASCEND_SIM_NEEDS(Power, T);                                                                         \
        static_assert(sizeof...(config) == 0 || ascend_sim::kIs950, "Power: config is for Ascend950 only"); \
        sim_detail::PowerCall<T>(dstTensor, src0, src1, nullptr, calCount, site);                           \
    }                                                                                                       \
    template <class T, bool isReuseSource = false, const auto & ... config>                                 \
    void Power(const LocalTensor<T>& dstTensor, const Base& src0, const Exponent& src1, ASCEND_SIM_SITE) {  \
        Power<T, isReuseSource, config...>(dstTensor, src0, src1, sized.GetSize(), site);                   \
    }
ASCEND_SIM_POWER(LocalTensor<T>, LocalTensor<T>, src0)
ASCEND_SIM_POWER(LocalTensor<T>, T, src0)
ASCEND_SIM_POWER(T, LocalTensor<T>, src1)

}  // namespace AscendC
