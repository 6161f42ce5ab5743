// Definitions that CANN's kernel compiler puts before a kernel: tiling macros, numbers of data types, kernel types. The
// compiler's option -include tiling_prelude.h includes this header.
//
// GET_TILING_DATA reads the struct of REGISTER_TILING_DEFAULT. Without REGISTER_TILING_DEFAULT, it reads the struct
// AscendSimDefaultTiling. A header that is generated from the operator's host code defines it as the struct that the
// host registered.
#pragma once

#include <cstddef>
#include <type_traits>

#include "ascendc/tiling_struct.h"

#ifdef __clang__  // ascend_sim/compiler.py names gcc's option
#pragma clang diagnostic error "-Wframe-larger-than"
#endif

#ifndef __CCE_AICORE__
#error "__CCE_AICORE__ is not defined: compile kernels as ascend_sim.build does (220, 200 or 310)"
#endif
#ifndef __NPU_ARCH__
#if __CCE_AICORE__ == 220
#define __NPU_ARCH__ 2201
#elif __CCE_AICORE__ == 200
#define __NPU_ARCH__ 2002
#else
#define __NPU_ARCH__ 3510
#endif
#endif

// ---- ge::DataType, as macros: #if ORIG_DTYPE_X == DT_BF16 ----------------------------------------------

#ifndef ASCEND_SIM_PROGRAM  // host code in the same file has the enumeration
#define DT_FLOAT 0
#define DT_FLOAT16 1
#define DT_INT8 2
#define DT_INT32 3
#define DT_UINT8 4
#define DT_INT16 6
#define DT_UINT16 7
#define DT_UINT32 8
#define DT_INT64 9
#define DT_UINT64 10
#define DT_DOUBLE 11
#define DT_BOOL 12
#define DT_STRING 13
#define DT_COMPLEX64 16
#define DT_COMPLEX128 17
#define DT_BF16 27
#define DT_UNDEFINED 28
#define DT_INT4 29
#define DT_UINT1 30
#define DT_INT2 31
#define DT_UINT2 32
#define DT_COMPLEX32 33
#define DT_HIFLOAT8 34
#define DT_FLOAT8_E5M2 35
#define DT_FLOAT8_E4M3FN 36
#define DT_FLOAT8_E8M0 37
#define DT_FLOAT6_E3M2 38
#define DT_FLOAT6_E2M3 39
#define DT_FLOAT4_E2M1 40
#define DT_FLOAT4_E1M2 41
#endif

// ---- tiling data ---------------------------------------------------------------------------------------

namespace ascend_sim {

// Copies the tiling struct. Reports a pointer that is not the launch's tiling argument.
template <class S>
S read_tiling(const void* gm, Site site) {
    static_assert(check_tiling_struct<S>());
    expect_tiling(sizeof(S), site);
    S tiling;
    copy_tiling(&tiling, gm, sizeof tiling, site);
    return tiling;
}
template <class S, class Member>
Member read_tiling_member(const void* gm, uint64_t offset, Site site) {
    static_assert(check_tiling_struct<S>());
    expect_tiling(sizeof(S), site);
    Member member;
    copy_tiling(&member, static_cast<const uint8_t*>(gm) + offset, sizeof member, site);
    return member;
}
template <class S>
const S* tiling_pointer(const void* gm, Site site) {
    static_assert(check_tiling_struct<S>());
    expect_tiling(sizeof(S), site);
    return static_cast<const S*>(tiling_data(gm, sizeof(S), site));
}
// Copies a struct inside the tiling data.
template <class S>
S read_tiling_part(const void* gm, Site site) {
    static_assert(check_tiling_struct<S>());
    S part;
    copy_tiling(&part, gm, sizeof part, site);
    return part;
}

// Whether a tiling key begins with a digit. TILING_KEY_IS takes a literal, because CANN's tools read it from the
// source.
constexpr bool starts_with_digit(const char* text) {
    while (*text == '(' || *text == ' ') ++text;
    return *text >= '0' && *text <= '9';
}

}  // namespace ascend_sim

#define ASCEND_SIM_TEXT_OF(x) #x
#define ASCEND_SIM_TEXT(x) ASCEND_SIM_TEXT_OF(x)

// Selects S for a later GET_TILING_DATA in the same function.
#define REGISTER_TILING_DEFAULT(S)                                   \
    using AscendSimDefaultTiling [[maybe_unused]] = S;               \
    static_assert(::ascend_sim::check_tiling_struct<S>(), "tiling"); \
    ::ascend_sim::register_tiling(sizeof(S), ::ascend_sim::Site::here())
