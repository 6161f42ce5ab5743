// Store a tile's tokens into rows of a cache. Each token has an index that selects its row. The host rejects invalid
// indices where it can read them. The kernel skips a token with an index outside the cache, so it never writes
// elsewhere.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "row_numbers.h"
#include "tiles.h"
#include "vector_steps.h"

namespace memory {

struct CacheLayout {
    int64_t rows;
    int64_t block_size;  // rows of a block: row r is place r % block_size of block r / block_size
    int32_t pitch;       // distance from one head to the next in UB, in elements
};

class CacheRows {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, GM_ADDR indices) {
        row_numbers_.Init(indices, tiling->row_number_stride, tiling->row_number_words);
    }

    // mover: copies tiles of the cache's type. rows: the tile, token by token.
    template <typename T, typename Mover>
    __aicore__ inline void Store(Mover* mover, GM_ADDR cache, LocalTensor<T> rows, const Tile& tile,
                                 const CacheLayout& layout) {
        Tile row_tile = tile;
        row_tile.tokens = 1;
        for (int32_t t = 0; t < tile.tokens; ++t) {
            int64_t row = row_numbers_.Get(tile.batch, tile.token + t);
            if (row < 0 || row >= layout.rows) continue;
            row_tile.batch = row / layout.block_size;
            row_tile.token = row % layout.block_size;
            mover->Store(cache, rows[static_cast<uint32_t>(t * tile.heads * layout.pitch)], row_tile);
        }
    }

private:
    RowNumbers row_numbers_;
};

}  // namespace memory
