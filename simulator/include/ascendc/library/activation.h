// Sigmoid, Silu, Swish, Gelu, FasterGelu, FasterGeluV2, SwiGLU, GeGLU, ReGlu.
//
// Rules: half and float; ReGlu also bfloat16. Gelu, FasterGelu and FasterGeluV2 also work in place.
// Meaning:
//   Sigmoid = 1 / (1 + exp(-x)), Swish = x / (1 + exp(-beta x)), Silu = Swish with beta 1
//   Gelu = x * min(1, exp(a)) / (1 + exp(-|a|)) with a = 1.5957691 (x + 0.044715 x^3)
//   FasterGelu = x / (1 + exp(-1.702 x))
//   FasterGeluV2 = x (sign(x) (-0.1444 (min(|0.7071 x|, 1.769) - 1.769)^2 + 0.5) + 0.5)
//   SwiGLU = src0 * Swish(src1), GeGLU = src0 * Gelu(src1), ReGlu = src0 * max(src1, 0)
// Sigmoid, Silu and Swish compute in the tensor's type. Gelu, FasterGelu and FasterGeluV2 do so without highPrecision.
// All other functions compute in float. highPerformance replaces the division by a product with the reciprocal.
// Pages: those of the functions; the order of steps is that of asc-devkit's impl/adv_api/detail/activation.
#pragma once

#include "ascendc/library/program.h"

namespace ascend_sim {

template <class T, bool>
struct SigmoidProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    static constexpr bool kWidens = false;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.muls(y, x[0], -1.0f);
        steps.exp(y, y);
        steps.adds(y, y, 1.0f);
        steps.fill(tmp[0], T(1.0f));
        steps.div(y, tmp[0], y);
    }
};

// y = x / (1 + exp(-beta * x))
template <class Steps, class Register>
void swish(Steps& steps, Register& y, Register& x, float minus_beta) {
    steps.muls(y, x, minus_beta);
    steps.exp(y, y);
    steps.adds(y, y, 1.0f);
    steps.div(y, x, y);
}
struct SwishProgram : ProgramTraits {
    static constexpr bool kWidens = false;
    float minus_beta;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register*) const {
        swish(steps, y, x[0], minus_beta);
    }
};
struct SwiGluProgram : ProgramTraits {
    static constexpr bool kHasResultRegister = true;
    float minus_beta;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register*) const {
        swish(steps, y, x[1], minus_beta);
        steps.mul(y, x[0], y);
    }
};
struct GeGluProgram : ProgramTraits {
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register*) const {
        steps.mul(y, x[1], x[1]);  // -a = -0.07135481627 (x^3 + x / 0.044715), with a as in Gelu
        steps.adds(y, y, 2.2363860002236e1f);
        steps.mul(y, y, x[1]);
        steps.muls(y, y, -0.0713548162726f);
        steps.exp(y, y);
        steps.adds(y, y, 1.0f);
        steps.div(y, x[1], y);
        steps.mul(y, x[0], y);
    }
};
struct ReGluProgram : ProgramTraits {
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register*) const {
        steps.maxs(y, x[1], 0.0f);
        steps.mul(y, x[0], y);
    }
};

template <bool precise>
struct GeluTraits : ProgramTraits {
    static constexpr bool kWidens = precise;
    static constexpr bool kAllowsInPlace = true;
};
// denominator = x / denominator
template <bool fast, class Steps, class Register>
void divide_by(Steps& steps, Register& denominator, const Register& x) {
    if constexpr (fast) {
        steps.reciprocal(denominator, denominator);
        steps.mul(denominator, x, denominator);
    } else {
        steps.div(denominator, x, denominator);
    }
}
template <bool precise, bool fast>
struct GeluProgram : GeluTraits<precise> {
    static constexpr uint32_t kTmpRegisters = 2;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.mul(tmp[0], x[0], x[0]);
        steps.mul(tmp[1], x[0], tmp[0]);
        steps.muls(tmp[0], tmp[1], 0.044715f);
        steps.add(tmp[1], x[0], tmp[0]);
        steps.muls(tmp[0], tmp[1], 1.5957691216057308f);
        steps.mins(tmp[1], tmp[0], 0.0f);  // exp of a number that is never positive does not overflow
        steps.exp(tmp[1], tmp[1]);
        steps.abs(tmp[0], tmp[0]);
        steps.muls(tmp[0], tmp[0], -1.0f);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(tmp[0], tmp[0], 1.0f);
        divide_by<fast>(steps, tmp[0], x[0]);
        steps.mul(y, tmp[0], tmp[1]);
    }
};
template <bool precise, bool fast>
struct FasterGeluProgram : GeluTraits<precise> {
    static constexpr uint32_t kTmpRegisters = 1;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.muls(tmp[0], x[0], -1.702f);
        steps.exp(tmp[0], tmp[0]);
        steps.adds(tmp[0], tmp[0], 1.0f);
        divide_by<fast>(steps, tmp[0], x[0]);
        steps.adds(y, tmp[0], 0.0f);
    }
};
template <bool precise, bool fast>
struct FasterGeluV2Program : GeluTraits<precise> {
    static constexpr uint32_t kTmpRegisters = 3;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.muls(tmp[0], x[0], 0.7071f);
        steps.abs(tmp[0], tmp[0]);
        steps.mins(tmp[0], tmp[0], 1.769f);
        steps.adds(tmp[0], tmp[0], -1.769f);
        steps.mul(tmp[0], tmp[0], tmp[0]);
        steps.muls(tmp[0], tmp[0], -0.1444f);
        steps.adds(tmp[0], tmp[0], 0.5f);
        steps.adds(tmp[1], x[0], 0.000000000001f);  // sign(x) = x / |x|; the addend avoids 0 / 0
        steps.abs(tmp[2], tmp[1]);
        divide_by<fast>(steps, tmp[2], tmp[1]);
        steps.mul(tmp[0], tmp[0], tmp[2]);
        steps.adds(tmp[0], tmp[0], 0.5f);
        steps.mul(y, x[0], tmp[0]);
    }
};

