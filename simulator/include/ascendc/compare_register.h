// Compare into the register of comparisons, GetCmpMask, SetCmpMask, and the forms of Select that read this register.
//
// Rules: Compare takes half and float, one repeat. GetCmpMask's tensor has 128 bytes; its address and SetCmpMask's are
// multiples of 16. The register is set before it is read. Select takes its lanes from the mask register. Its modes 1
// and 2 use the top 8 KiB of UB; on Ascend950, mode 0 and Compare use them as well.
// Meaning: bit i of the register is the result for lane i. Lanes outside the mask give 0, which the page does not
// define. In Select's mode 0 the register has the bits, which all repeats use. In mode 1 it has the scalar src1, in
// mode 2 the address of the bits in UB.
// Cost: a plain repeat; the same for GetCmpMask and SetCmpMask.
// Sources: the pages Compare（结果存入寄存器）, GetCmpMask(ISASI), SetCmpMask(ISASI) and Select.
#pragma once

#include "ascendc/compare.h"
#include "ascendc/select.h"

namespace ascend_sim {

// The first bytes of the register of comparisons as a T.
template <class T>
T compare_register_as() {
    const CompareRegister& contents = compare_register();
    if (!contents.is_set)
        broken(Rule::Init01, "the register of comparisons is read before Compare or SetCmpMask set it.");
    T value;
    std::memcpy(&value, contents.bytes, sizeof value);
    return value;
}

// The bytes of a tensor that the register is copied to or from.
template <class T>
Range register_range(const char* name, const AscendC::LocalTensor<T>& tensor) {
    check_aligned(name, tensor.view().addr, sizeof(CompareRegister::bytes));
    return {tensor.view().addr, int64_t(tensor.view().addr + sizeof(CompareRegister::bytes))};
}

// The destination, the first source and the lanes of a Select that takes its lanes from the mask register.
template <class T>
struct SelectOperands {
    Operand<T> dst, src0;
    Lanes lanes;
    SelectOperands(const AscendC::LocalTensor<T>& dst_tensor, const AscendC::LocalTensor<T>& src0_tensor,
                   const AscendC::BinaryRepeatParams& params, uint64_t repeats)
        : dst{"dst", dst_tensor, params.dstBlkStride, params.dstRepStride},
          src0{"src0", src0_tensor, params.src0BlkStride, params.src0RepStride},
          lanes(Lanes::from_register(sizeof(T), repeats)) {}
    uint32_t bytes_per_repeat() const { return lanes.per_repeat() / 8; }
    // Checks the read of the bits of all repeats, and returns their range.
    Range read_bits(const UbView& bits) const {
        check_aligned("selMask", bits.addr);
        const Range range{bits.addr, int64_t(bits.addr) + lanes.repeats() * bytes_per_repeat()};
        reads("selMask", bits, &range, lanes.empty() ? 0 : 1);
        const int64_t begin = dst.tensor.view().addr;
        if (!lanes.empty())
            check_disjoint("dst", {begin, begin + int64_t(extent_of(lanes, layout_of(dst, lanes)))}, "selMask", range);
        return range;
    }
};

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, ascend_sim::ConstMask mask,
             const BinaryRepeatParams& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(CompareRegister, T);
    using namespace ascend_sim;
    start(Pipe::V, "Compare", site);
    const Lanes lanes = repeat_lanes<isSetMask>("Compare", sizeof(T), mask, 1);
    if (kIs950) uses_reserved_ub("Compare");
    const Operand<T> operand0{"src0", src0, params.src0BlkStride, params.src0RepStride},
        operand1{"src1", src1, params.src1BlkStride, params.src1RepStride};
    check_source(operand0, lanes);
    check_source(operand1, lanes);
    const Layout layout0 = layout_of(operand0), layout1 = layout_of(operand1);
    CompareRegister result;
    result.is_set = true;
    lanes.for_each_active_group(0, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t lane_count) {
        const T* const data0 = src0.data() + layout0.offset(0, lane) / sizeof(T);
        const T* const data1 = src1.data() + layout1.offset(0, lane) / sizeof(T);
        for (uint32_t i = 0; i < lane_count; ++i)
            if (holds(cmpMode, float(data0[i]), float(data1[i])))
                result.bytes[(lane + i) / 8] = uint8_t(result.bytes[(lane + i) / 8] | 1u << (lane + i) % 8);
    });
    compare_register() = result;
    finish_vector(1, cycles_of(Cost::Repeat));
}

