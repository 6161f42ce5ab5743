// Copy tiles of rows between GM and UB by the scalar unit. An SoC whose DMA copies only whole 32-byte blocks needs this
// if the rows cannot be packed: runs are shorter than a block, rows go to a cache, or packed tiles exceed UB.
//
// The data cache of the scalar unit writes back whole lines of 64 bytes. Two cores must therefore not write to the same
// tensor; the tiling gives all the work to one core.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "row_bursts.h"
#include "tiles.h"
#include "vector_steps.h"

#if __CCE_AICORE__ == 200

namespace memory {

template <typename T>
class ScalarRows {
public:
    // pitch: distance from one row to the next in UB, in elements.
    __aicore__ inline void Init(const CommonTiling* tiling, int32_t row_elements, int32_t pitch) {
        tiling_ = tiling;
        row_elements_ = row_elements;
        pitch_ = pitch;
    }

    __aicore__ inline void Load(LocalTensor<T> dst, GM_ADDR x, const Tile& tile) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < tile.tokens * tile.heads; ++row) {
            AscendC::GlobalTensor<T> source = TensorAt<T>(x, RowOffset(tile, tiling_->side[tile.side].x_stride, row));
            for (int32_t i = 0; i < pitch_; ++i)
                dst.SetValue(static_cast<uint32_t>(row * pitch_ + i),
                             i < row_elements_ ? source.GetValue(static_cast<uint64_t>(i)) : static_cast<T>(0.0f));
        }
        SyncPipes<AscendC::HardEvent::S_V>();
    }

    __aicore__ inline void Store(GM_ADDR out, LocalTensor<T> src, const Tile& tile) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < tile.tokens * tile.heads; ++row) {
            AscendC::GlobalTensor<T> target =
                TensorAt<T>(out, RowOffset(tile, tiling_->side[tile.side].out_stride, row));
            for (int32_t i = 0; i < row_elements_; ++i)
                target.SetValue(static_cast<uint64_t>(i), src.GetValue(static_cast<uint32_t>(row * pitch_ + i)));
        }
        SyncPipes<AscendC::HardEvent::S_V>();
    }

    // Call after the last tile: writes the scalar unit's data cache back to GM.
    __aicore__ inline void Finish(GM_ADDR out) {
        AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(TensorAt<T>(out, 0));
    }

private:
    __aicore__ inline int64_t RowOffset(const Tile& tile, const int64_t* stride, int32_t row) const {
        int32_t inner = tiling_->tokens_inner != 0 ? tile.tokens : tile.heads;
        int32_t token = tiling_->tokens_inner != 0 ? row % inner : row / inner;
        int32_t head = tiling_->tokens_inner != 0 ? row / inner : row % inner;
        return TileOffset(tile, stride) + token * stride[1] + head * stride[2];
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t row_elements_ = 0, pitch_ = 0;
};

}  // namespace memory

#endif
