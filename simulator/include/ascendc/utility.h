// Helpers of CANN's kernel headers: branch hints, divisions that round up, comparisons of types.
//
// Sources: asc-devkit impl/basic_api/utils/kernel_utils_macros.h, kernel_utils_ceil_oom_que.h. CeilDivision's page
// gives 0 for the divisor 0.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ascendc/types.h"

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

// Loads code into the instruction cache, which the simulator does not have.
#define PRELOAD(blocks) ((void)(blocks))

namespace AscendC {

constexpr uint32_t DivCeil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
constexpr uint32_t AlignUp(uint32_t a, uint32_t b) { return DivCeil(a, b) * b; }
constexpr uint32_t ConstCeil(uint32_t a, uint32_t b) { return DivCeil(a, b); }
constexpr uint32_t Ceil(uint32_t a, uint32_t b) { return DivCeil(a, b); }
constexpr int32_t CeilDivision(int32_t num1, int32_t num2) { return num2 == 0 ? 0 : (num1 + num2 - 1) / num2; }

template <bool b>
struct BoolInst {
    using Type = BoolInst<b>;
    static constexpr bool value = b;
};
using TrueType = BoolInst<true>;
using FalseType = BoolInst<false>;

template <class T, class U>
struct IsSameType : BoolInst<std::is_same_v<T, U>> {};

// `type` is T if the condition holds, and U otherwise.
template <bool condition, class T, class U>
struct Conditional {
    using type = std::conditional_t<condition, T, U>;
};

// SupportType: whether T is one of the types. SupportBytes: whether it has one of the sizes.
template <class T, class... Types>
constexpr bool SupportType() {
    return (std::is_same_v<T, Types> || ...);
}
template <class T, int... sizes>
constexpr bool SupportBytes() {
    return ((sizeof(T) == sizes) || ...);
}

}  // namespace AscendC
