// The tiling data of rope: one plain struct with the same bytes on host and device.
//
// It contains the frequencies, in turns per position. A separate table in GM would need an argument that the
// specification does not have. It would also need an allocation, a copy and a cache for each set of parameters. At its
// start the kernel copies only the member `common`. A DMA copies the vectors of turns from GM to UB, so their offsets
// and the size are multiples of 32 bytes.
#pragma once

#include <cstdint>

constexpr int32_t kRopeMaxHeadSize = 1024;
constexpr int32_t kRopeMaxPairs = kRopeMaxHeadSize / 2;
constexpr int32_t kRopeMaxSides = 3;                       // tensors of heads: queries, keys and values
constexpr int32_t kRopeRotatedSides = 2;                   // queries and keys
constexpr int32_t kRopeMaxPlanes = 4;                      // planes of positions: time, height, width, extra
constexpr int32_t kRopeMaxChunks = kRopeMaxHeadSize / 64;  // chunks of 64 table lanes, one vector repeat each

// Tiling keys. They select how the kernel combines the two lanes of a pair. The kernel repeats them as literals,
// because TILING_KEY_IS requires literals.
constexpr int32_t kRopeHalves = 1;  // pairs (i, i + n_dims/2); each half of the float32 row begins on a 32-byte border
constexpr int32_t kRopeSwapByShifts = 2;  // pairs (2i, 2i+1) of 16 bits: 32-bit shifts exchange the neighbours
constexpr int32_t kRopeSwapByGather = 3;  // all other calls: Gather exchanges the lanes of each pair

// The ways to copy tiles between GM and UB. The last two are for an SoC whose DMA cannot pad rows.
constexpr int32_t kCopyBursts = 0;  // by DMA: rows of whole 32-byte blocks, or rows that the DMA pads
constexpr int32_t kCopyPacked = 1;  // by DMA: runs with the layout of GM, which Gather converts in UB
constexpr int32_t kCopyScalar = 2;  // element by element, by the scalar unit

// The kernel multiplies a position p by the turns w per position of a pair, exactly modulo whole turns. With
// p = 2048 high + low, |low| <= 1024 and |high| <= 2048:
//     p w = low w1 + high w2 (mod 1),   w1 = w,   w2 = 2048 w - round(2048 w).
// w1 and w2 are each stored as hi + lo. hi is a multiple of 2^-13, so that the products with hi and their sum are exact
// in float32.
constexpr float kHighUnit = 2048.0f;                   // positions in one unit of `high`
constexpr float kGridPerTurn = 8192.0f;                // hi parts are multiples of 1/kGridPerTurn
constexpr int32_t kTurnParts = 4;                      // w1 hi, w1 lo, w2 hi, w2 lo
constexpr int32_t kSplitMaxPairs = kRopeMaxPairs / 2;  // pairs whose parts fit RopeTurns

// Numbers of temporary vectors of floats in the work buffer. The kernel needs them for the table and for its setup.
constexpr int32_t kRopeTableTemps = 3;       // with block_tokens x table_width floats each
constexpr int32_t kRopeTokenTemps = 21;      // with token_slots floats each
constexpr int32_t kRopeSetupPairTemps = 12;  // with n_dims/2 floats each, rounded up to a multiple of 8
constexpr int32_t kRopeSetupLaneTemps = 6;   // with setup_lanes floats each

// The strides of one side, in elements.
struct RopeSideTiling {
    int64_t x_stride[3];    // batch, token, head
    int64_t out_stride[3];  // batch, token, head; of a cache: unused, row, head
};

// The part of the tiling data that is the same struct for all kernels.
struct CommonTiling {
    // Token row r is token r % seq of batch r / seq. Strides are in elements.
    int64_t rows;
    int64_t seq;
    int64_t pos_stride[2];                 // batch, token
    int64_t plane_offset[kRopeMaxPlanes];  // offset of each plane's first position, in elements
    RopeSideTiling side[kRopeMaxSides];
    int64_t row_number_stride[2];  // strides of the row numbers of a cache: batch, token
    int64_t cache_rows;

