// Tiling structs that the host's macros define, as the plain structs that CANN generates for a kernel. Only the host's
// classes have set_x() and buffers. The host aligns a struct inside another one and the end of a struct to 8 bytes
// (hicann/metadef base/asc/tilingdata_base_impl.cc, CheckAlignAndGenPlaceHolder).
#pragma once

#include "ascendc/tiling_struct.h"

#define BEGIN_TILING_DATA_DEF(S) struct alignas(8) S {
// A semicolon may be missing after them, because CANN's macros end with one.
#define TILING_DATA_FIELD_DEF(type, name) type name;
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count];
#define TILING_DATA_FIELD_DEF_STRUCT(type, name) alignas(8) type name;
#define END_TILING_DATA_DEF \
    }                       \
    ;
// Checks an operator's struct, or, with op = S + "Op", a struct inside another one.
#define REGISTER_TILING_DATA_CLASS(op, S) \
    inline constexpr bool ascend_sim_tiling_##op##_##S = ::ascend_sim::check_tiling_struct<S>();
