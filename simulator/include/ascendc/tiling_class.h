// Macros that define tiling structs on the host, here as the plain structs that CANN generates for a kernel. Only the
// host's classes have set_x() and buffers. The host aligns a struct inside another one and the end of a struct to 8
// bytes (hicann/metadef base/asc/tilingdata_base_impl.cc, CheckAlignAndGenPlaceHolder).
#pragma once

#include "ascendc/tiling_struct.h"

#define BEGIN_TILING_DATA_DEF(S) struct alignas(8) S {
// CANN's macros end with a semicolon, so a use may lack its own.
#define TILING_DATA_FIELD_DEF(type, name) type name;
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count];
#define TILING_DATA_FIELD_DEF_STRUCT(type, name) alignas(8) type name;
#define END_TILING_DATA_DEF \
    }                       \
    ;
// Checks the struct of the operator `op`. A struct inside another one is registered with S + "Op" as `op`.
#define REGISTER_TILING_DATA_CLASS(op, S) \
    inline constexpr bool ascend_sim_tiling_##op##_##S = ::ascend_sim::check_tiling_struct<S>();
