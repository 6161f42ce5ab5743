// The kernel's side of tiling keys by template arguments. The host encodes and decodes keys by the declarations. Here
// the declarations are empty, because a kernel is compiled for the arguments of one key.
// Sources: asc-devkit include/utils/tiling/template_argument.h; page 模板参数定义.
#pragma once

#include "ascendc/types.h"

#define ASCENDC_TPL_1_BW 1
#define ASCENDC_TPL_2_BW 2
#define ASCENDC_TPL_4_BW 4
#define ASCENDC_TPL_8_BW 8

#define ASCENDC_TPL_INPUT(x) (100000000 + (x))
#define ASCENDC_TPL_OUTPUT(x) (900000000 + (x))

#define ASCENDC_TPL_UI_RANGE 0
#define ASCENDC_TPL_UI_LIST 1
#define ASCENDC_TPL_UI_MIX 2

#define ASCENDC_TPL_AIV_ONLY 0
#define ASCENDC_TPL_AIC_ONLY 1
#define ASCENDC_TPL_MIX_AIV_1_0 4
#define ASCENDC_TPL_MIX_AIC_1_0 5
#define ASCENDC_TPL_MIX_AIC_1_1 6
#define ASCENDC_TPL_MIX_AIC_1_2 7
#define ASCENDC_TPL_AICORE 8
#define ASCENDC_TPL_VECTORCORE 9
#define ASCENDC_TPL_MIX_AICORE 10
#define ASCENDC_TPL_MIX_VECTOR_CORE 11

// With ASCENDC_TPL_PRE the file is only preprocessed: ascend_sim/template_arguments.py reads the declarations from the
// result, as CANN's compiler does.
#ifdef ASCENDC_TPL_PRE
#define ASCEND_SIM_TPL(kind, name, bits, ...) @kind name bits(__VA_ARGS__)
#define ASCENDC_TPL_DTYPE_DECL(x, ...) ASCEND_SIM_TPL(DTYPE, #x, 8, __VA_ARGS__)
#define ASCENDC_TPL_DATATYPE_DECL(x, ...) ASCEND_SIM_TPL(DATATYPE, #x, 8, __VA_ARGS__)
#define ASCENDC_TPL_FORMAT_DECL(x, ...) ASCEND_SIM_TPL(FORMAT, #x, 8, __VA_ARGS__)
#define ASCENDC_TPL_UINT_DECL(x, bits, ...) ASCEND_SIM_TPL(UINT, #x, bits, __VA_ARGS__)
#define ASCENDC_TPL_BOOL_DECL(x, ...) ASCEND_SIM_TPL(BOOL, #x, 1, __VA_ARGS__)
#define ASCENDC_TPL_KERNEL_TYPE_DECL(x, ...) ASCEND_SIM_TPL(SHARED_KERNEL_TYPE, #x, 8, __VA_ARGS__)

#define ASCENDC_TPL_DTYPE_SEL(x, ...) ASCEND_SIM_TPL(DTYPE, #x, 0, __VA_ARGS__)
#define ASCENDC_TPL_DATATYPE_SEL(x, ...) ASCEND_SIM_TPL(DATATYPE, #x, 0, __VA_ARGS__)
#define ASCENDC_TPL_FORMAT_SEL(x, ...) ASCEND_SIM_TPL(FORMAT, #x, 0, __VA_ARGS__)
#define ASCENDC_TPL_UINT_SEL(x, ...) ASCEND_SIM_TPL(UINT, #x, 0, __VA_ARGS__)
#define ASCENDC_TPL_BOOL_SEL(x, ...) ASCEND_SIM_TPL(BOOL, #x, 0, __VA_ARGS__)
#define ASCENDC_TPL_TILING_STRUCT_SEL(...) ASCEND_SIM_TPL(TILING_STRUCT, "", 0, __VA_ARGS__)
#define ASCENDC_TPL_KERNEL_TYPE_SEL(...) ASCEND_SIM_TPL(KERNEL_TYPE, "", 0, __VA_ARGS__)
#define ASCENDC_TPL_DETERMINISTIC_SEL(...) ASCEND_SIM_TPL(DETERMINISTIC, "", 0, __VA_ARGS__)
#define ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL(x, ...) ASCEND_SIM_TPL(SHARED_KERNEL_TYPE, #x, 0, __VA_ARGS__)

#define ASCENDC_TPL_ARGS_DECL(x, ...) @declared __VA_ARGS__ @end
#define ASCENDC_TPL_ARGS_SEL(...) @combination __VA_ARGS__
#define ASCENDC_TPL_SEL(...) @selected __VA_ARGS__ @end
#else
#define ASCENDC_TPL_DTYPE_DECL(...)
#define ASCENDC_TPL_DATATYPE_DECL(...)
#define ASCENDC_TPL_FORMAT_DECL(...)
#define ASCENDC_TPL_UINT_DECL(...)
#define ASCENDC_TPL_BOOL_DECL(...)
#define ASCENDC_TPL_KERNEL_TYPE_DECL(...)

#define ASCENDC_TPL_DTYPE_SEL(...)
#define ASCENDC_TPL_DATATYPE_SEL(...)
#define ASCENDC_TPL_FORMAT_SEL(...)
#define ASCENDC_TPL_UINT_SEL(...)
#define ASCENDC_TPL_BOOL_SEL(...)
#define ASCENDC_TPL_TILING_STRUCT_SEL(...)
#define ASCENDC_TPL_KERNEL_TYPE_SEL(...)
#define ASCENDC_TPL_DETERMINISTIC_SEL(...)
#define ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL(...)

#define ASCENDC_TPL_ARGS_DECL(...)
#define ASCENDC_TPL_ARGS_SEL(...)
#define ASCENDC_TPL_SEL(...)
#endif

// The C++ type of a data type that is a template argument.
template <int dataTypeId>
struct TypeFromId {
    using type = void;
};
#define ASCEND_SIM_TYPE_FROM_ID(id, T) \
    template <>                        \
    struct TypeFromId<id> {            \
        using type = T;                \
    }
ASCEND_SIM_TYPE_FROM_ID(DT_FLOAT, float);
ASCEND_SIM_TYPE_FROM_ID(DT_FLOAT16, half);
ASCEND_SIM_TYPE_FROM_ID(DT_INT8, int8_t);
ASCEND_SIM_TYPE_FROM_ID(DT_INT32, int32_t);
ASCEND_SIM_TYPE_FROM_ID(DT_UINT8, uint8_t);
ASCEND_SIM_TYPE_FROM_ID(DT_INT16, int16_t);
ASCEND_SIM_TYPE_FROM_ID(DT_UINT16, uint16_t);
ASCEND_SIM_TYPE_FROM_ID(DT_UINT32, uint32_t);
ASCEND_SIM_TYPE_FROM_ID(DT_INT64, int64_t);
ASCEND_SIM_TYPE_FROM_ID(DT_UINT64, uint64_t);
ASCEND_SIM_TYPE_FROM_ID(DT_DOUBLE, double);
ASCEND_SIM_TYPE_FROM_ID(DT_BOOL, bool);
#if __CCE_AICORE__ != 200
ASCEND_SIM_TYPE_FROM_ID(DT_BF16, bfloat16_t);
#endif
#undef ASCEND_SIM_TYPE_FROM_ID