// The host's function returns 256 bytes for ReGlu of float, but the kernel needs none.
constexpr TmpArrays reglu_arrays(uint32_t type_bytes) { return {type_bytes == 4 ? 0u : 6u, 0, 0, false}; }

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_FUNCTION(Sigmoid, SigmoidProgram, kSigmoid)

template <class T, bool isReuseSource = false>
void Silu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, uint32_t dataSize, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Silu, T);
    ascend_sim::SwishProgram program;
    program.minus_beta = -1.0f;
    ascend_sim::unary_function(ascend_sim::Call("Silu", site), program, ascend_sim::tmp_sizes::kNone, dstLocal,
                               srcLocal, nullptr, dataSize);
}
template <class T, bool isReuseSource = false>
void Swish(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, uint32_t dataSize, const T scalarValue,
           ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Swish, T);
    ascend_sim::SwishProgram program;
    program.minus_beta = -float(scalarValue);
    ascend_sim::unary_function(ascend_sim::Call("Swish", site), program, ascend_sim::tmp_sizes::kNone, dstLocal,
                               srcLocal, nullptr, dataSize);
}

#define ASCEND_SIM_GELU(Name)                                                                                     \
    template <class T, bool highPrecision = false, bool highPerformance = false>                                  \
    void Name(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal,                                     \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t dataSize, ASCEND_SIM_SITE) {            \
        ASCEND_SIM_NEEDS(Name, T);                                                                                \
        ascend_sim::unary_function(ascend_sim::Call(#Name, site),                                                 \
                                   ascend_sim::Name##Program<highPrecision, highPerformance>(),                   \
                                   ascend_sim::tmp_sizes::kGelu, dstLocal, srcLocal, &sharedTmpBuffer, dataSize); \
    }                                                                                                             \
    template <class T, bool highPrecision = false, bool highPerformance = false>                                  \
    void Name(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dataSize,            \
              ASCEND_SIM_SITE) {                                                                                  \
        ASCEND_SIM_NEEDS(Name, T);                                                                                \
        ascend_sim::unary_function(ascend_sim::Call(#Name, site),                                                 \
                                   ascend_sim::Name##Program<highPrecision, highPerformance>(),                   \
                                   ascend_sim::tmp_sizes::kGelu, dstLocal, srcLocal, nullptr, dataSize);          \
    }
ASCEND_SIM_GELU(Gelu)
ASCEND_SIM_GELU(FasterGelu)
ASCEND_SIM_GELU(FasterGeluV2)

ASCEND_SIM_BINARY_FUNCTION(GeGLU, GeGluProgram, tmp_sizes::kGeGLU)
ASCEND_SIM_BINARY_FUNCTION(ReGlu, ReGluProgram, reglu_arrays(sizeof(T)))

namespace sim_detail {
template <class T>
void SwiGluCall(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, float beta,
                const LocalTensor<uint8_t>* tmp, uint32_t count, ascend_sim::Site site) {
    ASCEND_SIM_NEEDS(SwiGLU, T);
    ascend_sim::SwiGluProgram program;
    program.minus_beta = -beta;
    ascend_sim::binary_function(ascend_sim::Call("SwiGLU", site), program, ascend_sim::tmp_sizes::kSwiGLU, dst, src0,
                                src1, tmp, count);
}
}  // namespace sim_detail

template <class T, bool isReuseSource = false>
void SwiGLU(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1,
            const float& scalarValue, const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount,
            ASCEND_SIM_SITE) {
    sim_detail::SwiGluCall(dstTensor, srcTensor0, srcTensor1, scalarValue, &sharedTmpBuffer, calCount, site);
}
template <class T, bool isReuseSource = false>
void SwiGLU(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1,
            const float& scalarValue, const LocalTensor<uint8_t>& sharedTmpBuffer, ASCEND_SIM_SITE) {
    sim_detail::SwiGluCall(dstTensor, srcTensor0, srcTensor1, scalarValue, &sharedTmpBuffer, srcTensor0.GetSize(),
                           site);
}
template <class T, bool isReuseSource = false>
void SwiGLU(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1,
            const float& scalarValue, const uint32_t calCount, ASCEND_SIM_SITE) {
    sim_detail::SwiGluCall(dstTensor, srcTensor0, srcTensor1, scalarValue, nullptr, calCount, site);
}
template <class T, bool isReuseSource = false>
void SwiGLU(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1,
            const float& scalarValue, ASCEND_SIM_SITE) {
    sim_detail::SwiGluCall(dstTensor, srcTensor0, srcTensor1, scalarValue, nullptr, srcTensor0.GetSize(), site);
}

}  // namespace AscendC
