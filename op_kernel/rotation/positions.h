// Load the positions of a block of tokens to UB, plane by plane, while the vector unit still rotates the previous
// block.
#pragma once

#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace rotation {

using namespace memory;

template <typename PositionT>
class Positions {
public:
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, GM_ADDR positions) {
        tiling_ = tiling;
        source_ = reinterpret_cast<__gm__ PositionT*>(positions);
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->source_bytes));
        loaded_event_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
        free_event_ = pipe->AllocEventID<AscendC::HardEvent::V_MTE2>();
        // Instructions process full repeats; initialise the slots past the last token.
        AscendC::Duplicate(buffer_.Get<int32_t>(), 0, tiling->source_bytes / static_cast<int32_t>(sizeof(int32_t)));
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(free_event_);
    }

    __aicore__ inline void Load(const Tile& tile) {
        int64_t first = tile.batch * tiling_->pos_stride[0] + tile.token * tiling_->pos_stride[1];
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(free_event_);
        for (int32_t plane = 0; plane < tiling_->planes; ++plane) {
            AscendC::GlobalTensor<PositionT> source;
            source.SetGlobalBuffer(source_ + first + tiling_->plane_offset[plane]);
            if (tiling_->pos_stride[1] == 1) {
                LoadRun(source, plane, tile.block_tokens);
            } else {
                LoadOneByOne(source, plane, 0, tile.block_tokens);
            }
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    // Call WaitForLoad() before the first Convert() of a block and ReleaseBuffer() after the last one.
    __aicore__ inline void WaitForLoad() { AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded_event_); }
    __aicore__ inline void ReleaseBuffer() { AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(free_event_); }

    // dst = the positions of a plane as float32. The number of tokens is rounded up to whole repeats.
    __aicore__ inline void Convert(LocalTensor<float> dst, LocalTensor<float> temp, int32_t plane, int32_t tokens) {
        LocalTensor<int32_t> raw = Plane(plane);
        if constexpr (sizeof(PositionT) == sizeof(int64_t)) {
            // Keep the low word of each int64, because Ascend310P has no Cast from int64.
            constexpr uint8_t kEvenElements = 1;   // GatherMask's pattern 1
            constexpr int32_t kRepeatTokens = 32;  // int64 in a repeat of 256 bytes
            AscendC::GatherMaskParams all(1, static_cast<uint16_t>(RoundUp(tokens, kRepeatFloats) / kRepeatTokens), 8,
                                          0);
            uint64_t kept = 0;
            AscendC::GatherMask(temp.ReinterpretCast<uint32_t>(), raw.ReinterpretCast<uint32_t>(), kEvenElements, false,
                                0, all, kept);
            VectorBarrier();
            raw = temp.ReinterpretCast<int32_t>();
        }
        AscendC::Cast(dst, raw, kExactToFloat, static_cast<uint32_t>(RoundUp(tokens, kRepeatFloats)));
        VectorBarrier();
    }

    __aicore__ inline void Finish(AscendC::TPipe* pipe) {
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(free_event_);
        pipe->ReleaseEventID<AscendC::HardEvent::V_MTE2>(free_event_);
        pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

private:
    static constexpr int32_t kWords = sizeof(PositionT) / sizeof(int32_t);

    __aicore__ inline LocalTensor<int32_t> Plane(int32_t plane) {
        return buffer_.Get<int32_t>()[static_cast<uint32_t>(plane * tiling_->token_slots * kWords)];
    }

    __aicore__ inline void LoadRun(AscendC::GlobalTensor<PositionT> source, int32_t plane, int32_t count) {
        constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(PositionT));
        LocalTensor<PositionT> dst = Plane(plane).template ReinterpretCast<PositionT>();
#if __CCE_AICORE__ == 200
        int32_t aligned = count / kBlockItems * kBlockItems;
        if (aligned > 0) AscendC::DataCopy(dst, source, static_cast<uint32_t>(aligned));
        if (aligned < count) LoadOneByOne(source, plane, aligned, count);
#else
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count) * sizeof(PositionT), 0, 0, 0);
        auto fill = static_cast<uint8_t>(RoundUp(count, kBlockItems) - count);
        AscendC::DataCopyPad(dst, source, run, AscendC::DataCopyPadExtParams<PositionT>(true, 0, fill, 0));
#endif
    }

    // Copies positions [first, end) by the scalar unit, after the vector unit has finished the previous block.
    __aicore__ inline void LoadOneByOne(AscendC::GlobalTensor<PositionT> source, int32_t plane, int32_t first,
                                        int32_t end) {
        LocalTensor<int32_t> dst = Plane(plane);
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t i = first; i < end; ++i) {
            PositionT position = source.GetValue(static_cast<uint64_t>(i * tiling_->pos_stride[1]));
            dst.SetValue(static_cast<uint32_t>(i * kWords), static_cast<int32_t>(position));
        }
        SyncPipes<AscendC::HardEvent::S_V>();
    }

    const CommonTiling* tiling_ = nullptr;
    __gm__ PositionT* source_ = nullptr;
    AscendC::TEventID loaded_event_ = 0, free_event_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
};

}  // namespace rotation
