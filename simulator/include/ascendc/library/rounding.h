// Ceil, Floor, Round, Trunc, Frac, Fmod, Sign, ClampMax, ClampMin, Xor.
//
// Rules: half and float (Xor: int16, uint16). Trunc and Round also work in place. Ascend310P rounds through int32, so
// the inputs must fit int32 there.
// Meaning: Round rounds ties to even. Frac = x - Trunc(x). Fmod = x - Trunc(x / y) * y. Functions of half compute in
// float.
// Pages: Ceil, Floor, Round, Trunc, Frac, Fmod, Sign, ClampMax, ClampMin, Xor.
#pragma once

#include "ascendc/library/program.h"

namespace ascend_sim {

template <RoundMode mode, bool kMayOverlap = false>
struct RoundProgram {
    template <class T, bool>
    struct ForType : ProgramTraits {
        static constexpr bool kAllowsInPlace = kMayOverlap;
        template <class Steps, class Register>
        void operator()(Steps& steps, Register& y, Register (&x)[1], Register*) const {
            steps.round(y, x[0], mode);
        }
    };
};
template <class T, bool reuse>
using CeilProgram = RoundProgram<RoundMode::CAST_CEIL>::ForType<T, reuse>;
template <class T, bool reuse>
using FloorProgram = RoundProgram<RoundMode::CAST_FLOOR>::ForType<T, reuse>;
template <class T, bool reuse>
using NearestProgram = RoundProgram<RoundMode::CAST_RINT, true>::ForType<T, reuse>;
template <class T, bool reuse>
using TruncProgram = RoundProgram<RoundMode::CAST_TRUNC, true>::ForType<T, reuse>;

template <class T, bool>
struct FracProgram : ProgramTraits {
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register*) const {
        steps.round(y, x[0], RoundMode::CAST_TRUNC);
        steps.sub(y, x[0], y);
    }
};

struct FmodProgram : ProgramTraits {
    static constexpr bool kHasResultRegister = true;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register*) const {
        steps.div(y, x[0], x[1]);
        steps.round(y, y, RoundMode::CAST_TRUNC);
        steps.mul(y, y, x[1]);
        steps.sub(y, x[0], y);
    }
};

template <class T, bool>
struct SignProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 3;
    static constexpr bool kWidens = false;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register* tmp) const {
        steps.compare(tmp[0], x[0], T(0.0f), CMPMODE::LT);
        steps.compare(tmp[1], x[0], T(0.0f), CMPMODE::GT);
        steps.fill(y, T(0.0f));
        steps.fill(tmp[2], T(1.0f));
        steps.select(y, tmp[1], tmp[2], y);
        steps.fill(tmp[2], T(-1.0f));
        steps.select(y, tmp[0], tmp[2], y);
    }
};

template <bool kIsUpperBound>
struct ClampProgram : ProgramTraits {
    static constexpr bool kWidens = false;
    float bound;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[1], Register*) const {
        if constexpr (kIsUpperBound)
            steps.mins(y, x[0], bound);
        else
            steps.maxs(y, x[0], bound);
    }
};

struct XorProgram : ProgramTraits {
    static constexpr uint32_t kTmpRegisters = 1;
    static constexpr bool kWidens = false;
    template <class Steps, class Register>
    void operator()(Steps& steps, Register& y, Register (&x)[2], Register* tmp) const {
        steps.and_bits(y, x[0], x[1]);
        steps.or_bits(tmp[0], x[0], x[1]);
        steps.not_bits(y, y);
        steps.and_bits(y, tmp[0], y);
    }
};

// Temporary memory: Round of float needs none on Ascend910B; ClampMax and ClampMin need one byte for each element.
namespace tmp_sizes {
constexpr TmpArrays kRound = kIs950 ? kNone : round_arrays(kIs310p);
}

inline TmpSizes clamp_sizes(uint64_t elements, uint32_t type_bytes) {
    const uint32_t least = type_bytes == 4 ? 64 : 128;
    return {uint32_t(elements > least ? elements : least), least};
}

template <bool kIsUpperBound, class T>
void clamp(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
           const AscendC::LocalTensor<uint8_t>* tmp, T scalar, uint32_t count) {
    call.temporary_memory(tmp, clamp_sizes(count, sizeof(T)));
    ClampProgram<kIsUpperBound> program;
    program.bound = Arithmetic<T>::widen(scalar);
    unary_function(call, program, tmp_sizes::kNone, dst, src, nullptr, count);
}

}  // namespace ascend_sim

namespace AscendC {

ASCEND_SIM_COUNTED_FUNCTION(Ceil, CeilProgram, kCeil)
ASCEND_SIM_COUNTED_FUNCTION(Floor, FloorProgram, kFloor)
ASCEND_SIM_COUNTED_FUNCTION(Round, NearestProgram, kRound)
ASCEND_SIM_FUNCTION(Trunc, TruncProgram, kTrunc)
ASCEND_SIM_FUNCTION(Frac, FracProgram, kFrac)
ASCEND_SIM_FUNCTION(Sign, SignProgram, kSign)

ASCEND_SIM_BINARY_FUNCTION(Fmod, FmodProgram, tmp_sizes::kFmod)
ASCEND_SIM_BINARY_FUNCTION(Xor, XorProgram, tmp_sizes::kXor)

#define ASCEND_SIM_CLAMP(Name, is_upper_bound)                                                                         \
    template <class T, bool isReuseSource = false>                                                                     \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,                                        \
              const LocalTensor<uint8_t>& sharedTmpBuffer, const T scalar, const uint32_t calCount, ASCEND_SIM_SITE) { \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::clamp<is_upper_bound>(ascend_sim::Call(#Name, site), dstTensor, srcTensor, &sharedTmpBuffer,       \
                                          scalar, calCount);                                                           \
    }                                                                                                                  \
    template <class T, bool isReuseSource = false>                                                                     \
    void Name(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const T scalar,                        \
              const uint32_t calCount, ASCEND_SIM_SITE) {                                                              \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::clamp<is_upper_bound>(ascend_sim::Call(#Name, site), dstTensor, srcTensor, nullptr, scalar,        \
                                          calCount);                                                                   \
    }
ASCEND_SIM_CLAMP(ClampMax, true)
ASCEND_SIM_CLAMP(ClampMin, false)

}  // namespace AscendC
