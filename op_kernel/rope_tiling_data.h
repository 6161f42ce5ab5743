// The tiling data of rope: one plain struct with the same bytes on host and device.
//
// It contains the frequencies. A separate GM table would need an allocation, a copy and a cache per set of parameters,
// and an argument that the specification does not have. The kernel copies only the head at its start. A DMA copies the
// two vectors of turns from GM to UB, so their offsets and the size are multiples of 32 bytes.
#pragma once

#include <cstdint>

constexpr int32_t kRopeMaxHeadSize = 1024;
constexpr int32_t kRopeMaxPairs = kRopeMaxHeadSize / 2;
constexpr int32_t kRopeMaxPlanes = 4;                      // of positions: time, height, width, extra
constexpr int32_t kRopeMaxChunks = kRopeMaxHeadSize / 64;  // of 64 table lanes, one vector repeat each

// Tiling keys: how the kernel combines the two lanes of a pair. The kernel repeats them as literals, which
// TILING_KEY_IS requires.
constexpr int32_t kRopeHalves = 1;        // pairs (i, i + n_dims/2), halves on 32-byte borders as float32
constexpr int32_t kRopeSwapByShifts = 2;  // pairs (2i, 2i+1), 16-bit: neighbours swapped by 32-bit shifts
constexpr int32_t kRopeSwapByGather = 3;  // everything else

// How tiles are copied between GM and UB.
constexpr int32_t kRopeIoBurst = 0;   // rows of whole 32-byte blocks, or a DMA that pads
constexpr int32_t kRopeIoPacked = 1;  // no padding DMA: runs with GM's layout, repacked in UB
constexpr int32_t kRopeIoScalar = 2;  // element by element: all other tiles of such an SoC

// Parts of the work buffer in which the table and the setup are computed: numbers of vectors of floats.
constexpr int32_t kRopeTableTemps = 3;       // of block_tokens x table_width
constexpr int32_t kRopeTokenTemps = 21;      // of token_slots
constexpr int32_t kRopeSetupPairTemps = 12;  // of n_dims/2, rounded up to 8
constexpr int32_t kRopeSetupLaneTemps = 6;   // of setup_lanes

// One of the tensors that a launch rotates.
struct RopeSideTiling {
    int64_t x_stride[3];    // batch, token, head
    int64_t out_stride[3];  // batch, token, head; of a cache: unused, row, head
};

struct CommonTiling {
    // Token row r is token r % seq of batch r / seq. Strides count elements.
    int64_t rows;
    int64_t seq;
    int64_t pos_stride[2];                 // batch, token
    int64_t plane_offset[kRopeMaxPlanes];  // of the first position of each plane
    RopeSideTiling side[2];
    int64_t row_number_stride[2];  // of the row numbers of a cache or of given tables: batch, token
    int64_t cache_rows;

    int32_t heads;        // of both sides
    int32_t side0_heads;  // heads of side 0, which come first
    int32_t head_size;
    int32_t row_pitch;         // elements of a head in UB: head_size, rounded up to whole 32-byte blocks
    int32_t out_pitch;         // row_pitch for out's type
    int32_t planes;            // number of planes of positions; 1: all lanes have the same positions
    int32_t row_number_words;  // 32-bit words of a row number

    // Lanes [n_offs, n_offs + n_dims) of a head are rotated.
    int32_t n_offs;
    int32_t n_dims;
    int32_t halves;       // 0: pairs (2i, 2i+1); 1: pairs (i, i + n_dims/2)
    int32_t lane_first;   // table lane 0 belongs to this lane of a head (kRopeHalves: to pair 0)
    int32_t table_width;  // lanes of one token's table, a multiple of 8
    int32_t has_factors;
    float mscale;  // multiplies cos and sin

    // Number of units of work, row_parts x head_parts, which the cores take in turn.
    int32_t row_parts;
    int32_t row_granule;  // rows that are not split between units
    int32_t head_parts;

    // A unit is split into blocks, each with one table; a block is split into tiles.
    int32_t block_tokens;
    int32_t token_slots;   // block_tokens, rounded up to 32
    int32_t tile_tokens;   // of side 0's tiles
    int32_t side1_tokens;  // of side 1's tiles
    int32_t tile_heads;
    int32_t tokens_inner;  // order of a tile's rows in UB: 0 token by token, 1 head by head
    int32_t io;
    int32_t gather_rows;  // head rows that one Gather moves; 0 without Gather
    int32_t setup_lanes;  // lanes of the setup's widest vector

    // UB, in bytes.
    int32_t queue_bytes;        // one of the two input buffers, and of the two output buffers
    int32_t tail_offset_bytes;  // kRopeIoPacked: offset of the runs' last 32 bytes in such a buffer
    int32_t work_bytes;         // float32 rows, if the kernel needs them, and the temporaries added to them
    int32_t temp_offset_bytes;  // offset of the temporaries in the work buffer
    int32_t table_bytes;        // sin and cos
    int32_t cos_offset_bytes;   // offset of cos in the table
    int32_t lane_bytes;         // by lane: the frequencies, or the offsets of a given table's entries
    int32_t source_bytes;       // source of a block's table: positions, or rows of given tables
    int32_t gather_bytes;       // 0 without Gather
    int32_t unused[7];          // padding to whole blocks of 32 bytes
};

// The part of the tiling data that the kernel reads in GM.
struct RopeTurns {
    // Turns (radians / 2 pi) per position of every pair, as a sum of two float32. Reduced to
    // [-1/2, 1/2] if the call has no freq_factors; negated for the backward rotation.
    float hi[kRopeMaxPairs];
    float lo[kRopeMaxPairs];

    // With more than one plane of positions: for each plane, one bit for each lane that rotates by it.
    uint64_t plane_lanes[kRopeMaxPlanes][kRopeMaxChunks];
};

struct RopeTilingData {
    CommonTiling common;
    RopeTurns turns;
};

static_assert(sizeof(RopeTilingData) % 32 == 0 && sizeof(RopeTurns) % 32 == 0, "copied in blocks of 32 bytes");
static_assert(__builtin_offsetof(RopeTilingData, turns) % 32 == 0, "the source of a DMA");
static_assert(__builtin_offsetof(RopeTurns, lo) % 32 == 0, "the source of a DMA");
