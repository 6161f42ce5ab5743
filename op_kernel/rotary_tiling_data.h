// What the tiling of a call that gives its tables hands to the kernel: one plain struct, the same bytes on
// both sides. rope_tiling_data.h has what it shares with rope's.
#pragma once

#include "rope_tiling_data.h"

struct RotaryTableTiling {
    // Elements, of cos and of sin: batch, token; where position_ids name rows: -, row.
    int64_t cos_stride[2];
    int64_t sin_stride[2];
    int64_t table_rows;  // where position_ids name them
    int32_t has_ids;
    int32_t row;       // entries of a token: n_dims/2, one a pair, or n_dims, one a lane
    int32_t pitch;     // the same in UB, in whole 32-byte blocks
    int32_t backward;  // 1: by the transposed rotation
};

struct RotaryTilingData {
    RopeTilingHead head;  // without positions, frequencies and planes
    RotaryTableTiling table;
};
