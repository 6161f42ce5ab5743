// The number of the pair and of the partner of each lane in a head's row, as vectors in UB. Each core computes them
// once, in scratch memory that only the setup uses.
#pragma once

#include "../memory/lane_numbers.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

class PairIndex : public LaneNumbers {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, LocalTensor<float> scratch) {
        tiling_ = tiling;
        LaneNumbers::Init(tiling, scratch);
    }

    // Computes for each table lane:
    // - Temp(0): its number, counted from the first lane of the window,
    // - Temp(1): -1 for the first lane of a pair, +1 for the second lane,
    // - Temp(2): the number of its pair.
    // A lane outside the window gets the values of the nearest lane inside.
    __aicore__ inline void FindPairs() {
        LocalTensor<float> lane = Temp(0), sign = Temp(1), pair = Temp(2);
        ToWindowLanes(lane, Numbers(), tiling_->n_offs - tiling_->lane_first, tiling_->table_width);
        FindPlaceInPair(sign, pair, lane, Temp(3), tiling_->table_width);
        AscendC::Muls(sign, sign, 2.0f, tiling_->table_width);
        VectorBarrier();
        AscendC::Adds(sign, sign, -1.0f, tiling_->table_width);
        VectorBarrier();
    }

    // Distance from a pair's first lane to its second.
    __aicore__ inline int32_t PairStep() const { return tiling_->halves != 0 ? tiling_->n_dims / 2 : 1; }

    // Computes the byte offset of each lane's partner, in `rows` head rows of row_pitch float32. Lanes outside the
    // window get offsets of lanes inside it, so that Gather reads no uninitialised memory.
    __aicore__ inline void BuildPartnerOffsets(LocalTensor<uint32_t> offsets, int32_t rows) {
        int32_t count = rows * tiling_->row_pitch;
        LocalTensor<float> lane = Temp(0), row = Temp(1), second = Temp(2), temp = Temp(3);
        FloorDivide(row, Numbers(), tiling_->row_pitch, temp, count);
        Remainder(temp, Numbers(), row, tiling_->row_pitch, count);
        ToWindowLanes(lane, temp, tiling_->n_offs, count);
        FindPlaceInPair(second, Temp(4), lane, temp, count);
        // The partner is lane + step for the first lane of a pair, lane - step for the second one.
        auto step = static_cast<float>(PairStep());
        AscendC::Muls(second, second, -2.0f * step, count);
        AscendC::Muls(row, row, static_cast<float>(tiling_->row_pitch), count);
        AscendC::Adds(lane, lane, step + static_cast<float>(tiling_->n_offs), count);
        VectorBarrier();
        AscendC::Add(lane, lane, second, count);
        VectorBarrier();
        AscendC::Add(lane, lane, row, count);
        VectorBarrier();
        ToByteOffsets(offsets, lane, sizeof(float), count);
    }

private:
    // dst = src, counted from the first lane of the window. Lanes outside get the number of the nearest lane inside.
    __aicore__ inline void ToWindowLanes(LocalTensor<float> dst, LocalTensor<float> src, int32_t first, int32_t count) {
        AscendC::Adds(dst, src, -static_cast<float>(first), count);
        VectorBarrier();
        AscendC::Maxs(dst, dst, 0.0f, count);
        VectorBarrier();
        AscendC::Mins(dst, dst, static_cast<float>(tiling_->n_dims - 1), count);
        VectorBarrier();
    }

    // Computes for each lane of the window:
    // - pair: the number of its pair,
    // - second: 0 for the first lane of the pair, 1 for the second lane.
    __aicore__ inline void FindPlaceInPair(LocalTensor<float> second, LocalTensor<float> pair, LocalTensor<float> lane,
                                           LocalTensor<float> temp, int32_t count) {
        if (tiling_->halves != 0) {
            FloorDivide(second, lane, tiling_->n_dims / 2, temp, count);
            Remainder(pair, lane, second, tiling_->n_dims / 2, count);
        } else {
            FloorDivide(pair, lane, 2, temp, count);
            Remainder(second, lane, pair, 2, count);
        }
    }

    const CommonTiling* tiling_ = nullptr;
};

}  // namespace rotation