    int32_t heads;                     // heads of all sides
    int32_t heads_end[kRopeMaxSides];  // heads of a side and of those before it
    int32_t head_size;
    int32_t row_pitch;         // elements of a head in UB: head_size, rounded up to whole 32-byte blocks
    int32_t out_pitch;         // the same for out's type
    int32_t planes;            // number of planes of positions; 1: all lanes have the same positions
    int32_t row_number_words;  // 32-bit words of a cache's row number

    // Lanes [n_offs, n_offs + n_dims) of a head are rotated.
    int32_t n_offs;
    int32_t n_dims;
    int32_t halves;  // 0: pairs (2i, 2i+1); 1: pairs (i, i + n_dims/2)
    // The lane of a head to which table lane 0 belongs. With kRopeHalves it is 0, and table lane 0 belongs to pair 0.
    int32_t lane_first;
    int32_t table_width;  // lanes of one token's table, a multiple of 8
    int32_t has_factors;
    float mscale;  // multiplies cos and sin

    // The work has row_parts x head_parts units, which the cores take in turn.
    int32_t row_parts;
    int32_t row_granule;  // this number of consecutive rows is never split between units
    int32_t head_parts;

    // A unit is split into blocks, each with one table; a block is split into tiles.
    int32_t block_tokens;
    int32_t token_slots;                 // block_tokens, rounded up to 64
    int32_t tile_tokens[kRopeMaxSides];  // tokens of a tile of a side
    int32_t tile_heads;
    int32_t tokens_inner;  // order of a tile's rows in UB: 0 token by token, 1 head by head
    int32_t copy_mode;     // kCopyBursts, ...
    int32_t gather_rows;   // head rows that one Gather moves; 0 without Gather
    int32_t setup_lanes;   // lanes of the longest vector that the setup uses

    // UB, in bytes.
    int32_t queue_bytes;        // each of the two input buffers and of the two output buffers
    int32_t tail_offset_bytes;  // kCopyPacked: offset of the tail blocks in such a buffer
    int32_t work_bytes;         // float32 rows, if the kernel needs them, and temporaries
    int32_t temp_offset_bytes;  // offset of the temporaries in the work buffer
    int32_t table_bytes;        // sin and cos
    int32_t cos_offset_bytes;   // offset of cos in the table
    int32_t lane_bytes;         // for each lane: its frequency, or the offset of its entry in a given table
    int32_t source_bytes;       // the positions of a block, or its rows of given tables
    int32_t gather_bytes;       // 0 without Gather
};

// The part of the tiling data that the kernel reads from GM when it needs it.
struct RopeTurns {
    // The turns (radians / 2 pi) per position of each pair, negated for the backward rotation, as vectors of n_dims/2
    // floats, rounded up to a multiple of 8, without gaps. Four vectors are the parts of turns in [-1/2, 1/2]. With
    // freq_factors or more than kSplitMaxPairs pairs there are two, whose sum is the turns: the kernel splits them
    // after it has divided them by the factors.
    float vectors[2 * kRopeMaxPairs];

    // With more than one plane of positions: bit i is set if table lane 64 * chunk + i rotates by this plane.
    uint64_t plane_lanes[kRopeMaxPlanes][kRopeMaxChunks];
};

struct RopeTilingData {
    CommonTiling common;
    RopeTurns turns;
};

static_assert(sizeof(RopeTilingData) % 32 == 0 && sizeof(RopeTurns) % 32 == 0, "copied in blocks of 32 bytes");
static_assert(__builtin_offsetof(RopeTilingData, turns) % 32 == 0, "the source of a DMA");
static_assert(__builtin_offsetof(RopeTurns, vectors) % 32 == 0, "the source of a DMA");
static_assert(kTurnParts * kSplitMaxPairs == 2 * kRopeMaxPairs, "the four vectors fit RopeTurns");
