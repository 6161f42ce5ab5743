// Tiling structs by the host's macros, as plain structs: CANN generates them for a kernel in the same way.
//
// A kernel names the struct itself: REGISTER_TILING_DEFAULT(S), GET_TILING_DATA_WITH_STRUCT(S, ...). set_x()
// and the buffers of the host's classes are the host's.
#pragma once

#include "ascendc/tiling_struct.h"

#define BEGIN_TILING_DATA_DEF(S) struct S {
#define TILING_DATA_FIELD_DEF(type, name) type name
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count]
#define TILING_DATA_FIELD_DEF_STRUCT(type, name) type name
#define END_TILING_DATA_DEF }
// Of an operator, or with op = S + "Op" of a struct inside another's.
#define REGISTER_TILING_DATA_CLASS(op, S) static_assert(::npu_sim::check_tiling_part<S>(), "tiling")
