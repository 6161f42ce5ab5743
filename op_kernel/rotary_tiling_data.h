// The tiling data of a call that passes its tables: one plain struct with the same bytes on host and device. The parts
// that it shares with rope's are in rope_tiling_data.h.
#pragma once

#include "rope_tiling_data.h"

struct RotaryTableTiling {
    // In elements, for cos and sin: batch, token; with position_ids: unused, row.
    int64_t cos_stride[2];
    int64_t sin_stride[2];
    int64_t table_rows;  // with position_ids: rows of the tables
    int32_t has_ids;
    int32_t row_entries;  // entries of a token: n_dims/2, one per pair, or n_dims, one per lane
    int32_t row_pitch;    // entries from a row to the next in UB, in whole 32-byte blocks
    int32_t backward;     // 1: the transposed rotation
};

struct RotaryTilingData {
    CommonTiling common;  // positions, frequencies and planes are unused
    RotaryTableTiling table;
};
