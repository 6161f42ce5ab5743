// Qualifiers, scalar types and enumerations of AscendC.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ascendc/availability.h"
#include "ascendc/runtime.h"

#ifndef __CCE_AICORE__
#error "__CCE_AICORE__ is not defined: compile kernels as ascend_sim.build does (220, 200 or 310)"
#endif

#define __aicore__
#define __global__ __attribute__((visibility("default")))
#define __vector__
#define __gm__
#define __ubuf__
#define GM_ADDR uint8_t*
#define UB_ADDR uint8_t*

namespace ascend_sim {

constexpr int kArch = __CCE_AICORE__;  // 220: Ascend910B, 910_93; 200: Ascend310P; 310: Ascend950
constexpr bool kIs910b = kArch == 220, kIs310p = kArch == 200, kIs950 = kArch == 310;
static_assert(kIs910b || kIs310p || kIs950, "__CCE_AICORE__ must be 220, 200 or 310");

template <class T, class... Allowed>
constexpr bool kIsOneOf = (std::is_same_v<T, Allowed> || ...);

// ---- binary16 and bfloat16, bit by bit --------------------------------------------------------

// The bits of a value as another type.
template <class To, class From>
constexpr To bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}

// condition ? if_true : if_false without a branch, so that compilers vectorise loops over it. The callers' conditions
// compare signed integers or floats, which every vector unit supports.
constexpr int32_t pick(bool condition, int32_t if_true, int32_t if_false) {
    const int32_t all_ones_if_true = -int32_t(condition);
    return (if_true & all_ones_if_true) | (if_false & ~all_ones_if_true);
}

// In these conversions 0x7f800000 is float's infinity, 0x7c00 half's; 0x8000 is the sign bit of 16 bits. The mantissa
// of float has 13 bits more than half's, and its exponent's bias is larger by 112.
constexpr float half_to_float(uint16_t raw) {
    const int32_t magnitude = int32_t(raw & 0x7fff) << 13;
    const float scaled = bits<float>(magnitude) * 0x1p112f;  // exact, also for subnormals
    const int32_t special = pick(magnitude >= (0x7c00 << 13), magnitude | 0x7f800000, bits<int32_t>(scaled));
    return bits<float>(special | int32_t(uint32_t(raw & 0x8000) << 16));
}

// Round to nearest even; overflow to infinity, NaN stays NaN.
constexpr uint16_t float_to_half(float value) {
    const int32_t raw = bits<int32_t>(value), magnitude = raw & 0x7fffffff;
    // The first product is infinity if the value is too large for half. The second one is 4 times the value.
    const float scaled = (bits<float>(magnitude) * 0x1p112f) * 0x1p-110f;
    const int32_t exponent = magnitude & 0x7f800000;
    // Adding 2^15 times the value's power of two rounds the sum to a float. This keeps ten bits of the mantissa. Below
    // 2^-14, whose bits are 0x38800000, it keeps the bits down to 2^-24.
    const int32_t large = pick(exponent > 0x38800000, exponent, 0x38800000) + 0x07800000;  // times 2^15
    const int32_t sum = bits<int32_t>(scaled + bits<float>(large));
    const int32_t rounded = (sum >> 13 & 0x7c00) + (sum & 0xfff);
    return uint16_t(pick(magnitude > 0x7f800000, 0x7e00, rounded) | (raw >> 16 & 0x8000));
}

constexpr float bfloat16_to_float(uint16_t raw) { return bits<float>(uint32_t(raw) << 16); }

// Round to nearest even; a NaN gets the quiet bit, 0x40.
constexpr uint16_t float_to_bfloat16(float value) {
    const uint32_t raw = bits<uint32_t>(value);
    const uint32_t rounded = (raw + 0x7fff + (raw >> 16 & 1)) >> 16;
    return uint16_t(pick(int32_t(raw & 0x7fffffff) > 0x7f800000, int32_t(raw >> 16 | 0x40), int32_t(rounded)));
}

}  // namespace ascend_sim

// The bits of a half, with conversions: every operation computes in float and rounds once.
struct half {
    uint16_t raw;
    half() = default;
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    constexpr half(Number value) : raw(ascend_sim::float_to_half(float(value))) {}
    constexpr operator float() const { return ascend_sim::half_to_float(raw); }
};
static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>);

using float32_t = float;  // source: asc-tools cpudebug/include/stub_def.h

#if __CCE_AICORE__ != 200  // Ascend310P has no bfloat16: its use is a compile error, as with CANN's compiler
struct bfloat16_t {
    uint16_t raw;
    bfloat16_t() = default;
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    constexpr bfloat16_t(Number value) : raw(ascend_sim::float_to_bfloat16(float(value))) {}
    constexpr operator float() const { return ascend_sim::bfloat16_to_float(raw); }
};
static_assert(sizeof(bfloat16_t) == 2);

