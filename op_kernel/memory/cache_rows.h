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

class CacheRows {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, GM_ADDR indices) {
        tiling_ = tiling;
        row_numbers_.Init(indices, tiling->row_number_stride, tiling->row_number_words);
    }

    // mover: a RowBursts or ScalarRows of the cache's type. rows: the tile, token by token.
    template <typename T, typename Mover>
    __aicore__ inline void Store(Mover* mover, GM_ADDR cache, LocalTensor<T> rows, const Tile& tile) {
        Tile row_tile = tile;
        row_tile.batch = 0;
        row_tile.tokens = 1;
        for (int32_t t = 0; t < tile.tokens; ++t) {
            row_tile.token = row_numbers_.Get(tile.batch, tile.token + t);
            if (row_tile.token < 0 || row_tile.token >= tiling_->cache_rows) continue;
            mover->Store(cache, rows[static_cast<uint32_t>(t * tile.heads * tiling_->out_pitch)], row_tile);
        }
    }

private:
    const CommonTiling* tiling_ = nullptr;
    RowNumbers row_numbers_;
};

}  // namespace memory
