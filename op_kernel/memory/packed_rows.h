// Copy tiles of rows between GM and UB, for rows whose size is not a multiple of 32 bytes. The DMA of the SoC copies
// only whole 32-byte blocks.
//
// A run is a contiguous piece of GM that holds several rows. A queue's buffer holds runs unchanged, each on a 32-byte
// border. A first DMA copies the whole blocks of a
// run. If bytes are left, a second DMA copies the last 32 bytes of the run, through a tail block of the buffer. Gather
// converts runs to rows and rows to runs. No memory past a run is read or written. A run has at least 32 bytes.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "lane_numbers.h"
#include "row_bursts.h"
#include "tiles.h"
#include "vector_steps.h"

#if __CCE_AICORE__ == 200

namespace memory {

template <typename T>
class PackedRows {
public:
    // offsets: memory for the byte offsets that BuildOffsets() computes.
    __aicore__ inline void Init(const CommonTiling* tiling, LocalTensor<uint32_t> offsets) {
        tiling_ = tiling;
        lanes_ = tiling->gather_rows * tiling->row_pitch;
        to_rows_ = offsets;
        to_runs_ = offsets[lanes_];
        ascending_ = offsets[2 * lanes_];
        tail_ = tiling->tail_offset_bytes / static_cast<int32_t>(sizeof(T));
    }

    // Builds the byte offsets for one Gather of gather_rows rows, in both directions.
    __aicore__ inline void BuildOffsets(const LaneNumbers& lanes) {
        LocalTensor<float> numbers = lanes.Numbers(), row = lanes.Temp(0), lane = lanes.Temp(1), temp = lanes.Temp(2);
        // For each lane of a row in UB: the place of its element in the run, row * head_size + lane. The padding of a
        // row repeats the row's last element.
        FloorDivide(row, numbers, tiling_->row_pitch, temp, lanes_);
        Remainder(lane, numbers, row, tiling_->row_pitch, lanes_);
        AscendC::Mins(lane, lane, static_cast<float>(tiling_->head_size - 1), lanes_);
        AscendC::Muls(row, row, static_cast<float>(tiling_->head_size), lanes_);
        VectorBarrier();
        AscendC::Add(lane, lane, row, lanes_);
        VectorBarrier();
        ToByteOffsets(to_rows_, lane, sizeof(T), lanes_);
        // For each element of a run: its place in the rows, row * row_pitch + lane.
        int32_t elements = RoundUp(tiling_->gather_rows * tiling_->head_size, kBlockFloats);
        FloorDivide(row, numbers, tiling_->head_size, temp, elements);
        Remainder(lane, numbers, row, tiling_->head_size, elements);
        AscendC::Muls(row, row, static_cast<float>(tiling_->row_pitch), elements);
        VectorBarrier();
        AscendC::Add(lane, lane, row, elements);
        VectorBarrier();
        ToByteOffsets(to_runs_, lane, sizeof(T), elements);
        AscendC::Muls(lane, numbers, 1.0f, kBlockItems);
        VectorBarrier();
        ToByteOffsets(ascending_, lane, sizeof(T), kBlockItems);
    }

    __aicore__ inline void Load(LocalTensor<T> dst, GM_ADDR x, const Tile& tile) {
        RunPlan plan = PlanRuns(tiling_, tile, tiling_->side[tile.side].x_stride, tiling_->head_size, true);
        int32_t aligned = Aligned(plan), pitch = Pitch(plan);
        for (int32_t i = 0; i < RunCount(plan); ++i) {
            int64_t first = RunOffset(tile, tiling_->side[tile.side].x_stride, plan, i);
            AscendC::DataCopy(dst[i * pitch], TensorAt<T>(x, first), static_cast<uint32_t>(aligned));
            if (aligned < plan.run_elements)
                AscendC::DataCopy(dst[tail_ + i * kBlockItems], TensorAt<T>(x, first + plan.run_elements - kBlockItems),
                                  kBlockItems);
        }
    }

    __aicore__ inline void Store(GM_ADDR out, LocalTensor<T> src, const Tile& tile) {
        RunPlan plan = PlanRuns(tiling_, tile, tiling_->side[tile.side].out_stride, tiling_->head_size, true);
        int32_t aligned = Aligned(plan), pitch = Pitch(plan);
        for (int32_t i = 0; i < RunCount(plan); ++i)
            AscendC::DataCopy(TensorAt<T>(out, RunOffset(tile, tiling_->side[tile.side].out_stride, plan, i)),
                              src[i * pitch], static_cast<uint32_t>(aligned));
        if (aligned == plan.run_elements) return;
        // Both DMAs write the same values where they overlap; the barrier keeps them from running at the same time.
        AscendC::PipeBarrier<PIPE_MTE3>();
        for (int32_t i = 0; i < RunCount(plan); ++i)
            AscendC::DataCopy(TensorAt<T>(out, RunOffset(tile, tiling_->side[tile.side].out_stride, plan, i) +
                                                   plan.run_elements - kBlockItems),
                              src[tail_ + i * kBlockItems], kBlockItems);
    }

