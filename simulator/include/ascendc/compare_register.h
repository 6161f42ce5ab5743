// Compare into the register of comparisons, GetCmpMask, SetCmpMask, and the forms of Select that read this register.
//
// Rules: Compare: half and float, one repeat. GetCmpMask's tensor has 128 bytes; its address and SetCmpMask's are
// multiples of 16. The register is set before it is read. Select takes the mask register; its modes 1 and 2 use the top
// 8 KiB of UB, on Ascend950 also mode 0 and Compare.
// Meaning: bit i of the register is the comparison of lane i; lanes outside the mask give 0, which the page does not
// say. Select's mode 0 takes its bits from the register, which serve all repeats; mode 1 src1, a scalar; mode 2 the
// address of its bits in UB.
// Cost: a plain repeat; GetCmpMask and SetCmpMask as one.
// Sources: the pages Compare（结果存入寄存器）, GetCmpMask(ISASI), SetCmpMask(ISASI) and Select.
#pragma once

#include "ascendc/compare.h"
#include "ascendc/select.h"

namespace ascend_sim {

// The register's first bytes as a number.
template <class T>
T compare_register_as() {
    const CompareRegister& r = compare_register();
    if (!r.is_set) broken(Rule::Init01, "the register of comparisons is read before Compare or SetCmpMask set it.");
    T value;
    std::memcpy(&value, r.bytes, sizeof value);
    return value;
}

template <class T>
Range register_range(const char* name, const AscendC::LocalTensor<T>& t) {
    check_aligned(name, t.view().addr, sizeof(CompareRegister::bytes));
    return {t.view().addr, int64_t(t.view().addr + sizeof(CompareRegister::bytes))};
}

template <class T>
struct SelectOperands {
    Operand<T> dst, src0;
    Lanes lanes;
    SelectOperands(const AscendC::LocalTensor<T>& to, const AscendC::LocalTensor<T>& from,
                   const AscendC::BinaryRepeatParams& p, uint64_t repeats)
        : dst{"dst", to, p.dstBlkStride, p.dstRepStride},
          src0{"src0", from, p.src0BlkStride, p.src0RepStride},
          lanes(Lanes::from_register(sizeof(T), repeats)) {}
    uint32_t bytes_per_repeat() const { return lanes.per_repeat() / 8; }
    // Reads and checks the bits of all repeats.
    Range read_bits(const UbView& bits) const {
        check_aligned("selMask", bits.addr);
        const Range r{bits.addr, int64_t(bits.addr) + lanes.repeats() * bytes_per_repeat()};
        reads("selMask", bits, &r, lanes.empty() ? 0 : 1);
        const int64_t begin = dst.tensor.view().addr;
        if (!lanes.empty())
            check_disjoint("dst", {begin, begin + int64_t(extent_of(lanes, layout_of(dst, lanes)))}, "selMask", r);
        return r;
    }
};

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, ascend_sim::ConstMask mask,
             const BinaryRepeatParams& p, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(CompareRegister, T);
    using namespace ascend_sim;
    start(Pipe::V, "Compare", site);
    const Lanes lanes = repeat_lanes<isSetMask>("Compare", sizeof(T), mask, 1);
    if (kIs950) uses_reserved_ub("Compare");
    const Operand<T> a{"src0", src0, p.src0BlkStride, p.src0RepStride},
        b{"src1", src1, p.src1BlkStride, p.src1RepStride};
    check_source(a, lanes);
    check_source(b, lanes);
    const Layout from = layout_of(a), other = layout_of(b);
    CompareRegister result;
    result.is_set = true;
    lanes.for_each_active_group(0, kBlockBytes / sizeof(T), [&](uint32_t lane, uint32_t n) {
        const T* const x = src0.data() + from.offset(0, lane) / sizeof(T);
        const T* const y = src1.data() + other.offset(0, lane) / sizeof(T);
        for (uint32_t i = 0; i < n; ++i)
            if (holds(cmpMode, float(x[i]), float(y[i])))
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
    compare_register_as<uint8_t>();
    const Range r = register_range("dst", dst);
    writes("dst", dst.view(), &r, 1);
    std::memcpy(ub() + r.begin, compare_register().bytes, sizeof(CompareRegister::bytes));
    finish_vector(1, cycles_of(Cost::Repeat));
}

template <class T>
void SetCmpMask(const LocalTensor<T>& src, ASCEND_SIM_SITE) {
    using namespace ascend_sim;
    start(Pipe::V, "SetCmpMask", site);
    const Range r = register_range("src", src);
    reads("src", src.view(), &r, 1);
    compare_register().is_set = true;
    std::memcpy(compare_register().bytes, ub() + r.begin, sizeof(CompareRegister::bytes));
    finish_vector(1, cycles_of(Cost::Repeat));
}

template <class T, SELMODE selMode>
void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint8_t repeatTime,
            const BinaryRepeatParams& p, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(selMode != SELMODE::VSEL_TENSOR_SCALAR_MODE, "Select: mode 1 takes a mask tensor and one source");
    using namespace ascend_sim;
    start(Pipe::V, "Select", site);
    if (kIs950 || selMode == SELMODE::VSEL_TENSOR_TENSOR_MODE) uses_reserved_ub("Select");
    const SelectOperands<T> o(dst, src0, p, repeatTime);
    const Operand<T> other{"src1", src1, p.src1BlkStride, p.src1RepStride};
    check_source(other, o.lanes);
    check_overlap(o.dst, other, o.lanes);
    const Layout from = layout_of(other);
    const auto value = [&](uint32_t r, uint32_t lane) { return src1.data()[from.offset(r, lane) / sizeof(T)]; };
    if constexpr (selMode == SELMODE::VSEL_CMPMASK_SPR) {
        compare_register_as<uint8_t>();
        select_lanes(o.dst, o.src0, o.lanes, [](uint32_t) { return compare_register().bytes; }, value);
    } else {
        const Range bits = o.read_bits(view_at(compare_register_as<uint32_t>()));
        select_lanes(
            o.dst, o.src0, o.lanes, [&](uint32_t r) { return ub() + bits.begin + r * o.bytes_per_repeat(); }, value);
    }
}

template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, uint8_t repeatTime,
            const BinaryRepeatParams& p, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Select, T);
    static_assert(std::is_unsigned_v<U>, "Select: the mask is of uint8_t, uint16_t, uint32_t or uint64_t");
    using namespace ascend_sim;
    start(Pipe::V, "Select", site);
    uses_reserved_ub("Select");
    const SelectOperands<T> o(dst, src0, p, repeatTime);
    const T scalar = compare_register_as<T>();
    const Range bits = o.read_bits(selMask.view());
    select_lanes(
        o.dst, o.src0, o.lanes, [&](uint32_t r) { return ub() + bits.begin + r * o.bytes_per_repeat(); },
        [=](uint32_t, uint32_t) { return scalar; });
}

}  // namespace AscendC
