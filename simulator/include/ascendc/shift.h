// ShiftLeft, ShiftRight: lanes shifted by a scalar.
//
// Rules: int16, uint16, int32, uint32; not on Ascend310P. The scalar is 0 .. the number of the type's bits.
// Meaning: left fills with zeros; right is arithmetic for signed types, logical for unsigned ones.
// Cost: a plain repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

namespace sim_detail {

template <bool kLeft, class T>
void shift_lanes(const LocalTensor<T>& dst, const LocalTensor<T>& src, T scalar, const ascend_sim::Lanes& lanes,
                 const UnaryRepeatParams& params) {
    static_assert(!kLeft || ascend_sim::kTakes<T, ascend_sim::Api::ShiftLeft>,
                  "ShiftLeft: this SoC does not have it for this type");
    static_assert(kLeft || ascend_sim::kTakes<T, ascend_sim::Api::ShiftRight>,
                  "ShiftRight: this SoC does not have it for this type");
    constexpr int64_t kBits = int64_t(sizeof(T)) * 8;
    if (int64_t(scalar) < 0 || int64_t(scalar) > kBits)
        ascend_sim::broken(ascend_sim::Rule::Mode01, "the shift must be 0 .. %lld but got %lld.",
                           static_cast<long long>(kBits), static_cast<long long>(scalar));
    const int shift = int(scalar);
    ascend_sim::unary_op<false>(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
                                ascend_sim::Operand<T>{"src", src, params.srcBlkStride, params.srcRepStride}, lanes,
                                ascend_sim::Cost::Repeat, [shift](T value) {
                                    // In 64 bits, so that a shift by all bits is defined.
                                    return kLeft ? T(uint64_t(value) << shift) : T(int64_t(value) >> shift);
                                });
}

}  // namespace sim_detail

#define ASCEND_SIM_SHIFT(Name, left)                                                                                 \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count,      \
              ASCEND_SIM_SITE) {                                                                                     \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                         \
        sim_detail::shift_lanes<left>(dst, src, scalarValue, ascend_sim::count_lanes<isSetMask>(sizeof(T), count),   \
                                      {});                                                                           \
    }                                                                                                                \
    template <class T, bool isSetMask = true>                                                                        \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, ascend_sim::Mask mask,     \
              const ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {           \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                         \
        sim_detail::shift_lanes<left>(                                                                               \
            dst, src, scalarValue, ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(T), mask, repeatTime), params); \
    }

ASCEND_SIM_SHIFT(ShiftLeft, true)
ASCEND_SIM_SHIFT(ShiftRight, false)

}  // namespace AscendC
