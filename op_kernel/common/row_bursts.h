// Tiles of rows between GM and UB by DMA: one instruction for a whole tile where the strides
// allow, one a row at worst. Rows whose bytes are no multiple of 32 are padded with zeros in UB,
// which only SoCs with DataCopyPad can. Included after vector_steps.h and rope_schedule.h.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rope_device {

template <typename T>
__aicore__ inline AscendC::GlobalTensor<T> TensorAt(GM_ADDR base, int64_t element) {
    AscendC::GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(base) + element);
    return tensor;
}

template <typename T>
class RowBursts {
public:
    __aicore__ inline void Init(const RopeTilingHead* td) {
        td_ = td;
        item_bytes_ = static_cast<int64_t>(sizeof(T));
        padded_ = td->row_pitch != td->head_size;
    }

    __aicore__ inline void Load(LocalTensor<T> dst, GM_ADDR x, const Tile& tile) {
        RunPlan plan = PlanRuns(td_, tile, td_->x_stride, !padded_);
        int64_t pitch = UbPitch(plan);
        for (int64_t loop = 0; loop < plan.loops; ++loop) {
            int64_t first = TileOffset(tile, td_->x_stride) + loop * plan.loop_stride;
            LocalTensor<T> rows = dst[static_cast<uint32_t>(loop * plan.blocks * pitch)];
            if (OneInstruction(plan)) {
                LoadRuns(rows, TensorAt<T>(x, first), plan.blocks, plan);
                continue;
            }
            for (int64_t i = 0; i < plan.blocks; ++i)
                LoadRuns(rows[static_cast<uint32_t>(i * pitch)], TensorAt<T>(x, first + i * plan.block_stride), 1,
                         plan);
        }
    }

    __aicore__ inline void Store(GM_ADDR out, LocalTensor<T> src, const Tile& tile) {
        RunPlan plan = PlanRuns(td_, tile, td_->out_stride, !padded_);
        int64_t pitch = UbPitch(plan);
        for (int64_t loop = 0; loop < plan.loops; ++loop) {
            int64_t first = TileOffset(tile, td_->out_stride) + loop * plan.loop_stride;
            LocalTensor<T> rows = src[static_cast<uint32_t>(loop * plan.blocks * pitch)];
            if (OneInstruction(plan)) {
                StoreRuns(TensorAt<T>(out, first), rows, plan.blocks, plan);
                continue;
            }
            for (int64_t i = 0; i < plan.blocks; ++i)
                StoreRuns(TensorAt<T>(out, first + i * plan.block_stride), rows[static_cast<uint32_t>(i * pitch)], 1,
                          plan);
        }
    }

private:
    __aicore__ inline int64_t UbPitch(const RunPlan& plan) const { return plan.run_rows * td_->row_pitch; }

    // Bytes from a run's end to the next one's start.
    __aicore__ inline int64_t GapBytes(const RunPlan& plan) const {
        return plan.blocks == 1 ? 0 : (plan.block_stride - plan.run) * item_bytes_;
    }

#if __CCE_AICORE__ == 200
    __aicore__ inline bool OneInstruction(const RunPlan& plan) const {
        constexpr int64_t kLargestGapBlocks = 65535;
        int64_t gap = GapBytes(plan);
        return gap >= 0 && gap % kBlockBytes == 0 && gap / kBlockBytes <= kLargestGapBlocks;
    }

    __aicore__ inline void LoadRuns(LocalTensor<T> dst, AscendC::GlobalTensor<T> src, int64_t count,
                                    const RunPlan& plan) {
        AscendC::DataCopy(dst, src, Params(count, plan, GapBytes(plan), 0));
    }

    __aicore__ inline void StoreRuns(AscendC::GlobalTensor<T> dst, LocalTensor<T> src, int64_t count,
                                     const RunPlan& plan) {
        AscendC::DataCopy(dst, src, Params(count, plan, 0, GapBytes(plan)));
    }

    __aicore__ inline AscendC::DataCopyParams Params(int64_t count, const RunPlan& plan, int64_t src_gap_bytes,
                                                     int64_t dst_gap_bytes) const {
        if (count == 1) src_gap_bytes = dst_gap_bytes = 0;
        return AscendC::DataCopyParams(
            static_cast<uint16_t>(count), static_cast<uint16_t>(plan.run * item_bytes_ / kBlockBytes),
            static_cast<uint16_t>(src_gap_bytes / kBlockBytes), static_cast<uint16_t>(dst_gap_bytes / kBlockBytes));
    }
#else
    __aicore__ inline bool OneInstruction(const RunPlan& plan) const {
        constexpr int64_t kLargestGapBytes = 0xFFFFFFFF;
        int64_t gap = GapBytes(plan);
        return gap >= 0 && gap <= kLargestGapBytes;
    }

    __aicore__ inline void LoadRuns(LocalTensor<T> dst, AscendC::GlobalTensor<T> src, int64_t count,
                                    const RunPlan& plan) {
        uint32_t gap = count == 1 ? 0 : static_cast<uint32_t>(GapBytes(plan));
        AscendC::DataCopyExtParams runs(static_cast<uint16_t>(count), RunBytes(plan), gap, 0, 0);
        AscendC::DataCopyPadExtParams<T> pad;
        pad.isPad = padded_;
        pad.rightPadding = static_cast<uint8_t>(UbPitch(plan) - plan.run);
        AscendC::DataCopyPad(dst, src, runs, pad);
    }

    __aicore__ inline void StoreRuns(AscendC::GlobalTensor<T> dst, LocalTensor<T> src, int64_t count,
                                     const RunPlan& plan) {
        uint32_t gap = count == 1 ? 0 : static_cast<uint32_t>(GapBytes(plan));
        AscendC::DataCopyPad(dst, src,
                             AscendC::DataCopyExtParams(static_cast<uint16_t>(count), RunBytes(plan), 0, gap, 0));
    }

    __aicore__ inline uint32_t RunBytes(const RunPlan& plan) const {
        return static_cast<uint32_t>(plan.run * item_bytes_);
    }
#endif

    const RopeTilingHead* td_ = nullptr;
    int64_t item_bytes_ = 0;
    bool padded_ = false;
};

}  // namespace rope_device
