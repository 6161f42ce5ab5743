// Adds, Muls, Maxs, Mins: a tensor and a scalar into a tensor. Axpy: dst += scalar * src.
//
// Rules: as in binary.h. Axpy also takes a float destination with a half source (64 lanes a repeat, separate strides
// for each operand).
// Meaning: half is computed in float and rounded once. Axpy rounds the product and then the sum; with a float
// destination, the product of half stays in float.
// Cost: a plain repeat; for Axpy a repeat that also reads its destination.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

// The three call forms. expr is an expression of a (a lane of the source) and s (the scalar).
#define ASCEND_SIM_SCALAR(Name, expr)                                                                                \
    namespace sim_detail {                                                                                           \
    template <class T>                                                                                               \
    void Name##Lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src, T scalar, const ascend_sim::Lanes& lanes, \
                     const UnaryRepeatParams& params = {}) {                                                         \
        ASCEND_SIM_NEEDS(Name, T);                                                                                   \
        const auto s = ascend_sim::Arithmetic<T>::widen(scalar);                                                     \
        ascend_sim::unary_op<false>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},    \
                                    ascend_sim::Operand<T>{"src", src, params.srcBlkStride, params.srcRepStride},    \
                                    lanes, ascend_sim::Cost::Repeat, [s](auto a) { return decltype(a)(expr); });     \
    }                                                                                                                \
    }                                                                                                                \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count,      \
              ASCEND_SIM_SITE) {                                                                                     \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                         \
        sim_detail::Name##Lanes(dst, src, scalarValue, ascend_sim::count_lanes<isSetMask>(sizeof(T), count));        \
    }                                                                                                                \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, ascend_sim::Mask mask,     \
              const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {           \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                         \
        sim_detail::Name##Lanes(dst, src, scalarValue,                                                               \
                                ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params);    \
    }

ASCEND_SIM_SCALAR(Adds, a + s)
ASCEND_SIM_SCALAR(Muls, a* s)
ASCEND_SIM_SCALAR(Maxs, a > s ? a : s)
ASCEND_SIM_SCALAR(Mins, a < s ? a : s)

namespace sim_detail {

template <class T, class U>
void AxpyLanes(const LocalTensor<T>& dst, const LocalTensor<U>& src, U scalar, const ascend_sim::Lanes& lanes,
               const UnaryRepeatParams& params) {
    static_assert((std::is_same_v<T, U> && ascend_sim::kTakes<U, ascend_sim::Api::Axpy>) ||
                      (std::is_same_v<T, float> && ascend_sim::kTakes<U, ascend_sim::Api::AxpyToFloat>),
                  "Axpy: this SoC does not have it for these types");
    const float factor = ascend_sim::Arithmetic<U>::widen(scalar);
    const ascend_sim::Arithmetic<T> type;
    ascend_sim::unary_op<true>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
                               ascend_sim::Operand<U>{"src", src, params.srcBlkStride, params.srcRepStride}, lanes,
                               ascend_sim::Cost::ThreeReads,
                               [=](float x, float old_dst) { return type.widen(type.narrow(x * factor)) + old_dst; });
}

}  // namespace sim_detail

template <class T, class U>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, const int32_t& count,
          ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Axpy", site);
    sim_detail::AxpyLanes(dst, src, scalarValue, ascend_sim::count_lanes<true>(ascend_sim::kWidest<T, U>, count), {});
}
template <class T, class U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, ascend_sim::Mask mask,
          const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "Axpy", site);
    sim_detail::AxpyLanes(dst, src, scalarValue,
                          ascend_sim::repeat_lanes<isSetMask>("Axpy", ascend_sim::kWidest<T, U>, mask, repeatTime),
                          params);
}

}  // namespace AscendC