// Source: CANN's page on scalars (cceprogram_0016), which allows bfloat16 only in transfers.
#define ASCEND_SIM_NO_BFLOAT16(symbol, Left)                                                                     \
    template <class A, class B,                                                                                  \
              class = std::enable_if_t<std::is_same_v<A, bfloat16_t> || std::is_same_v<B, bfloat16_t>>>          \
    constexpr float operator symbol(Left, const B&) {                                                            \
        static_assert(sizeof(A) == 0, "operator" #symbol ": the scalar unit has none for bfloat16_t (ToFloat)"); \
        return 0;                                                                                                \
    }
ASCEND_SIM_NO_BFLOAT16(+, const A&)
ASCEND_SIM_NO_BFLOAT16(-, const A&)
ASCEND_SIM_NO_BFLOAT16(*, const A&)
ASCEND_SIM_NO_BFLOAT16(/, const A&)
ASCEND_SIM_NO_BFLOAT16(<, const A&)
ASCEND_SIM_NO_BFLOAT16(>, const A&)
ASCEND_SIM_NO_BFLOAT16(<=, const A&)
ASCEND_SIM_NO_BFLOAT16(>=, const A&)
ASCEND_SIM_NO_BFLOAT16(==, const A&)
ASCEND_SIM_NO_BFLOAT16(!=, const A&)
ASCEND_SIM_NO_BFLOAT16(+=, A&)
ASCEND_SIM_NO_BFLOAT16(-=, A&)
ASCEND_SIM_NO_BFLOAT16(*=, A&)
ASCEND_SIM_NO_BFLOAT16(/=, A&)
#undef ASCEND_SIM_NO_BFLOAT16
template <class A, class = std::enable_if_t<std::is_same_v<A, bfloat16_t>>>
constexpr float operator-(const A&) {
    static_assert(sizeof(A) == 0, "operator-: the scalar unit has none for bfloat16_t (ToFloat)");
    return 0;
}
#endif

// A signed integer of four bits. A tensor has two elements in a byte, the first one in the low bits.
struct int4b_t {
    uint8_t storage;
    int4b_t() = default;
    template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
    constexpr int4b_t(Integer value) : storage(uint8_t(value) & 15) {}
    constexpr operator int8_t() const { return int8_t((storage ^ 8) - 8); }  // extends the sign
};

namespace ascend_sim {
template <class T>
constexpr bool kIsInt4 = std::is_same_v<T, int4b_t>;

// The bytes of a number of elements, and the elements of a number of bytes.
template <class T>
constexpr uint64_t bytes_of(uint64_t elements) {
    return kIsInt4<T> ? elements / 2 : elements * sizeof(T);
}
template <class T>
constexpr uint64_t elements_of(uint64_t bytes) {
    return kIsInt4<T> ? bytes * 2 : bytes / sizeof(T);
}

template <class>
constexpr bool kIsBfloat16 = false;
#if __CCE_AICORE__ != 200
template <>
inline constexpr bool kIsBfloat16<bfloat16_t> = true;
#endif

// The SoC that the kernel is compiled for, as in availability.h.
constexpr SocColumn kSocColumn = soc_column_of(kArch);

template <class T>
constexpr Element element_of() {
    if (std::is_same_v<T, bool>) return Element::Bool;
    if (std::is_same_v<T, half>) return Element::Half;
    if (kIsBfloat16<T>) return Element::Bfloat16;
    if (std::is_same_v<T, float>) return Element::Float;
    if (std::is_same_v<T, double>) return Element::Double;
    if (kIsInt4<T>) return Element::Int4;
    if (!std::is_integral_v<T>) return Element::Other;
    constexpr Element kSigned[] = {Element::Int8, Element::Int16, Element::Int32, Element::Int64},
                      kUnsigned[] = {Element::Uint8, Element::Uint16, Element::Uint32, Element::Uint64};
    constexpr int kSize = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kSize] : kUnsigned[kSize];
}

// Whether this SoC has the instruction for the type. If the type does not matter, every type matches.
template <class T, Api api>
constexpr bool kTakes = takes(api, kSocColumn, element_of<T>());

// Whether this SoC has the instruction for any type. It depends on T so that it is evaluated at a call.
template <class T, Api api>
constexpr bool kExists = has(api, kSocColumn);
}  // namespace ascend_sim

#define ASCEND_SIM_NEEDS(Name, T)                                                                                 \
    static_assert(ascend_sim::kExists<T, ascend_sim::Api::Name>, #Name ": this SoC does not have it");            \
    static_assert(!ascend_sim::kExists<T, ascend_sim::Api::Name> || ascend_sim::kTakes<T, ascend_sim::Api::Name>, \
                  #Name ": this SoC does not have it for this type")

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_M, PIPE_MTE1, PIPE_FIX, PIPE_ALL };

// The compiler's type of an event id.
enum event_t : int32_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

namespace AscendC {

using ::int4b_t;

enum class TPosition : uint8_t {
    GM,
    A1,
    A2,
    B1,
    B2,
    C1,
    C2,
    CO1,
    CO2,
    VECIN,
    VECOUT,
    VECCALC,
    LCM = VECCALC,
    SPM,
    SHM = SPM,
    TSCM,
    C2PIPE2GM,
    C2PIPE2LOCAL,
    MAX
};
using QuePosition = TPosition;
enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };
using TTagType = int32_t;

enum class HardEvent : uint8_t {
    S_V,
    S_MTE2,
    S_MTE3,
    V_S,
    V_MTE2,
    V_MTE3,
    MTE2_S,
    MTE2_V,
    MTE2_MTE3,
    MTE3_S,
    MTE3_V,
    MTE3_MTE2
};
using TEventID = int8_t;
using ::EVENT_ID0, ::EVENT_ID1, ::EVENT_ID2, ::EVENT_ID3, ::EVENT_ID4, ::EVENT_ID5, ::EVENT_ID6, ::EVENT_ID7;

enum class RoundMode : uint8_t {
    CAST_NONE,
    CAST_RINT,
    CAST_FLOOR,
    CAST_CEIL,
    CAST_ROUND,
    CAST_TRUNC,
    CAST_ODD,
    CAST_HYBRID
};
enum class CMPMODE : uint8_t { LT, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class MaskMode : uint8_t { NORMAL, COUNTER };
enum class CacheLine : uint64_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE = 0, CACHE_MODE_NORMAL = 1, CACHE_MODE_PERSISTENT = 4 };
enum class CacheRwMode : uint8_t { READ = 1, WRITE, RW };
enum class MemDsbT : uint8_t { ALL, DDR, UB, SEQ };

}  // namespace AscendC
