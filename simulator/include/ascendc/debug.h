// Assertions, Trap, and functions that print.
//
// Rules: assertions hold, and the kernel does not reach Trap. A violation ends the core, even if the launch is lenient.
// Meaning: ASSERT, assert, ascendc_assert and ASCENDC_ASSERT evaluate their condition once. printf, PRINTF, DumpTensor
// and DumpAccChkPoint have no effect; an argument of a type that CANN's functions do not print does not compile.
// Cost: none, like all code of the scalar unit itself.
// Sources: the pages assert, ascendc_assert, Trap, printf, DumpTensor; asc-devkit impl/basic_api/kernel_log.h.
#pragma once

#include <cassert>  // before the macro below, which replaces its assert

#include "ascendc/shape.h"
#include "ascendc/tensor.h"
#include "kernel_log.h"

namespace ascend_sim {

inline void check_assertion(bool holds, const char* macro, const char* condition, Site site) {
    if (!holds) fatal_at(Rule::Assert01, macro, site, "`%s` does not hold.", condition);
}

// Whether CANN's functions print values of this type.
template <class T>
constexpr bool kPrints = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<std::decay_t<T>> ||
                         std::is_same_v<T, half> || kIsBfloat16<T>;

}  // namespace ascend_sim

#define ASCEND_SIM_ASSERT(macro, condition) \
    ::ascend_sim::check_assertion(bool(condition), macro, #condition, ::ascend_sim::Site::here())
#undef assert
#undef ASSERT
#define ASSERT(x) ASCEND_SIM_ASSERT("ASSERT", x)
// A format and its values may follow the condition.
#define assert(condition, ...) ASCEND_SIM_ASSERT("assert", condition)
#define ascendc_assert(condition, ...) ASCEND_SIM_ASSERT("ascendc_assert", condition)
// The other arguments are statements, which run if the condition does not hold.
#define ASCENDC_ASSERT(condition, ...)                                                                             \
    do {                                                                                                           \
        const bool ascend_sim_holds = bool(condition);                                                             \
        if (!ascend_sim_holds) {                                                                                   \
            __VA_ARGS__;                                                                                           \
        }                                                                                                          \
        ::ascend_sim::check_assertion(ascend_sim_holds, "ASCENDC_ASSERT", #condition, ::ascend_sim::Site::here()); \
    } while (false)

namespace AscendC {

inline void Trap(ASCEND_SIM_SITE) {
    ascend_sim::fatal_at(ascend_sim::Rule::Assert01, "Trap", site, "the kernel stops itself here.");
}

template <class... Args>
void printf(const char* /*fmt*/, Args&&... /*args*/) {
    static_assert((ascend_sim::kPrints<std::remove_cv_t<std::remove_reference_t<Args>>> && ...),
                  "printf prints numbers, strings and addresses");
}
template <class... Args>
void PRINTF(const char* fmt, Args&&... args) {
    printf(fmt, args...);
}

template <class T>
void DumpTensor(const LocalTensor<T>& /*tensor*/, uint32_t /*desc*/, uint32_t /*dumpSize*/) {}
template <class T>
void DumpTensor(const GlobalTensor<T>& /*tensor*/, uint32_t /*desc*/, uint32_t /*dumpSize*/) {}
template <class T>
void DumpTensor(const LocalTensor<T>& /*tensor*/, uint32_t /*desc*/, uint32_t /*dumpSize*/, const ShapeInfo&) {}
template <class T>
void DumpTensor(const GlobalTensor<T>& /*tensor*/, uint32_t /*desc*/, uint32_t /*dumpSize*/, const ShapeInfo&) {}
template <class T>
void DumpAccChkPoint(const LocalTensor<T>&, uint32_t /*index*/, uint32_t /*countOff*/, uint32_t /*dumpSize*/) {}
template <class T>
void DumpAccChkPoint(const GlobalTensor<T>&, uint32_t /*index*/, uint32_t /*countOff*/, uint32_t /*dumpSize*/) {}

}  // namespace AscendC
