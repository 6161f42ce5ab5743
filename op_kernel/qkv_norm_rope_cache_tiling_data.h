// The tiling data of qkv_norm_rope_cache: that of rope and of given tables, and the parameters of norms and outputs.
#pragma once

#include "rms_norm_tiling_data.h"
#include "rope_tiling_data.h"
#include "rotary_tiling_data.h"

// The tiling keys of a call with given tables are those of rope, plus this number. The kernel has them as literals.
constexpr int32_t kQkvGivenTables = 3;

// The types of an output, with the numbers of npu_rope_dtype.
constexpr int32_t kOutFloat32 = 0;
constexpr int32_t kOutFloat16 = 1;
constexpr int32_t kOutBfloat16 = 2;
constexpr int32_t kOutInt8 = 6;

// The elements that the mean square of a norm covers.
constexpr int32_t kNormNone = 0;
constexpr int32_t kNormHead = 1;   // a head
constexpr int32_t kNormToken = 2;  // all heads of a token

// Numbers with which the elements of each head are multiplied, or which are added to them: in UB a row of float32 for
// each head, or one row for all heads.
struct RowFactorsTiling {
    int32_t ub_offset;      // offset of the first row in UB, in floats; unused if the rows are loaded for each tile
    int32_t rows;           // 0: the call has none
    int32_t head_stride;    // in GM, in elements
    int32_t lane_stride;    // 1, or 0: a row has one number
    int32_t staging_bytes;  // offset in the staging memory of the rows in their own type; -1: they need none. Rows that
                            // are loaded for each tile have another place there.
};

// A head as a row in UB, in elements.
struct HeadRow {
    int32_t size;
    int32_t pitch;  // size, rounded up to whole 32-byte blocks
};

struct QkvSideTiling {
    RowNormTiling norm;
    RowFactorsTiling scale, bias;           // of q and k
    RowFactorsTiling factor, quant_offset;  // of an int8 output: it has y * factor + quant_offset
    int64_t cache_rows;
    int64_t block_size;       // rows of a block of a cache
    int32_t norm_kind;        // kNormNone, ...
    int32_t out_type;         // kOutFloat32, ...
    int32_t out_pitch;        // elements of a head of the output in UB
    int32_t streams_factors;  // 1: the factors of which each head has its own row are loaded for each tile
};

struct QkvTiling {
    QkvSideTiling side[kRopeMaxSides];
    int64_t square_sum_stride;  // by token, in elements
    int32_t has_square_sums;
    int32_t scatters;         // 1: sides 1 and 2 are stored into rows of caches
    float scale_offset;       // added to the scales
    int32_t stats_bytes;      // statistics of the rows, such as their sums of squares
    int32_t factor_bytes;     // all RowFactorsTiling rows that stay in UB
    int32_t buffers;          // number of input buffers, and of output buffers
    int32_t out_queue_bytes;  // each of the output buffers
    int32_t staging_offset;  // in the work buffer, in bytes: memory for factors until they are float32, or for those of
                             // a tile
    HeadRow value_head;      // of v, whose head size may differ from that of q and k
};

struct QkvNormRopeCacheTilingData {
    CommonTiling common;
    QkvTiling qkv;
    RotaryTableTiling table;
    RopeTurns turns;
};

static_assert(sizeof(QkvNormRopeCacheTilingData) % 32 == 0, "copied in blocks of 32 bytes");
static_assert(__builtin_offsetof(QkvNormRopeCacheTilingData, turns) % 32 == 0, "the source of a DMA");
