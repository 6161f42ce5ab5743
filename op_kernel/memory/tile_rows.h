// Copy tiles of rows between GM and UB in the way that the tiling chose: as in row_bursts.h or, on an SoC whose DMA
// copies only whole blocks, as in packed_rows.h or scalar_rows.h.
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
    // pitch: elements of T from a row to the next in UB.
    __aicore__ inline void Init(const CommonTiling* tiling, int32_t pitch) {
        tiling_ = tiling;
        bursts_.Init(tiling, tiling->head_size, pitch);
#if __CCE_AICORE__ == 200
        scalars_.Init(tiling, pitch);
#endif
    }

    __aicore__ inline void Load(LocalTensor<T> rows, GM_ADDR memory, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (tiling_->io == kRopeIoPacked) packed_.Load(rows, memory, tile);
        if (tiling_->io == kRopeIoScalar) scalars_.Load(rows, memory, tile);
        if (tiling_->io == kRopeIoBurst)
#endif
            bursts_.Load(rows, memory, tile);
    }

    __aicore__ inline void Store(GM_ADDR memory, LocalTensor<T> rows, const Tile& tile) {
#if __CCE_AICORE__ == 200
        if (tiling_->io == kRopeIoPacked) packed_.Store(memory, rows, tile);
        if (tiling_->io == kRopeIoScalar) scalars_.Store(memory, rows, tile);
        if (tiling_->io == kRopeIoBurst)
#endif
            bursts_.Store(memory, rows, tile);
    }

    // Called after the last store to this memory.
    __aicore__ inline void Finish(GM_ADDR memory) {
#if __CCE_AICORE__ == 200
        if (tiling_->io == kRopeIoScalar) scalars_.Finish(memory);
#endif
    }

#if __CCE_AICORE__ == 200
    // Where rows are packed: converts between rows and the runs that are loaded and stored.
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

// The offsets that pack and unpack rows of two types and one width.
class PackedOffsets {
public:
    template <typename T, typename U>
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, TileRows<T>* a, TileRows<U>* b) {
        tiling_ = tiling;
        if (tiling->io != kRopeIoPacked) return;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->gather_bytes));
        LocalTensor<uint32_t> offsets = buffer_.Get<uint32_t>();
        a->Packed().Init(tiling, offsets);
        b->Packed().Init(tiling, offsets[static_cast<uint32_t>(tiling->gather_bytes / 8)]);
    }

    // Called once per core. scratch: memory for LaneNumbers.
    template <typename T, typename U>
    __aicore__ inline void Build(LocalTensor<float> scratch, TileRows<T>* a, TileRows<U>* b) {
        if (tiling_->io != kRopeIoPacked) return;
        LaneNumbers index;
        index.Init(tiling_, scratch);
        index.CountLanes();
        a->Packed().BuildOffsets(index);
        b->Packed().BuildOffsets(index);
    }

private:
    const CommonTiling* tiling_ = nullptr;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
};

#endif

// The tile with the same rows of side 1's tensors.
__aicore__ inline Tile OnSide1(const Tile& tile) {
    Tile side1_tile = tile;
    side1_tile.side = 1;
    return side1_tile;
}

}  // namespace memory
