// Copy tiles of rows between GM and UB in the way that the tiling has chosen: by row_bursts.h or, if the SoC's DMA
// copies only whole blocks, by packed_rows.h or scalar_rows.h.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "lane_numbers.h"
#include "packed_rows.h"
#include "row_bursts.h"
#include "scalar_rows.h"
#include "tiles.h"
#include "vector_steps.h"

namespace memory {

template <typename T>
class TileRows {
public:
    // pitch: distance from one row to the next in UB, in elements.
    __aicore__ inline void Init(const CommonTiling* tiling, int32_t pitch) { Init(tiling, tiling->head_size, pitch); }

    // For rows of another size than the tiling's head size, which are not packed.
    __aicore__ inline void Init(const CommonTiling* tiling, int32_t row_elements, int32_t pitch) {
        tiling_ = tiling;
        bursts_.Init(tiling, row_elements, pitch);
#if __CCE_AICORE__ == 200
        scalars_.Init(tiling, row_elements, pitch);
#endif
    }

    __aicore__ inline void Load(LocalTensor<T> rows, GM_ADDR memory, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyPacked) packed_.Load(rows, memory, tile);
        if (tiling_->copy_mode == kCopyScalar) scalars_.Load(rows, memory, tile);
        if (tiling_->copy_mode == kCopyBursts)
#endif
            bursts_.Load(rows, memory, tile);
    }

    __aicore__ inline void Store(GM_ADDR memory, LocalTensor<T> rows, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyPacked) packed_.Store(memory, rows, tile);
        if (tiling_->copy_mode == kCopyScalar) scalars_.Store(memory, rows, tile);
        if (tiling_->copy_mode == kCopyBursts)
#endif
            bursts_.Store(memory, rows, tile);
    }

    // Call after the last store to this memory.
    __aicore__ inline void Finish(GM_ADDR memory) {
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyScalar) scalars_.Finish(memory);
#endif
    }

#if __CCE_AICORE__ == 200
    // For packed tiles: converts between rows and the runs that are loaded and stored.
    __aicore__ inline PackedRows<T>& Packed() { return packed_; }
#endif

private:
    const CommonTiling* tiling_ = nullptr;
    RowBursts<T> bursts_;
#if __CCE_AICORE__ == 200
    PackedRows<T> packed_;
    ScalarRows<T> scalars_;
#endif
};

#if __CCE_AICORE__ == 200

// The Gather offsets that pack and unpack the rows of a tensor, or of two tensors with the same head size.
class PackedOffsets {
public:
    template <typename T>
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, TileRows<T>* rows) {
        tiling_ = tiling;
        if (tiling->copy_mode != kCopyPacked) return;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->gather_bytes));
        rows->Packed().Init(tiling, buffer_.Get<uint32_t>());
    }

    template <typename T, typename OtherT>
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, TileRows<T>* rows,
                                TileRows<OtherT>* other_rows) {
        Init(pipe, tiling, rows);
        if (tiling->copy_mode != kCopyPacked) return;
        other_rows->Packed().Init(tiling, buffer_.Get<uint32_t>()[static_cast<uint32_t>(tiling->gather_bytes / 8)]);
    }

    // Call once per core, with the same rows. scratch: memory for LaneNumbers.
    template <typename... Rows>
    __aicore__ inline void Build(LocalTensor<float> scratch, Rows*... rows) {
        if (tiling_->copy_mode != kCopyPacked) return;
        LaneNumbers lane_numbers;
        lane_numbers.Init(tiling_, scratch);
        lane_numbers.FillNumbers();
        (rows->Packed().BuildOffsets(lane_numbers), ...);
    }

private:
    const CommonTiling* tiling_ = nullptr;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
};

#endif

// Returns the tile with the same rows in the tensors of side 1.
__aicore__ inline Tile OnSide1(const Tile& tile) {
    Tile side1_tile = tile;
    side1_tile.side = 1;
    return side1_tile;
}

}  // namespace memory
