// CastDequant (CastDeq): int16 to 8 bits, or int32 to half, by SetDeqScale's parameters. AddDeqRelu: two int32 tensors
// to half.
//
// Rules: types by SoC, in each operand's own strides; SetDeqScale in the form of the conversion, its sign mode as the
// result's type. AddDeqRelu uses the top 8 KiB of UB.
// Meaning: int16 to 8 bits: the product with the scale is rounded to nearest even and clamped to nine bits, the offset
// is added, and the sum is clamped. A block of 16 elements gives 16 bytes in the upper half of its destination's block
// (halfBlock), or in the lower half; the other half stays. With isVecDeq, element i of each block has parameter i. The
// rounding is not in the page. int32 to half as Cast; AddDeqRelu adds in int32 before it, and takes the larger one of
// the result and 0.
// Cost: a plain repeat; AddDeqRelu three, one for each step.
// Sources: the pages CastDequant, AddDeqRelu, SetDeqScale; asc-devkit
// impl/basic_api/dav_3510/kernel_operator_vec_vconv_impl.h for the nine bits.
#pragma once

#include "ascendc/cast.h"
#include "ascendc/reduce.h"
#include "ascendc/relu.h"

namespace ascend_sim {

template <bool kVector, bool kUpper, class T>
void cast_dequant(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<int16_t>& src, const Lanes& lanes,
                  const AscendC::UnaryRepeatParams& p = {}) {
    constexpr uint32_t kInBlock = 16;
    const DeqRegister& deq =
        needs_deq(kVector ? DeqForm::Vector : DeqForm::Tensor,
                  kVector ? "SetDeqScale(vdeq, vdeqInfo)" : "SetDeqScale(scale, offset, signMode)");
    std::vector<DeqParameters> parameters(kInBlock, DeqParameters(deq.bits));
    if (kVector && deq.form == DeqForm::Vector) {
        const Range r{deq.tensor.addr, int64_t(deq.tensor.addr) + kInBlock * 8};
        reads("vdeq", deq.tensor, &r, 1);
        for (uint32_t i = 0; i < kInBlock; ++i) {
            uint64_t raw;
            std::memcpy(&raw, ub() + deq.tensor.addr + i * 8, sizeof raw);
            parameters[i] = DeqParameters(raw);
        }
    }
    for (const DeqParameters& each : parameters)
        if (each.is_signed != std::is_signed_v<T>)
            return broken(Rule::Mode01, "signMode is %d but the result is %s.", int(each.is_signed),
                          std::is_signed_v<T> ? "signed" : "unsigned");
    const Operand<int16_t> from{"src", src, p.srcBlkStride, p.srcRepStride};
    check_source(from, lanes);
    check_aligned("dst", dst.view().addr);
    const Layout source = layout_of(from, lanes);
    // The destination has a block for each block of the source.
    const Layout target{sizeof(int16_t), lanes.is_count_form() ? kBlockBytes : p.dstBlkStride * kBlockBytes,
                        lanes.is_count_form() ? kRepeatBytes : p.dstRepStride * kBlockBytes};
    const uint32_t to = dst.view().addr;
    const auto place = [&](uint32_t r, uint32_t lane) {
        return to + target.offset(r, lane - lane % kInBlock) + (kUpper ? kInBlock : 0) + lane % kInBlock;
    };
    std::vector<std::vector<Range>> read(lanes.repeats()), written(lanes.repeats());
    std::vector<Range> all;
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_active_group(r, kInBlock, [&](uint32_t lane, uint32_t n) {
            const int64_t begin = place(r, lane), origin = src.view().addr + source.offset(r, lane);
            read[r].push_back({origin, origin + n * 2});
            written[r].push_back({begin, begin + n});
            all.push_back({begin, begin + n});
        });
    check_reduce_overlap(read, written);
    writes("dst", dst.view(), all.data(), all.size());
    for (uint32_t r = 0; r < lanes.repeats(); ++r)
        lanes.for_each_active_group(r, kInBlock, [&](uint32_t lane, uint32_t n) {
            const int16_t* const x = src.data() + source.offset(r, lane) / 2;
            for (uint32_t i = 0; i < n; ++i) {
                const DeqParameters& q = parameters[kVector ? (lane + i) % kInBlock : 0];
                int32_t v = clamp_to<int32_t>(round_float<RoundMode::CAST_RINT>(float(x[i]) * q.scale));
                v = (v > 255 ? 255 : v < -256 ? -256 : v) + q.offset;
                ub()[place(r, lane + i)] = uint8_t(clamp_integer<T>(v));
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
    const Dequantizer deq;
    binary_op<false>(
        dst, src0, src1, lanes, Aliasing::Exact, Cost::Repeat,
        [=](int32_t a, int32_t b) { return relu(float(deq(a + b))); }, 3);
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
              ascend_sim::RepeatTime repeatTime, const UnaryRepeatParams& p, ASCEND_SIM_SITE) {                       \
        static_assert(ascend_sim::kHasCastDequant<T, U>, #Name ": this SoC does not have it for these types");        \
        ascend_sim::start(ascend_sim::Pipe::V, #Name, site);                                                          \
        const auto lanes = ascend_sim::repeat_lanes<isSetMask>(#Name, sizeof(U), mask, repeatTime);                   \
        if constexpr (std::is_same_v<U, int32_t>)                                                                     \
            ascend_sim::cast_op(ascend_sim::Operand<T>{"dst", dst, p.dstBlkStride, p.dstRepStride},                   \
                                ascend_sim::Operand<U>{"src", src, p.srcBlkStride, p.srcRepStride}, lanes,            \
                                RoundMode::CAST_RINT);                                                                \
        else                                                                                                          \
            ascend_sim::cast_dequant<isVecDeq, halfBlock>(dst, src, lanes, p);                                        \
    }

ASCEND_SIM_CAST_DEQUANT(CastDequant)
ASCEND_SIM_CAST_DEQUANT(CastDeq)

template <bool isSetMask = true>
void AddDeqRelu(const LocalTensor<half>& dst, const LocalTensor<int32_t>& src0, const LocalTensor<int32_t>& src1,
                ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& p,
                ASCEND_SIM_SITE) {
    ascend_sim::start(ascend_sim::Pipe::V, "AddDeqRelu", site);
    ascend_sim::add_deq_relu({"dst", dst, p.dstBlkStride, p.dstRepStride},
                             {"src0", src0, p.src0BlkStride, p.src0RepStride},
                             {"src1", src1, p.src1BlkStride, p.src1RepStride},
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
                ascend_sim::Mask mask, const ascend_sim::RepeatTime repeatTime, const BinaryRepeatParams& p,
                ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(AddDeqRelu, U);
    AddDeqRelu<isSetMask>(dst, src0, src1, mask, repeatTime, p, site);
}

}  // namespace AscendC
