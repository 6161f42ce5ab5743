// The pair and the partner of each lane in a head's row, as vectors of numbers. They are computed once per core, in
// scratch memory that only the setup uses.
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

    // For every table lane: its number, counted from the window's first lane, in Temp(0); -1 for a pair's first
    // lane or +1 for its second in Temp(1); its pair in Temp(2). Lanes outside the window are clamped to the
    // nearest lane inside.
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

    // Byte offsets of each lane's partner, in `rows` head rows of row_pitch float32. Lanes outside the window get
    // offsets of lanes inside it, so that Gather reads no unwritten memory.
    __aicore__ inline void BuildPartnerOffsets(LocalTensor<uint32_t> offsets, int32_t rows) {
        int32_t count = rows * tiling_->row_pitch;
        LocalTensor<float> lane = Temp(0), row = Temp(1), second = Temp(2), temp = Temp(3);
        FloorDivide(row, Numbers(), tiling_->row_pitch, temp, count);
        Remainder(temp, Numbers(), row, tiling_->row_pitch, count);
        ToWindowLanes(lane, temp, tiling_->n_offs, count);
        FindPlaceInPair(second, Temp(4), lane, temp, count);
        // lane + step for a pair's first, lane - step for its second
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
    // Lane numbers counted from the window's first lane; lanes outside are clamped to the nearest lane inside.
    __aicore__ inline void ToWindowLanes(LocalTensor<float> dst, LocalTensor<float> src, int32_t first, int32_t count) {
        AscendC::Adds(dst, src, -static_cast<float>(first), count);
        VectorBarrier();
        AscendC::Maxs(dst, dst, 0.0f, count);
        VectorBarrier();
        AscendC::Mins(dst, dst, static_cast<float>(tiling_->n_dims - 1), count);
        VectorBarrier();
    }

    // For each window lane: 0 if it is a pair's first lane, 1 if it is the second; and the pair's number.
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
