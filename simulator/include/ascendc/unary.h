// Abs, Exp, Ln, Sqrt, Rsqrt, Reciprocal, Relu, Not, Neg: one tensor into one, lane by lane.
//
// Rules: as in binary.h. The types are half and float, for Relu also int32, for Neg also int16 and int32. Neg is on
// Ascend950 only. The instruction Not takes integers only.
// Meaning: the result is computed in float (Exp and Ln: in double) and rounded once. Rsqrt and Reciprocal are
// approximations: the documents guarantee errors of about 1e-4 in float and 1e-3 in half, so the results here have 13
// and 10 bits. functions.h has the differences of Ascend950.
// Cost: a plain repeat; for Exp, Ln and Sqrt the cost of a function, for Rsqrt and Reciprocal that of an estimate.
#pragma once

#include <cmath>

#include "ascendc/arithmetic.h"
#include "ascendc/functions.h"

namespace ascend_sim {

// Rounds a value to kBits bits of its mantissa, the leading 1 included.
template <int kBits>
inline float leading_bits(float value) {
    constexpr int kDropped = 24 - kBits;
    const uint32_t raw = bits<uint32_t>(value);
    if ((raw & 0x7f800000) == 0x7f800000) return value;  // infinite or NaN
    return bits<float>((raw + (1u << (kDropped - 1))) & ~((1u << kDropped) - 1));
}
template <class T>
inline float approximately(float value) {
    return std::is_same_v<T, half> ? leading_bits<10>(value) : leading_bits<13>(value);
}

}  // namespace ascend_sim

namespace AscendC {

// The three call forms. expr is an expression of a, a lane of the source.
#define ASCEND_SIM_UNARY(Name, cost, expr)                                                                         \
    namespace sim_detail {                                                                                         \
    template <class T>                                                                                             \
    void Name##Lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascend_sim::Lanes& lanes,         \
                     const UnaryRepeatParams& params = {}) {                                                       \
        ASCEND_SIM_NEEDS(Name, T);                                                                                 \
        ascend_sim::unary_op<false>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},  \
                                    ascend_sim::Operand<T>{"src", src, params.srcBlkStride, params.srcRepStride},  \
                                    lanes, ascend_sim::Cost::cost, [](auto a) { return decltype(a)(expr); });      \
    }                                                                                                              \
    }                                                                                                              \
    template <class T>                                                                                             \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, ASCEND_SIM_SITE) {       \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                       \
        sim_detail::Name##Lanes(dst, src, ascend_sim::count_lanes<true>(sizeof(T), count));                        \
    }                                                                                                              \
    template <class T, bool isSetMask = true>                                                                      \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, ascend_sim::Mask mask,                         \
              const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {         \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                       \
        sim_detail::Name##Lanes(dst, src, ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), \
                                params);                                                                           \
    }

ASCEND_SIM_UNARY(Abs, Repeat, std::fabs(a))
ASCEND_SIM_UNARY(Exp, Function, ascend_sim::function_value<T>([](double v) { return std::exp(v); }, a))
ASCEND_SIM_UNARY(Ln, Function, ascend_sim::function_value<T>([](double v) { return std::log(v); }, a))
ASCEND_SIM_UNARY(Sqrt, Function, ascend_sim::function_value<T>([](auto v) { return std::sqrt(v); }, a))
ASCEND_SIM_UNARY(
    Rsqrt, Estimate,
    ascend_sim::estimate_value<T>([](float v) { return ascend_sim::approximately<T>(1.0f / std::sqrt(v)); }, a))
ASCEND_SIM_UNARY(Reciprocal, Estimate,
                 ascend_sim::estimate_value<T>([](float v) { return ascend_sim::approximately<T>(1.0f / v); }, a))
ASCEND_SIM_UNARY(Relu, Repeat, a > 0 || a != a ? a : 0)
ASCEND_SIM_UNARY(Not, Repeat, ~a)
ASCEND_SIM_UNARY(Neg, Repeat, -a)

}  // namespace AscendC
