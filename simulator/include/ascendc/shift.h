// ShiftLeft, ShiftRight: lanes shifted by a scalar.
//
// Rules: int16, uint16, int32, uint32; not on Ascend310P. The scalar is 0 .. bits of the type.
// Meaning: left fills with zeros; right is arithmetic for signed types, logical for unsigned ones.
// Cost: a plain repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

namespace sim_detail {

template <bool kLeft, class T>
void shift_lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src, T scalar, const npu_sim::Lanes& lanes,
                 const UnaryRepeatParams& p) {
    static_assert(!kLeft || npu_sim::kTakes<T, npu_sim::Api::ShiftLeft>,
                  "ShiftLeft: this SoC does not have it for this type");
    static_assert(kLeft || npu_sim::kTakes<T, npu_sim::Api::ShiftRight>,
                  "ShiftRight: this SoC does not have it for this type");
    constexpr int64_t kBits = int64_t(sizeof(T)) * 8;
    if (int64_t(scalar) < 0 || int64_t(scalar) > kBits)
        npu_sim::broken(npu_sim::Rule::Mode01, "the shift must be 0 .. %lld but got %lld.",
                        static_cast<long long>(kBits), static_cast<long long>(scalar));
    const int by = int(scalar);
    npu_sim::unary_op<false>(npu_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride},
                             npu_sim::Operand<T>{"src", src, p.srcBlkStride, p.srcRepStride}, lanes,
                             npu_sim::Cost::Repeat, [by](T a) {
                                 // In 64 bits, so that a shift by all bits is defined.
                                 return kLeft ? T(uint64_t(a) << by) : T(int64_t(a) >> by);
                             });
}

}  // namespace sim_detail

#define NPU_SIM_SHIFT(Name, left)                                                                                    \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count,      \
              NPU_SIM_SITE) {                                                                                        \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                               \
        sim_detail::shift_lanes<left>(dst, src, scalarValue, npu_sim::count_lanes<isSetMask>(sizeof(T), count), {}); \
    }                                                                                                                \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask,             \
              const npu_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, NPU_SIM_SITE) {                 \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                               \
        sim_detail::shift_lanes<left>(dst, src, scalarValue,                                                         \
                                      npu_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params); \
    }                                                                                                                \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[],           \
              const npu_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, NPU_SIM_SITE) {                 \
        npu_sim::start(npu_sim::Pipe::V, #Name, site);                                                               \
        sim_detail::shift_lanes<left>(dst, src, scalarValue,                                                         \
                                      npu_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params); \
    }

NPU_SIM_SHIFT(ShiftLeft, true)
NPU_SIM_SHIFT(ShiftRight, false)

}  // namespace AscendC
