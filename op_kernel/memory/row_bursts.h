// Copy tiles of rows between GM and UB by DMA. One instruction copies a whole tile if the strides and the number of
// rows allow it; otherwise each row needs an instruction of its own. On SoCs that have DataCopyPad, rows of any size
// are supported: they are padded in UB with zeros to whole 32-byte blocks.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "tiles.h"
#include "vector_steps.h"

namespace memory {

// Returns the tensor in GM that starts at this element of `base`.
template <typename T>
__aicore__ inline AscendC::GlobalTensor<T> TensorAt(GM_ADDR base, int64_t element) {
    AscendC::GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(base) + element);
    return tensor;
}

constexpr int64_t kMaxDmaRuns = 4095;  // of one instruction

template <typename T>
class RowBursts {
public:
    // pitch: distance from one row to the next in UB, in elements.
    __aicore__ inline void Init(const CommonTiling* tiling, int32_t row_elements, int32_t pitch) {
        tiling_ = tiling;
        row_elements_ = row_elements;
        pitch_ = pitch;
        pads_rows_ = pitch != row_elements;
    }

    __aicore__ inline void Load(LocalTensor<T> rows, GM_ADDR x, const Tile& tile) {
        Move<true>(rows, x, tile, tiling_->side[tile.side].x_stride);
    }

    // Loads `count` rows of `row_elements` elements. The first row starts at element `first`; `stride` is the distance
    // from one row to the next in GM.
    __aicore__ inline void LoadRows(LocalTensor<T> rows, GM_ADDR memory, int64_t first, int64_t count, int64_t stride,
                                    int64_t row_elements) {
        bool merges_rows = stride == row_elements && !pads_rows_;
        MoveByPlan<true>(rows, memory, first,
                         merges_rows ? RunPlan{1, 0, 1, 0, count * row_elements, count}
                                     : RunPlan{1, 0, count, stride, row_elements, 1});
    }

    __aicore__ inline void Store(GM_ADDR out, LocalTensor<T> rows, const Tile& tile) {
        Move<false>(rows, out, tile, tiling_->side[tile.side].out_stride);
    }

private:
    template <bool loads>
    __aicore__ inline void Move(LocalTensor<T> rows, GM_ADDR memory, const Tile& tile, const int64_t* stride) {
        MoveByPlan<loads>(rows, memory, TileOffset(tile, stride),
                          PlanRuns(tiling_, tile, stride, row_elements_, !pads_rows_));
    }

    template <bool loads>
    __aicore__ inline void MoveByPlan(LocalTensor<T> rows, GM_ADDR memory, int64_t begin, const RunPlan& plan) {
        int64_t pitch = UbPitch(plan);
        for (int64_t outer = 0; outer < plan.outer_count; ++outer) {
            int64_t first = begin + outer * plan.outer_stride;
            LocalTensor<T> part = rows[static_cast<uint32_t>(outer * plan.inner_count * pitch)];
            if (plan.inner_count <= kMaxDmaRuns && FitsOneInstruction(plan)) {
                MoveRuns<loads>(part, TensorAt<T>(memory, first), plan.inner_count, plan);
                continue;
            }
            for (int64_t i = 0; i < plan.inner_count; ++i)
                MoveRuns<loads>(part[static_cast<uint32_t>(i * pitch)],
                                TensorAt<T>(memory, first + i * plan.inner_stride), 1, plan);
        }
    }

    __aicore__ inline int64_t UbPitch(const RunPlan& plan) const { return plan.run_rows * pitch_; }

    // Bytes in GM from the end of a run to the start of the next run.
    __aicore__ inline int64_t GapBytes(const RunPlan& plan) const {
        return plan.inner_count == 1 ? 0 : (plan.inner_stride - plan.run_elements) * kItemBytes;
    }

    // Whether one instruction can encode the gap. The field for it is 16 bits wide and counts blocks on Ascend310P. On
    // other SoCs it is 32 bits wide and counts bytes.
#if __CCE_AICORE__ == 200
    __aicore__ inline bool FitsOneInstruction(const RunPlan& plan) const {
        auto blocks = static_cast<uint16_t>(GapBytes(plan) / kBlockBytes);
        return GapBytes(plan) == static_cast<int64_t>(blocks) * kBlockBytes;
    }

    template <bool loads>
    __aicore__ inline void MoveRuns(LocalTensor<T> rows, AscendC::GlobalTensor<T> memory, int64_t count,
                                    const RunPlan& plan) {
        if constexpr (loads) {
            AscendC::DataCopy(rows, memory, Params(count, plan, GapBytes(plan), 0));
        } else {
            AscendC::DataCopy(memory, rows, Params(count, plan, 0, GapBytes(plan)));
        }
    }

    __aicore__ inline AscendC::DataCopyParams Params(int64_t count, const RunPlan& plan, int64_t src_gap_bytes,
                                                     int64_t dst_gap_bytes) const {
        if (count == 1) src_gap_bytes = dst_gap_bytes = 0;
        return AscendC::DataCopyParams(
            static_cast<uint16_t>(count), static_cast<uint16_t>(plan.run_elements * kItemBytes / kBlockBytes),
            static_cast<uint16_t>(src_gap_bytes / kBlockBytes), static_cast<uint16_t>(dst_gap_bytes / kBlockBytes));
    }
#else
    __aicore__ inline bool FitsOneInstruction(const RunPlan& plan) const {
        return GapBytes(plan) == static_cast<int64_t>(static_cast<uint32_t>(GapBytes(plan)));
    }

    template <bool loads>
    __aicore__ inline void MoveRuns(LocalTensor<T> rows, AscendC::GlobalTensor<T> memory, int64_t count,
                                    const RunPlan& plan) {
        uint32_t gap = count == 1 ? 0 : static_cast<uint32_t>(GapBytes(plan));
        if constexpr (loads) {
            AscendC::DataCopyExtParams runs(static_cast<uint16_t>(count), RunBytes(plan), gap, 0, 0);
            AscendC::DataCopyPadExtParams<T> pad;
            pad.isPad = pads_rows_;
            pad.rightPadding = static_cast<uint8_t>(UbPitch(plan) - plan.run_elements);
            AscendC::DataCopyPad(rows, memory, runs, pad);
        } else {
            AscendC::DataCopyExtParams runs(static_cast<uint16_t>(count), RunBytes(plan), 0, gap, 0);
            AscendC::DataCopyPad(memory, rows, runs);
        }
    }

    __aicore__ inline uint32_t RunBytes(const RunPlan& plan) const {
        return static_cast<uint32_t>(plan.run_elements * kItemBytes);
    }
#endif

    static constexpr int64_t kItemBytes = sizeof(T);

    const CommonTiling* tiling_ = nullptr;
    int32_t row_elements_ = 0, pitch_ = 0;
    bool pads_rows_ = false;
};

}  // namespace memory
