// The tiling data of qk_square_sums.
#pragma once

#include "rope_tiling_data.h"

// Tiling keys; the kernel repeats them as literals.
constexpr int32_t kSquareSumsRows = 1;  // tiles of whole heads
constexpr int32_t kSquareSumsLong = 2;  // heads one by one, chunk by chunk
// The same, with the heads of a token on several cores.
constexpr int32_t kSquareSumsSplitRows = 3;
constexpr int32_t kSquareSumsSplitLong = 4;

struct QkSquareSumsTilingData {
    CommonTiling common;       // sides 0 and 1 are q and k; outputs, positions and tables are unused
    int64_t head_elements;     // kSquareSumsLong: elements of a head
    int64_t part_pitch;        // kSquareSumsSplit...: distance of the sums of two parts of the heads, in floats
    int32_t chunk;             // kSquareSumsLong: elements of a chunk; the last chunk of a head may be shorter
    int32_t levels;            // levels of the tree that adds the tiles or chunks of a token
    int32_t out_bytes;         // UB of each of the two buffers with the sums of a block of tokens
    int32_t stores_by_scalar;  // Ascend310P: 1: fewer sums than a DMA copies
};
