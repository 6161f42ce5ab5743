// A tile's tokens into the rows of a cache that their indices name. The host refuses indices where it
// can see them; here a token whose index is no row of the cache is left out, so that nothing else is
// ever written. Included after vector_steps.h, rope_schedule.h and row_bursts.h.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

class CacheRows {
public:
    __aicore__ inline void Init(const RopeTilingHead* td, GM_ADDR indices) {
        td_ = td;
        indices_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(indices));
    }

    // mover: RowBursts or ScalarRows of the cache's type. rows hold the tile token by token.
    template <typename T, typename Mover>
    __aicore__ inline void Store(Mover* mover, GM_ADDR cache, LocalTensor<T> rows, const Tile& tile) {
        Tile one = tile;
        one.batch = 0;
        one.tokens = 1;
        for (int32_t t = 0; t < tile.tokens; ++t) {
            one.token = RowOf(tile.batch, tile.token + t);
            if (one.token < 0 || one.token >= td_->cache_rows) continue;
            mover->Store(cache, rows[static_cast<uint32_t>(t * tile.heads * td_->out_pitch)], one);
        }
    }

private:
    __aicore__ inline int64_t RowOf(int64_t batch, int64_t token) {
        int64_t at = (batch * td_->index_stride[0] + token * td_->index_stride[1]) * td_->index_words;
        int32_t low = indices_.GetValue(static_cast<uint64_t>(at));
        if (td_->index_words == 1) return low;
        int64_t high = indices_.GetValue(static_cast<uint64_t>(at + 1));
        return static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low));
    }

    const RopeTilingHead* td_ = nullptr;
    AscendC::GlobalTensor<int32_t> indices_;
};

}  // namespace rope_device
