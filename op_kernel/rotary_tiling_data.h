// The tiling data of a call with given tables: a plain struct with the same bytes on host and device. CommonTiling is
// in rope_tiling_data.h.
#pragma once

#include "rope_tiling_data.h"

struct RotaryTableTiling {
    // Strides by batch and token, in elements. With position_ids, the second stride of a table is that of its rows,
    // and the first stride is unused.
    int64_t cos_stride[2];
    int64_t sin_stride[2];
    int64_t id_stride[2];  // of position_ids
    int64_t table_rows;    // with position_ids: rows of the tables
    int32_t has_ids;
    int32_t id_words;     // 32-bit words of an id
    int32_t row_entries;  // entries of a token: n_dims/2, one per pair, or n_dims, one per lane
    int32_t row_pitch;    // distance from one row to the next in UB, in entries
    int32_t backward;     // 1: the transposed rotation
};

struct RotaryTilingData {
    CommonTiling common;  // positions, frequencies and planes are unused
    RotaryTableTiling table;
};
