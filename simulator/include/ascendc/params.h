// The parameter structs of AscendC. Their fields report values that do not fit them.
#pragma once

#include <limits>

#include "ascendc/constants.h"

namespace ascend_sim {

template <class Integer, Rule rule>
class Field;

// A value to assign to a field of type Integer. If it does not fit, this is reported with the line of the assignment;
// the hardware would truncate it silently.
template <class Integer, Rule rule>
class FieldValue {
public:
    template <class Value, class = std::enable_if_t<std::is_integral_v<Value>>>
    constexpr FieldValue(Value value, ASCEND_SIM_SITE) : value_(Integer(value)) {
        if (!fits(value))
            broken_at(rule, "a parameter struct", site, "a field must be %lld .. %llu but got %lld.",
                      static_cast<long long>(std::numeric_limits<Integer>::min()),
                      static_cast<unsigned long long>(std::numeric_limits<Integer>::max()),
                      static_cast<long long>(value));
    }
    template <class Other, Rule other_rule>
    constexpr FieldValue(const Field<Other, other_rule>& value, ASCEND_SIM_SITE) : FieldValue(Other(value), site) {}
    constexpr operator Integer() const { return value_; }

private:
    template <class Value>
    static constexpr bool fits(Value value) {
        using Limits = std::numeric_limits<Integer>;
        if constexpr (std::is_signed_v<Value> && std::is_unsigned_v<Integer>)
            return value >= 0 && static_cast<unsigned long long>(value) <= Limits::max();
        else if constexpr (std::is_unsigned_v<Value>)
            return value <= static_cast<unsigned long long>(Limits::max());
        else
            return value >= Limits::min() && value <= Limits::max();
    }
    Integer value_;
};

// The right operand of += and similar operators of a field. It may be negative, and has the line of the operation.
struct FieldOperand {
    template <class Value, class = std::enable_if_t<std::is_integral_v<Value>>>
    constexpr FieldOperand(Value operand, ASCEND_SIM_SITE) : value(int64_t(operand)), site(site) {}
    template <class Other, Rule other_rule>
    constexpr FieldOperand(const Field<Other, other_rule>& field, ASCEND_SIM_SITE) : FieldOperand(Other(field), site) {}
    int64_t value;
    Site site;
};

// A field of a parameter struct: an integer that is assigned through FieldValue.
template <class Integer, Rule rule>
class Field {
public:
    constexpr Field() = default;
    constexpr explicit Field(const FieldValue<Integer, rule>& value) : value_(value) {}
    constexpr Field& operator=(const FieldValue<Integer, rule>& value) {
        value_ = value;
        return *this;
    }
    constexpr operator Integer() const { return value_; }

    constexpr Field& operator+=(const FieldOperand& right) { return assign(as_int64() + right.value, right.site); }
    constexpr Field& operator-=(const FieldOperand& right) { return assign(as_int64() - right.value, right.site); }
    constexpr Field& operator*=(const FieldOperand& right) { return assign(as_int64() * right.value, right.site); }
    constexpr Field& operator/=(const FieldOperand& right) { return assign(as_int64() / right.value, right.site); }
    constexpr Field& operator%=(const FieldOperand& right) { return assign(as_int64() % right.value, right.site); }
    constexpr Field& operator<<=(const FieldOperand& right) { return assign(as_int64() << right.value, right.site); }
    constexpr Field& operator>>=(const FieldOperand& right) { return assign(as_int64() >> right.value, right.site); }
    constexpr Field& operator|=(const FieldOperand& right) { return assign(as_int64() | right.value, right.site); }
    constexpr Field& operator&=(const FieldOperand& right) { return assign(as_int64() & right.value, right.site); }
    constexpr Field& operator^=(const FieldOperand& right) { return assign(as_int64() ^ right.value, right.site); }
    // These operators have no parameter for the caller's line.
    constexpr Field& operator++() { return assign(as_int64() + 1, kUnknownSite); }
    constexpr Field& operator--() { return assign(as_int64() - 1, kUnknownSite); }
    constexpr Integer operator++(int) {
        const Integer before = value_;
        ++*this;
        return before;
    }
    constexpr Integer operator--(int) {
        const Integer before = value_;
        --*this;
        return before;
    }

private:
    constexpr int64_t as_int64() const { return int64_t(value_); }
    constexpr Field& assign(int64_t value, Site site) { return *this = FieldValue<Integer, rule>(value, site); }
    Integer value_ = 0;
};

template <class I>
using Stride = FieldValue<I, Rule::Stride01>;
template <class I>
using StrideField = Field<I, Rule::Stride01>;
template <class I>
using CopySize = FieldValue<I, Rule::Count03>;
template <class I>
using CopySizeField = Field<I, Rule::Count03>;

// A repeatTime argument before the conversion to the 8 bits of the hardware, so that 256 is reported instead of
// becoming 0.
class RepeatTime {
public:
    template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
    constexpr RepeatTime(I value) : value_(uint64_t(value)) {}
    template <class I, Rule rule>
    constexpr RepeatTime(const Field<I, rule>& value) : value_(uint64_t(I(value))) {}
    constexpr operator uint64_t() const { return value_; }

private:
    uint64_t value_;
};

// The mask argument of a repeat form: a number of lanes, or an array with a bit for each lane. Word is const if CANN's
// parameter is an array of const.
template <class Word>
struct MaskOf {
    MaskOf(uint64_t lanes) : count(lanes) {}
    MaskOf(Word* words) : bits(words), is_bits(true) {}
    template <class I, Rule rule>
    MaskOf(const Field<I, rule>& value) : count(I(value)) {}
    uint64_t count = 0;
    const uint64_t* bits = nullptr;
    bool is_bits = false;
};
using Mask = MaskOf<uint64_t>;
using ConstMask = MaskOf<const uint64_t>;

}  // namespace ascend_sim

