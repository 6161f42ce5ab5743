// The sizes that the tilings prefer. benchmarks/search_tiles.py links another definition of tile_preferences(), to
// compare these sizes with others.
#pragma once

#include <cstdint>

namespace npu_rope {

struct TilePreferences {
    int64_t tile_bytes = 16 * 1024;     // enough for a DMA to reach the memory's bandwidth
    int64_t min_tile_bytes = 4 * 1024;  // smaller tiles only if there is less work or nothing else fits
    int64_t tiles_per_core = 4;         // so that copies and vector instructions overlap in short calls
    int64_t min_core_bytes = 1024;      // bytes of x: a smaller part does not justify a core
    int64_t min_heads = 4;              // heads of a rotation's unit, because each unit computes its tokens' tables
    int64_t table_heads = 2;            // cost of building one token's table, in head rotations
    int64_t block_tokens = 8;           // tokens of one table, so that instructions are long
    int64_t block_rows = 128;           // head rows of one table, if a unit has few heads
};

const TilePreferences& tile_preferences();

}  // namespace npu_rope
