// Add, Sub, Mul, Div, Max, Min, And, Or: two tensors into one, lane by lane.
//
// Rules: operands on 32-byte boundaries, strides in their fields, destination and a source identical or
// disjoint (the five arithmetic operations may accumulate over repeat stride 0), types by SoC.
// Cost: a plain repeat, Div a division.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

// The three call forms of a binary operation. expr is an expression of a and b.
#define NPU_SIM_BINARY(Name, aliasing, cost, expr)                                                                     \
    namespace sim_detail {                                                                                             \
    template <class T>                                                                                                 \
    void Name##Lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                \
                     const npu_sim::Lanes& lanes, const BinaryRepeatParams& p = {}) {                                  \
        NPU_SIM_NEEDS(Name, T);                                                                                        \
        npu_sim::binary_op<false>(npu_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride},                     \
                                  npu_sim::Operand<T>{"src0", src0, p.src0BlkStride, p.src0RepStride},                 \
                                  npu_sim::Operand<T>{"src1", src1, p.src1BlkStride, p.src1RepStride}, lanes,          \
                                  npu_sim::Aliasing::aliasing, npu_sim::Cost::cost,                                    \
                                  [](auto a, auto b) { return decltype(a)(expr); });                                   \
    }                                                                                                                  \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
              NPU_SIM_SITE) {                                                                                          \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                                 \
        sim_detail::Name##Lanes(dst, src0, src1, npu_sim::count_lanes<true>(sizeof(T), count));                        \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,        \
              const npu_sim::RepeatTime repeatTime, const BinaryRepeatParams& params, NPU_SIM_SITE) {                  \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                                 \
        sim_detail::Name##Lanes(dst, src0, src1, npu_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), \
                                params);                                                                               \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[],      \
              const npu_sim::RepeatTime repeatTime, const BinaryRepeatParams& params, NPU_SIM_SITE) {                  \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                                 \
        sim_detail::Name##Lanes(dst, src0, src1, npu_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), \
                                params);                                                                               \
    }

NPU_SIM_BINARY(Add, Accumulate, Repeat, a + b)
NPU_SIM_BINARY(Sub, Accumulate, Repeat, a - b)
NPU_SIM_BINARY(Mul, Accumulate, Repeat, a* b)
NPU_SIM_BINARY(Max, Accumulate, Repeat, a > b ? a : b)
NPU_SIM_BINARY(Min, Accumulate, Repeat, a < b ? a : b)
NPU_SIM_BINARY(Div, Exact, Division, a / b)
NPU_SIM_BINARY(And, Exact, Repeat, a& b)
NPU_SIM_BINARY(Or, Exact, Repeat, a | b)

}  // namespace AscendC
