// Rotate the float32 rows of a tile in UB by the table of its block, in the way that the tiling key selects.
#pragma once

#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "pair_index.h"
#include "row_rotation.h"

namespace rotation {

using namespace memory;

// key: kRopeHalves, kRopeSwapByShifts or kRopeSwapByGather.
template <int32_t key>
class TileRotation {
public:
    // scratch: scratch memory of BuildConstants() and Index().
    __aicore__ inline void Init(const CommonTiling* tiling, LocalTensor<float> scratch) {
        tiling_ = tiling;
        index_.Init(tiling, scratch);
        rotation_.Init(tiling);
    }

    __aicore__ inline PairIndex& Index() { return index_; }

    // Call once per core. offsets: memory for the Gather offsets of kRopeSwapByGather.
    __aicore__ inline void BuildConstants(AscendC::TBuf<AscendC::TPosition::VECCALC>* offsets, bool fills_numbers) {
        if (key != kRopeHalves || fills_numbers) index_.FillNumbers();
        if constexpr (key == kRopeSwapByGather) {
            partner_offsets_ = offsets->template Get<uint32_t>();
            index_.BuildPartnerOffsets(partner_offsets_, tiling_->gather_rows);
        }
    }

    // sin, cos: the table rows of the tile's tokens.
    __aicore__ inline void Begin(const Tile& tile, LocalTensor<float> sin, LocalTensor<float> cos) {
        rotation_.Begin(tile, sin, cos);
        row_count_ = tile.tokens * tile.heads;
    }

    // First stage: sets dst and temp to the products that Add() adds. in_place: dst is src. With kRopeSwapByShifts,
    // temp contains the partner of each lane of src before the call.
    __aicore__ inline void Multiply(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp,
                                    bool in_place) {
        if constexpr (key == kRopeHalves) {
            rotation_.MultiplyHalves(dst, src, temp, in_place);
        } else {
            if constexpr (key == kRopeSwapByGather) GatherPartners(temp, src);
            rotation_.MultiplySwapped(dst, src, temp);
        }
    }

    // Last stage. It does not read src of Multiply().
    __aicore__ inline void Add(LocalTensor<float> dst, LocalTensor<float> temp) {
        if constexpr (key == kRopeHalves) {
            rotation_.AddHalves(dst, temp);
        } else {
            rotation_.AddSwapped(dst, temp);
        }
    }

    __aicore__ inline void RotateInPlace(LocalTensor<float> rows, LocalTensor<float> temp) {
        Multiply(rows, rows, temp, true);
        Add(rows, temp);
    }

    // Rounds the rotated lanes of the rows to OutT. The other lanes of y keep their values. The caller adds the vector
    // barrier.
    template <typename OutT>
    __aicore__ inline void NarrowRotated(LocalTensor<OutT> y, LocalTensor<float> rows) {
        constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(OutT));
        int32_t first = tiling_->n_offs / kBlockItems * kBlockItems;
        NarrowLanes(y, rows, first, LaneRange{tiling_->n_offs - first, tiling_->n_offs - first + tiling_->n_dims});
    }

    // Rounds only `lanes` of every row, which are counted from lane `base`.
    template <typename OutT>
    __aicore__ inline void NarrowLanes(LocalTensor<OutT> y, LocalTensor<float> rows, int32_t base,
                                       const LaneRange& lanes) {
        constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(OutT));
        AscendC::UnaryRepeatParams step(1, 1, static_cast<uint8_t>(tiling_->out_pitch / kBlockItems),
                                        static_cast<uint8_t>(tiling_->row_pitch / kBlockFloats));
        for (int32_t row = 0; row < row_count_; row += kMaxRepeats) {
            auto repeats = static_cast<uint8_t>(MinOf(row_count_ - row, kMaxRepeats));
            for (int32_t first_lane = 0; first_lane < lanes.end; first_lane += kRepeatFloats) {
                uint64_t mask[2] = {MaskOf(lanes, first_lane), 0};
                AscendC::Cast(y[row * tiling_->out_pitch + base + first_lane],
                              rows[row * tiling_->row_pitch + base + first_lane], NarrowMode<OutT>(), mask, repeats,
                              step);
            }
        }
    }

private:
    // partners = src with the lanes of each pair exchanged.
    __aicore__ inline void GatherPartners(LocalTensor<float> partners, LocalTensor<float> src) {
        for (int32_t row = 0; row < row_count_; row += tiling_->gather_rows) {
            int32_t first = row * tiling_->row_pitch;
            int32_t count = MinOf(tiling_->gather_rows, row_count_ - row) * tiling_->row_pitch;
            AscendC::Gather(partners[first], src, partner_offsets_, static_cast<uint32_t>(first) * sizeof(float),
                            static_cast<uint32_t>(count));
        }
        VectorBarrier();
    }

    const CommonTiling* tiling_ = nullptr;
    PairIndex index_;
    RowRotation rotation_;
    LocalTensor<uint32_t> partner_offsets_;
    int32_t row_count_ = 0;  // head rows of the tile
};

}  // namespace rotation