template <class T>
void GetCmpMask(const LocalTensor<T>& dst, ASCEND_SIM_SITE) {
    using namespace ascend_sim;
    start(Pipe::V, "GetCmpMask", site);
    constexpr uint32_t kBytes = 128;
    if (dst.view().bytes < kBytes)
        broken(Rule::Work01, "`dst` must have %u bytes but has %u.", kBytes, dst.view().bytes);
    compare_register_as<uint8_t>();  // checks that the register is set
    const Range range = register_range("dst", dst);
    writes("dst", dst.view(), &range, 1);
    std::memcpy(ub() + range.begin, compare_register().bytes, sizeof(CompareRegister::bytes));
    finish_vector(1, cycles_of(Cost::Repeat));
}

template <class T>
void SetCmpMask(const LocalTensor<T>& src, ASCEND_SIM_SITE) {
    using namespace ascend_sim;
    start(Pipe::V, "SetCmpMask", site);
    const Range range = register_range("src", src);
    reads("src", src.view(), &range, 1);
    compare_register().is_set = true;
    std::memcpy(compare_register().bytes, ub() + range.begin, sizeof(CompareRegister::bytes));
    finish_vector(1, cycles_of(Cost::Repeat));
}

template <class T, SELMODE selMode>
void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint8_t repeatTime,
            const BinaryRepeatParams& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(selMode != SELMODE::VSEL_TENSOR_SCALAR_MODE, "Select: mode 1 takes a mask tensor and one source");
    using namespace ascend_sim;
    start(Pipe::V, "Select", site);
    if (kIs950 || selMode == SELMODE::VSEL_TENSOR_TENSOR_MODE) uses_reserved_ub("Select");
    const SelectOperands<T> operands(dst, src0, params, repeatTime);
    const Operand<T> operand1{"src1", src1, params.src1BlkStride, params.src1RepStride};
    check_source(operand1, operands.lanes);
    check_overlap(operands.dst, operand1, operands.lanes);
    const Layout layout1 = layout_of(operand1);
    const auto value = [&](uint32_t repeat, uint32_t lane) {
        return src1.data()[layout1.offset(repeat, lane) / sizeof(T)];
    };
    if constexpr (selMode == SELMODE::VSEL_CMPMASK_SPR) {
        compare_register_as<uint8_t>();  // checks that the register is set
        select_lanes(
            operands.dst, operands.src0, operands.lanes, [](uint32_t) { return compare_register().bytes; }, value);
    } else {
        const Range bits = operands.read_bits(view_at(compare_register_as<uint32_t>()));
        select_lanes(
            operands.dst, operands.src0, operands.lanes,
            [&](uint32_t repeat) { return ub() + bits.begin + repeat * operands.bytes_per_repeat(); }, value);
    }
}

template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, uint8_t repeatTime,
            const BinaryRepeatParams& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(std::is_unsigned_v<U>, "Select: the mask is of uint8_t, uint16_t, uint32_t or uint64_t");
    using namespace ascend_sim;
    start(Pipe::V, "Select", site);
    uses_reserved_ub("Select");
    const SelectOperands<T> operands(dst, src0, params, repeatTime);
    const T scalar = compare_register_as<T>();
    const Range bits = operands.read_bits(selMask.view());
    select_lanes(
        operands.dst, operands.src0, operands.lanes,
        [&](uint32_t repeat) { return ub() + bits.begin + repeat * operands.bytes_per_repeat(); },
        [=](uint32_t, uint32_t) { return scalar; });
}

}  // namespace AscendC