#define REGISTER_TILING_FOR_TILINGKEY(condition, S)                                           \
    static_assert(sizeof(condition) > 1 && ::ascend_sim::check_tiling_struct<S>(), "tiling"); \
    ::ascend_sim::register_tiling(sizeof(S), ::ascend_sim::Site::here())
#define REGISTER_NONE_TILING static_assert(true, "no tiling")

#define GET_TILING_DATA(name, tiling) \
    AscendSimDefaultTiling name = ::ascend_sim::read_tiling<AscendSimDefaultTiling>(tiling, ::ascend_sim::Site::here())
#define GET_TILING_DATA_WITH_STRUCT(S, name, tiling) \
    S name = ::ascend_sim::read_tiling<S>(tiling, ::ascend_sim::Site::here())
#define GET_TILING_DATA_MEMBER(S, member, name, tiling)                                          \
    auto name = ::ascend_sim::read_tiling_member<S, decltype(static_cast<S*>(nullptr)->member)>( \
        tiling, offsetof(S, member), ::ascend_sim::Site::here())
// Declare a pointer to the tiling data, and a pointer to a copy of a struct inside it.
#define GET_TILING_DATA_PTR_WITH_STRUCT(S, name, tiling) \
    const S* name = ::ascend_sim::tiling_pointer<S>(tiling, ::ascend_sim::Site::here())
#define COPY_TILING_WITH_STRUCT(S, source, name)                                                 \
    const S name##_copy = ::ascend_sim::read_tiling_part<S>(source, ::ascend_sim::Site::here()); \
    const S* name = &name##_copy

// ---- tiling keys ---------------------------------------------------------------------------------------

#define TILING_KEY_IS(key)                                                                                            \
    ([] { static_assert(::ascend_sim::starts_with_digit(ASCEND_SIM_TEXT(key)), "TILING_KEY_IS takes a literal"); }(), \
     ::ascend_sim::tiling_key_is(key))
#define TILING_KEY_LIST(...) static_assert(true, "tiling keys")

// ---- kernel types --------------------------------------------------------------------------------------

enum KernelMetaType : int {
    KERNEL_TYPE_AIV_ONLY,
    KERNEL_TYPE_AIC_ONLY,
    KERNEL_TYPE_MIX_AIV_1_0,
    KERNEL_TYPE_MIX_AIC_1_0,
    KERNEL_TYPE_MIX_AIC_1_1,
    KERNEL_TYPE_MIX_AIC_1_2,
    KERNEL_TYPE_AICORE,
    KERNEL_TYPE_VECTORCORE,
    KERNEL_TYPE_MIX_AICORE,
    KERNEL_TYPE_MIX_VECTOR_CORE,
    KERNEL_TYPE_MAX
};

namespace ascend_sim {

// The simulator runs the AI cores of Ascend310P, without their cube unit, and the vector cores of the other SoCs.
constexpr bool needs_cube_cores(KernelMetaType type) {
    return type == KERNEL_TYPE_AIC_ONLY || type == KERNEL_TYPE_MIX_AIC_1_0 || type == KERNEL_TYPE_MIX_AIC_1_1 ||
           type == KERNEL_TYPE_MIX_AIC_1_2;
}
// Whether the page 设置Kernel类型 lists the type for the SoC.
constexpr bool is_documented(KernelMetaType type) {
    return __CCE_AICORE__ == 200 ? type == KERNEL_TYPE_AICORE || type == KERNEL_TYPE_MIX_VECTOR_CORE
                                 : type == KERNEL_TYPE_AIV_ONLY || type == KERNEL_TYPE_MIX_AIV_1_0;
}
// Whether the type starts the scheduler between cores. Source: the page of CrossCoreSetFlag.
constexpr bool starts_scheduler(KernelMetaType type) { return type != KERNEL_TYPE_AIV_ONLY; }

}  // namespace ascend_sim

#define KERNEL_TASK_TYPE_DEFAULT(type)                                                                            \
    static_assert(!::ascend_sim::needs_cube_cores(type), #type ": the simulator has vector cores only, no cube"); \
    ::ascend_sim::set_kernel_type(#type, ::ascend_sim::is_documented(type), ::ascend_sim::starts_scheduler(type), \
                                  ::ascend_sim::Site::here())
#define KERNEL_TASK_TYPE(key, type)                                                                               \
    ::ascend_sim::set_kernel_type_of_key(key, #type, ::ascend_sim::needs_cube_cores(type),                        \
                                         ::ascend_sim::is_documented(type), ::ascend_sim::starts_scheduler(type), \
                                         ::ascend_sim::Site::here())