    // Completes the runs that Load() copied and converts them to rows of row_pitch.
    __aicore__ inline void Unpack(LocalTensor<T> rows, LocalTensor<T> runs, const Tile& tile) {
        RunPlan plan = PlanRuns(tiling_, tile, tiling_->side[tile.side].x_stride, tiling_->head_size, true);
        int32_t aligned = Aligned(plan), pitch = Pitch(plan), rest = static_cast<int32_t>(plan.run_elements) - aligned;
        if (rest > 0) {
            for (int32_t i = 0; i < RunCount(plan); ++i)
                AscendC::Gather(runs[i * pitch + aligned], runs[tail_], ascending_, Bytes((i + 1) * kBlockItems - rest),
                                static_cast<uint32_t>(rest));
            VectorBarrier();
        }
        int32_t run_rows = static_cast<int32_t>(plan.run_rows);
        for (int32_t i = 0; i < RunCount(plan); ++i) {
            for (int32_t row = 0; row < run_rows; row += tiling_->gather_rows) {
                int32_t count = MinOf(tiling_->gather_rows, run_rows - row);
                AscendC::Gather(rows[(i * run_rows + row) * tiling_->row_pitch], runs, to_rows_,
                                Bytes(i * pitch + row * tiling_->head_size),
                                static_cast<uint32_t>(count * tiling_->row_pitch));
            }
        }
        VectorBarrier();
    }

    // Converts rows of row_pitch to the runs that Store() copies.
    __aicore__ inline void Pack(LocalTensor<T> runs, LocalTensor<T> rows, const Tile& tile) {
        RunPlan plan = PlanRuns(tiling_, tile, tiling_->side[tile.side].out_stride, tiling_->head_size, true);
        int32_t run_rows = static_cast<int32_t>(plan.run_rows), pitch = Pitch(plan);
        for (int32_t i = 0; i < RunCount(plan); ++i) {
            for (int32_t row = 0; row < run_rows; row += tiling_->gather_rows) {
                int32_t count = MinOf(tiling_->gather_rows, run_rows - row);
                AscendC::Gather(runs[i * pitch + row * tiling_->head_size], rows, to_runs_,
                                Bytes((i * run_rows + row) * tiling_->row_pitch),
                                static_cast<uint32_t>(count * tiling_->head_size));
            }
        }
        VectorBarrier();
        if (Aligned(plan) == plan.run_elements) return;
        int32_t last_block = static_cast<int32_t>(plan.run_elements) - kBlockItems;
        for (int32_t i = 0; i < RunCount(plan); ++i)
            AscendC::Gather(runs[tail_ + i * kBlockItems], runs, ascending_, Bytes(i * pitch + last_block),
                            kBlockItems);
    }

private:
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(T));  // elements in 32 bytes

    __aicore__ inline int32_t RunCount(const RunPlan& plan) const {
        return static_cast<int32_t>(plan.outer_count * plan.inner_count);
    }
    // Elements of a run that are in whole blocks.
    __aicore__ inline int32_t Aligned(const RunPlan& plan) const {
        return static_cast<int32_t>(plan.run_elements) / kBlockItems * kBlockItems;
    }
    // Distance from one run to the next in a queue's buffer, in elements.
    __aicore__ inline int32_t Pitch(const RunPlan& plan) const {
        return RoundUp(static_cast<int32_t>(plan.run_elements), kBlockItems);
    }
    __aicore__ inline uint32_t Bytes(int32_t elements) const { return static_cast<uint32_t>(elements) * sizeof(T); }
    // Offset of run i in GM, in elements.
    __aicore__ inline int64_t RunOffset(const Tile& tile, const int64_t* stride, const RunPlan& plan, int64_t i) const {
        return TileOffset(tile, stride) + i / plan.inner_count * plan.outer_stride +
               i % plan.inner_count * plan.inner_stride;
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t lanes_ = 0;  // lanes of one Gather of gather_rows rows
    int32_t tail_ = 0;   // offset of the tail blocks in a queue's buffer, in elements
    LocalTensor<uint32_t> to_rows_, to_runs_;
    LocalTensor<uint32_t> ascending_;  // the byte offset of each element of a block
};

}  // namespace memory

#endif
