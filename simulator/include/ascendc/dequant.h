// CastDequant (CastDeq): int16 to 8 bits, or int32 to half, by SetDeqScale's parameters. AddDeqRelu: two int32 tensors
// to half.
//
// Rules: types by SoC; each operand has its own strides. The conversion needs its form of SetDeqScale. The sign mode is
// that of the result's type. AddDeqRelu uses the top 8 KiB of UB.
// Meaning of int16 to 8 bits: the product with the scale is rounded to nearest even and clamped to nine bits. (The page
// does not define the rounding.) Then the offset is added, and the sum is clamped. A block of 16 elements gives 16
// bytes. With halfBlock they are in the upper half of the destination's block, else in the lower half. The other half
// is not written. With isVecDeq, element i of each block has parameter i.
// Meaning of the others: int32 to half is as in Cast. AddDeqRelu adds in int32, converts, and takes the larger one of
// the result and 0.
// Cost: a plain repeat; for AddDeqRelu three repeats, one for each step.
// Sources: the pages CastDequant, AddDeqRelu, SetDeqScale; asc-devkit
// impl/basic_api/dav_3510/kernel_operator_vec_vconv_impl.h for the nine bits.
#pragma once

#include "ascendc/cast.h"
#include "ascendc/reduce.h"
#include "ascendc/relu.h"

namespace ascend_sim {

template <bool kVector, bool kUpper, class T>
void cast_dequant(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<int16_t>& src, const Lanes& lanes,
                  const AscendC::UnaryRepeatParams& params = {}) {
    constexpr uint32_t kElementsPerBlock = 16;
    const DeqRegister& deq =
        check_deq_form(kVector ? DeqForm::Vector : DeqForm::Tensor,
                       kVector ? "SetDeqScale(vdeq, vdeqInfo)" : "SetDeqScale(scale, offset, signMode)");
    std::vector<DeqParameters> parameters(kElementsPerBlock, DeqParameters(deq.bits));
    if (kVector && deq.form == DeqForm::Vector) {
        const Range range{deq.tensor.addr, int64_t(deq.tensor.addr) + kElementsPerBlock * 8};
        reads("vdeq", deq.tensor, &range, 1);
        for (uint32_t i = 0; i < kElementsPerBlock; ++i) {
            uint64_t raw;
            std::memcpy(&raw, ub() + deq.tensor.addr + i * 8, sizeof raw);
            parameters[i] = DeqParameters(raw);
        }
    }
    for (const DeqParameters& lane_parameters : parameters)
        if (lane_parameters.is_signed != std::is_signed_v<T>)
            return broken(Rule::Mode01, "signMode is %d but the result is %s.", int(lane_parameters.is_signed),
                          std::is_signed_v<T> ? "signed" : "unsigned");
    const Operand<int16_t> from{"src", src, params.srcBlkStride, params.srcRepStride};
    check_source(from, lanes);
    check_aligned("dst", dst.view().addr);
    const Layout src_layout = layout_of(from, lanes);
    // The destination has a block for each block of the source.
    const Layout dst_layout{sizeof(int16_t), lanes.is_count_form() ? kBlockBytes : params.dstBlkStride * kBlockBytes,
                            lanes.is_count_form() ? kRepeatBytes : params.dstRepStride * kBlockBytes};
    const uint32_t dst_addr = dst.view().addr;
    const auto address_of = [&](uint32_t repeat, uint32_t lane) {
        return dst_addr + dst_layout.offset(repeat, lane - lane % kElementsPerBlock) +
               (kUpper ? kElementsPerBlock : 0) + lane % kElementsPerBlock;
    };
    std::vector<std::vector<Range>> read(lanes.repeats()), written(lanes.repeats());
    std::vector<Range> all_written;
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            const int64_t begin = address_of(repeat, lane),
                          read_begin = src.view().addr + src_layout.offset(repeat, lane);
            read[repeat].push_back({read_begin, read_begin + lane_count * 2});
            written[repeat].push_back({begin, begin + lane_count});
            all_written.push_back({begin, begin + lane_count});
        });
    check_reduce_overlap(read, written);
    writes("dst", dst.view(), all_written.data(), all_written.size());
    for (uint32_t repeat = 0; repeat < lanes.repeats(); ++repeat)
        lanes.for_each_active_group(repeat, kElementsPerBlock, [&](uint32_t lane, uint32_t lane_count) {
            const int16_t* const src_data = src.data() + src_layout.offset(repeat, lane) / 2;
            for (uint32_t i = 0; i < lane_count; ++i) {
                const DeqParameters& lane_parameters = parameters[kVector ? (lane + i) % kElementsPerBlock : 0];
                int32_t value =
                    clamp_to<int32_t>(round_float<RoundMode::CAST_RINT>(float(src_data[i]) * lane_parameters.scale));
                value = (value > 255 ? 255 : value < -256 ? -256 : value) + lane_parameters.offset;
                ub()[address_of(repeat, lane + i)] = uint8_t(clamp_integer<T>(value));
            }
        });
    finish_vector(lanes.repeats(), cycles_of(Cost::Repeat), lanes.has_tail());
}

