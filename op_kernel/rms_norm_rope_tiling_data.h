// The tiling data of rms_norm_rope: that of rope, and the parameters of the norm of each head.
#pragma once

#include "rms_norm_tiling_data.h"

struct HeadNormTiling {
    RowNormTiling norm;
    int32_t intermediate_rounding;  // 1: round the normalized head and its product with the scale to x's type
    int32_t scatters;               // 1: side 1 is stored into rows of a cache
    int32_t normalizes_partners;    // 1: the kernel also normalizes each head's partners

    // UB, in bytes.
    int32_t scale_bytes;  // the scales of both sides as float32; if normalizes_partners, also with neighbours exchanged
    int32_t scale_raw_bytes;  // the scales in their own type; 0 for float32, which needs no copy
    int32_t stats_bytes;      // statistics of the rows, such as their sums of squares
    int32_t factor_bytes;     // if normalizes_partners: a float for each row
    int32_t unused[5];        // padding to whole blocks of 32 bytes
};

struct RmsNormRopeTilingData {
    CommonTiling common;
    HeadNormTiling norm;
    RopeTurns turns;
};

static_assert(sizeof(RmsNormRopeTilingData) % 32 == 0, "copied in blocks of 32 bytes");
static_assert(__builtin_offsetof(RmsNormRopeTilingData, turns) % 32 == 0, "the source of a DMA");