namespace AscendC {

// ---- vector instructions: strides are from start to start, in 32-byte blocks -----------------------

struct BinaryRepeatParams {
    BinaryRepeatParams() = default;
    BinaryRepeatParams(ascend_sim::Stride<uint8_t> dstBlk, ascend_sim::Stride<uint8_t> src0Blk,
                       ascend_sim::Stride<uint8_t> src1Blk, ascend_sim::Stride<uint8_t> dstRep,
                       ascend_sim::Stride<uint8_t> src0Rep, ascend_sim::Stride<uint8_t> src1Rep)
        : dstBlkStride(dstBlk),
          src0BlkStride(src0Blk),
          src1BlkStride(src1Blk),
          dstRepStride(dstRep),
          src0RepStride(src0Rep),
          src1RepStride(src1Rep) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    ascend_sim::StrideField<uint8_t> dstBlkStride{1}, src0BlkStride{1}, src1BlkStride{1};
    ascend_sim::StrideField<uint8_t> dstRepStride{8}, src0RepStride{8}, src1RepStride{8};
    bool repeatStrideMode = false, strideSizeMode = false;
};

struct UnaryRepeatParams {
    UnaryRepeatParams() = default;
    UnaryRepeatParams(ascend_sim::Stride<uint16_t> dstBlk, ascend_sim::Stride<uint16_t> srcBlk,
                      ascend_sim::Stride<uint8_t> dstRep, ascend_sim::Stride<uint8_t> srcRep, bool half = false)
        : dstBlkStride(dstBlk), srcBlkStride(srcBlk), dstRepStride(dstRep), srcRepStride(srcRep), halfBlock(half) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    ascend_sim::StrideField<uint16_t> dstBlkStride{1}, srcBlkStride{1};
    ascend_sim::StrideField<uint8_t> dstRepStride{8}, srcRepStride{8};
    bool repeatStrideMode = false, strideSizeMode = false, halfBlock = false;
};

struct CopyRepeatParams {
    CopyRepeatParams() = default;
    CopyRepeatParams(ascend_sim::Stride<uint16_t> dst, ascend_sim::Stride<uint16_t> src,
                     ascend_sim::Stride<uint16_t> dstRepeat, ascend_sim::Stride<uint16_t> srcRepeat)
        : dstStride(dst), srcStride(src), dstRepeatSize(dstRepeat), srcRepeatSize(srcRepeat) {}
    ascend_sim::StrideField<uint16_t> dstStride{0}, srcStride{0};  // must be set: a destination's stride 0 is an error
    ascend_sim::StrideField<uint16_t> dstRepeatSize{8}, srcRepeatSize{8};
};

struct GatherRepeatParams {
    GatherRepeatParams() = default;
    GatherRepeatParams(ascend_sim::Stride<uint8_t> dstBlk, ascend_sim::Stride<uint8_t> dstRep)
        : dstRepStride(uint8_t(dstRep)), dstBlkStride(dstBlk) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    ascend_sim::StrideField<uint16_t> dstRepStride{8};
    ascend_sim::StrideField<uint8_t> dstBlkStride{1}, src0BlkStride{1}, src1BlkStride{1};
    ascend_sim::StrideField<uint8_t> src0RepStride{8}, src1RepStride{8};
    bool repeatStrideMode = false, strideSizeMode = false;
};

struct BrcbRepeatParams {
    BrcbRepeatParams() = default;
    BrcbRepeatParams(ascend_sim::Stride<uint16_t> dstBlk, ascend_sim::Stride<uint16_t> dstRep)
        : dstBlkStride(dstBlk), dstRepStride(dstRep) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    ascend_sim::StrideField<uint16_t> dstBlkStride{1}, dstRepStride{8};
};

struct GatherMaskParams {
    GatherMaskParams() = default;
    GatherMaskParams(ascend_sim::Stride<uint8_t> src0Block, ascend_sim::CopySize<uint16_t> repeats,
                     ascend_sim::Stride<uint16_t> src0Repeat, ascend_sim::Stride<uint8_t> src1Repeat)
        : src0BlockStride(src0Block),
          repeatTimes(repeats),
          src0RepeatStride(src0Repeat),
          src1RepeatStride(src1Repeat) {}
    ascend_sim::StrideField<uint8_t> src0BlockStride{1};
    ascend_sim::CopySizeField<uint16_t> repeatTimes{0};
    ascend_sim::StrideField<uint16_t> src0RepeatStride{8};
    ascend_sim::StrideField<uint8_t> src1RepeatStride{8};
};

// ---- copies: strides are gaps, from the end of a burst to the start of the next ---------------------

// blockLen and gaps are in 32-byte blocks. For DataCopyPad, blockLen and the gap in GM are in bytes.
struct DataCopyParams {
    DataCopyParams() {}  // a defaulted constructor would be deleted, because the unions' members have constructors
    DataCopyParams(ascend_sim::CopySize<uint16_t> count, ascend_sim::CopySize<uint16_t> len,
                   ascend_sim::CopySize<uint16_t> srcGap_, ascend_sim::CopySize<uint16_t> dstGap_)
        : blockCount(count), blockLen(len), srcStride(srcGap_), dstStride(dstGap_) {}
    ascend_sim::CopySizeField<uint16_t> blockCount{1}, blockLen{0};
    union {
        ascend_sim::CopySizeField<uint16_t> srcStride{0};
        ascend_sim::CopySizeField<uint16_t> srcGap;
    };
    union {
        ascend_sim::CopySizeField<uint16_t> dstStride{0};
        ascend_sim::CopySizeField<uint16_t> dstGap;
    };
};

struct DataCopyPadParams {
    DataCopyPadParams() = default;
    DataCopyPadParams(bool pad, ascend_sim::CopySize<uint8_t> left, ascend_sim::CopySize<uint8_t> right, uint64_t value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
    bool isPad = false;
    ascend_sim::CopySizeField<uint8_t> leftPadding{0}, rightPadding{0};
    uint64_t paddingValue = 0;
};

// blockLen and the gap in GM are in bytes, the gap in UB in 32-byte blocks. On Ascend950 gaps may be negative.
struct DataCopyExtParams {
    using GapInteger = std::conditional_t<ascend_sim::kIs950, int64_t, uint32_t>;
    using Gap = ascend_sim::CopySize<GapInteger>;
    DataCopyExtParams() = default;
    DataCopyExtParams(ascend_sim::CopySize<uint16_t> count, ascend_sim::CopySize<uint32_t> len, Gap src, Gap dst,
                      ascend_sim::CopySize<uint32_t> reserved)
        : blockCount(count), blockLen(len), srcStride(src), dstStride(dst), rsv(reserved) {}
    ascend_sim::CopySizeField<uint16_t> blockCount{1};
    ascend_sim::CopySizeField<uint32_t> blockLen{0};
    ascend_sim::CopySizeField<GapInteger> srcStride{0}, dstStride{0};
    ascend_sim::CopySizeField<uint32_t> rsv{0};
};

template <class T>
struct DataCopyPadExtParams {
    DataCopyPadExtParams() = default;
    DataCopyPadExtParams(bool pad, ascend_sim::CopySize<uint8_t> left, ascend_sim::CopySize<uint8_t> right, T value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
    bool isPad = false;
    ascend_sim::CopySizeField<uint8_t> leftPadding{0}, rightPadding{0};
    T paddingValue{};
};

}  // namespace AscendC