template <class T, class U>
constexpr bool kHasCastDequant =
    std::is_same_v<T, half> ? kTakes<U, Api::CastDequantToHalf>
                            : kIsOneOf<T, int8_t, uint8_t> && kTakes<U, Api::CastDequantTo8Bits>;

inline void add_deq_relu(const Operand<half>& dst, const Operand<int32_t>& src0, const Operand<int32_t>& src1,
                         const Lanes& lanes) {
    uses_reserved_ub("AddDeqRelu");
    const Dequantizer dequantize;
    binary_op<false>(
        dst, src0, src1, lanes, Aliasing::Exact, Cost::Repeat,
        [=](int32_t a, int32_t b) { return relu(float(dequantize(a + b))); }, 3);
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_CAST_DEQUANT(Name)                                                                                 \
    template <class T, class U, bool isVecDeq = true, bool halfBlock = true>                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint32_t count, ASCEND_SIM_SITE) {          \
        static_assert(ascend_sim::kHasCastDequant<T, U>, #Name ": this SoC does not have it for these types");        \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                          \
        if constexpr (std::is_same_v<U, int32_t>)                                                                     \
            ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst}, ascend_sim::Operand<U>{"src", src},               \
                                ascend_sim::count_lanes<true>(sizeof(U), count), RoundMode::CAST_RINT);               \
        else                                                                                                          \
            ascend_sim::cast_dequant<isVecDeq, halfBlock>(dst, src, ascend_sim::count_lanes<true>(sizeof(U), count)); \
    }                                                                                                                 \
    template <class T, class U, bool isSetMask = true, bool isVecDeq = true, bool halfBlock = true>                   \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, ascend_sim::ConstMask mask,                       \
              ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& params, ASCEND_SIM_SITE) {                  \
        static_assert(ascend_sim::kHasCastDequant<T, U>, #Name ": this SoC does not have it for these types");        \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                          \
        const auto lanes = ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(U), mask, repeatTime);                   \
        if constexpr (std::is_same_v<U, int32_t>)                                                                     \
            ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst, params.dstBlkStride, params.dstRepStride},         \
                                ascend_sim::Operand<U>{"src", src, params.srcBlkStride, params.srcRepStride}, lanes,  \
                                RoundMode::CAST_RINT);                                                                \
        else                                                                                                          \
            ascend_sim::cast_dequant<isVecDeq, halfBlock>(dst, src, lanes, params);                                   \
    }

ASCEND_SIM_CAST_DEQUANT(CastDequant)
ASCEND_SIM_CAST_DEQUANT(CastDeq)

template <bool isSetMask = true>
void AddDeqRelu(const LocalTensor<half>& dst, const LocalTensor<int32_t>& src0, const LocalTensor<int32_t>& src1,
                ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
                ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "AddDeqRelu", site);
    ascend_sim::add_deq_relu({"dst", dst, params.dstBlkStride, params.dstRepStride},
                             {"src0", src0, params.src0BlkStride, params.src0RepStride},
                             {"src1", src1, params.src1BlkStride, params.src1RepStride},
                             ascend_sim::repeat_lanes<isSetMask>("AddDeqRelu", sizeof(int32_t), mask, repeatTime));
}
template <class T = half, class U = int32_t>
void AddDeqRelu(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count,
                ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(AddDeqRelu, U);
    ascend_sim::start(ascend_sim::Pipe::V, "AddDeqRelu", site);
    ascend_sim::add_deq_relu({"dst", dst}, {"src0", src0}, {"src1", src1},
                             ascend_sim::count_lanes<true>(sizeof(int32_t), count));
}
template <class T, class U, bool isSetMask = true>
void AddDeqRelu(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
                ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& params,
                ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(AddDeqRelu, U);
    AddDeqRelu<isSetMask>(dst, src0, src1, mask, repeatTime, params, site);
}

}  // namespace AscendC
