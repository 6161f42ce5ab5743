// Tiling structs that the host's macros define, as the plain structs that CANN generates for a kernel.
//
// A kernel names the struct itself: REGISTER_TILING_DEFAULT(S), GET_TILING_DATA_WITH_STRUCT(S, ...). Only the
// host's classes have set_x() and buffers.
#pragma once

#include "ascendc/tiling_struct.h"

#define BEGIN_TILING_DATA_DEF(S) struct S {
#define TILING_DATA_FIELD_DEF(type, name) type name
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count]
#define TILING_DATA_FIELD_DEF_STRUCT(type, name) type name
#define END_TILING_DATA_DEF }
// Checks an operator's struct, or, with op = S + "Op", a struct inside another one.
#define REGISTER_TILING_DATA_CLASS(op, S) static_assert(::ascend_sim::check_tiling_part<S>(), "tiling")
