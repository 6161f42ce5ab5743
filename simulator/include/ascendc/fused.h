// MulAddDst: dst = src0 * src1 + dst. FusedMulAdd: dst = src0 * dst + src1.
//
// Rules: as in binary.h. MulAddDst also takes a float destination with half sources (64 lanes a repeat, separate
// strides for each operand).
// Meaning: the product is rounded, then the sum. The product of half sources for a float destination stays in float.
// Cost: three reads per repeat; a plain repeat if two operands have the same address.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {
namespace sim_detail {

template <class T, class U>
ascend_sim::Cost three_read_cost(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1) {
    const uint32_t dst_addr = dst.view().addr, src0_addr = src0.view().addr, src1_addr = src1.view().addr;
    return dst_addr == src0_addr || dst_addr == src1_addr || src0_addr == src1_addr ? ascend_sim::Cost::Repeat
                                                                                    : ascend_sim::Cost::ThreeReads;
}

template <class T, class U>
void MulAddDstLanes(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
                    const ascend_sim::Lanes& lanes, const BinaryRepeatParams& params = {}) {
    static_assert((std::is_same_v<T, U> && ascend_sim::kTakes<U, ascend_sim::Api::MulAddDst>) ||
                      (std::is_same_v<T, float> && ascend_sim::kTakes<U, ascend_sim::Api::MulAddDstToFloat>),
                  "MulAddDst: this SoC does not have it for these types");
    const ascend_sim::Arithmetic<T> type;
    ascend_sim::binary_op<true>(
        ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
        ascend_sim::Operand<U>{"src0", src0, params.src0BlkStride, params.src0RepStride},
        ascend_sim::Operand<U>{"src1", src1, params.src1BlkStride, params.src1RepStride}, lanes,
        ascend_sim::Aliasing::Exact, three_read_cost(dst, src0, src1),
        [=](auto x0, auto x1, auto old_dst) { return decltype(old_dst)(type.widen(type.narrow(x0 * x1)) + old_dst); });
}

template <class T>
void FusedMulAddLanes(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                      const ascend_sim::Lanes& lanes, const BinaryRepeatParams& params = {}) {
    ASCEND_SIM_NEEDS(FusedMulAdd, T);
    const ascend_sim::Arithmetic<T> type;
    ascend_sim::binary_op<true>(
        ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},
        ascend_sim::Operand<T>{"src0", src0, params.src0BlkStride, params.src0RepStride},
        ascend_sim::Operand<T>{"src1", src1, params.src1BlkStride, params.src1RepStride}, lanes,
        ascend_sim::Aliasing::Exact, three_read_cost(dst, src0, src1),
        [=](float x0, float x1, float old_dst) { return type.widen(type.narrow(x0 * old_dst)) + x1; });
}

}  // namespace sim_detail

template <class T, class U>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count,
               ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "MulAddDst", site);
    sim_detail::MulAddDstLanes(dst, src0, src1, ascend_sim::count_lanes<true>(ascend_sim::kWidest<T, U>, count));
}
template <class T, class U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
               ascend_sim::ConstMask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
               ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "MulAddDst", site);
    sim_detail::MulAddDstLanes(
        dst, src0, src1, ascend_sim::repeat_lanes<isSetMask>("MulAddDst", ascend_sim::kWidest<T, U>, mask, repeatTime),
        params);
}

template <class T>
void FusedMulAdd(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                 const int32_t& count, ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "FusedMulAdd", site);
    sim_detail::FusedMulAddLanes(dst, src0, src1, ascend_sim::count_lanes<true>(sizeof(T), count));
}
template <class T, bool isSetMask = true>
void FusedMulAdd(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                 ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
                 ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "FusedMulAdd", site);
    sim_detail::FusedMulAddLanes(
        dst, src0, src1, ascend_sim::repeat_lanes<isSetMask>("FusedMulAdd", sizeof(T), mask, repeatTime), params);
}

}  // namespace AscendC
