// Add, Sub, Mul, Div, Max, Min, And, Or: two tensors into one, lane by lane.
//
// Rules: operands are aligned to 32 bytes, and strides fit their fields. Destination and a source are the same memory
// or disjoint; Add, Sub, Mul, Max and Min may accumulate over repeat stride 0. Types by SoC.
// Pointers: official kernels take the addresses of these functions, with the types of CANN's declarations. A template
// with the result type Void serves such a pointer: only the pointer's type determines Void, so no call chooses the
// template. A report about a call through such a pointer has no line.
// Cost: a plain repeat; for Div the cost of a division.
#pragma once

#include "ascendc/arithmetic.h"
#include "ascendc/functions.h"

namespace AscendC {

// The call forms of a binary operation, and its templates for pointers. expr is an expression of a and b, lanes of the
// sources.
#define ASCEND_SIM_BINARY(Name, aliasing, cost, expr)                                                                  \
    namespace sim_detail {                                                                                             \
    template <class T>                                                                                                 \
    void Name##Lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                \
                     const ascend_sim::Lanes& lanes, const BinaryRepeatParams& params = {}) {                          \
        ASCEND_SIM_NEEDS(Name, T);                                                                                     \
        ascend_sim::binary_op<false>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},     \
                                     ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride}, \
                                     ascend_sim::Operand<T>{"src1", src1, params.src1BlkStride, params.src1RepStride}, \
                                     lanes, ascend_sim::Aliasing::aliasing, ascend_sim::Cost::cost,                    \
                                     [](auto a, auto b) { return decltype(a)(expr); });                                \
    }                                                                                                                  \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
              ASCEND_SIM_SITE) {                                                                                       \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::Name##Lanes(dst, src0, src1, ascend_sim::count_lanes<true>(sizeof(T), count));                     \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                       \
              ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,        \
              ASCEND_SIM_SITE) {                                                                                       \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                           \
        sim_detail::Name##Lanes(dst, src0, src1,                                                                       \
                                ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params);      \
    }                                                                                                                  \
    template <class T, class Void>                                                                                     \
    Void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                       \
              const int32_t& count) {                                                                                  \
        Name(dst, src0, src1, count, ascend_sim::kUnknownSite);                                                        \
    }                                                                                                                  \
    template <class T, bool isSetMask = true, class Void>                                                              \
    Void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,        \
              uint8_t repeatTime, const BinaryRepeatParams& params) {                                                  \
        Name<T, isSetMask>(dst, src0, src1, ascend_sim::Mask(mask), ascend_sim::RepeatTime(repeatTime), params,        \
                           ascend_sim::kUnknownSite);                                                                  \
    }

ASCEND_SIM_BINARY(Add, Accumulate, Repeat, a + b)
ASCEND_SIM_BINARY(Sub, Accumulate, Repeat, a - b)
ASCEND_SIM_BINARY(Mul, Accumulate, Repeat, a* b)
ASCEND_SIM_BINARY(Max, Accumulate, Repeat, a > b ? a : b)
ASCEND_SIM_BINARY(Min, Accumulate, Repeat, a < b ? a : b)
ASCEND_SIM_BINARY(Div, Exact, Division, ascend_sim::function_value<T>([](auto v, auto w) { return v / w; }, a, b))
ASCEND_SIM_BINARY(And, Exact, Repeat, a& b)
ASCEND_SIM_BINARY(Or, Exact, Repeat, a | b)

}  // namespace AscendC
