// Load rows of a scale from GM to UB and convert them to float32. A DMA copies contiguous elements. The scalar unit
// copies elements with gaps and, if the DMA copies only whole blocks, the rest of the last block.
#pragma once

#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

// The layout of a row's scale in GM.
struct ScaleLayout {
    int32_t kind;           // kScaleDense, ...
    const int64_t* inner;   // kScaleScattered: sizes of the four dimensions of a row
    const int64_t* stride;  // kScaleScattered: strides of the scale in these dimensions, in elements

    __aicore__ inline int64_t OffsetOf(int64_t element) const {
        if (kind == kScaleDense) return element;
        int64_t offset = 0;
        for (int32_t d = 3; d >= 0 && kind == kScaleScattered; --d) {
            offset += element % inner[d] * stride[d];
            element /= inner[d];
        }
        return offset;
    }
};

// ScaleT: type of the scale.
template <typename ScaleT>
class ScaleRows {
public:
    // wide_bytes: size of the elements as float32. raw_bytes: their size as ScaleT; 0 if ScaleT is float.
    __aicore__ inline void Init(AscendC::TPipe* pipe, int32_t wide_bytes, int32_t raw_bytes,
                                const ScaleLayout& layout) {
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(wide_bytes + raw_bytes));
        int32_t raw = raw_bytes > 0 ? wide_bytes / static_cast<int32_t>(sizeof(ScaleT)) : 0;
        raw_ = buffer_.template Get<ScaleT>()[static_cast<uint32_t>(raw)];
        wide_ = buffer_.template Get<float>();
        layout_ = layout;
    }

    // Loads elements [first, first + count) of a row to raw elements [at, at + count). row_offset: offset of the
    // row in `memory`, in elements. Waits for earlier vector instructions. The caller must then call Widen(), or
    // MarkLoads() and WidenMarked().
    __aicore__ inline void Load(GM_ADDR memory, int64_t row_offset, int64_t first, int32_t count, int32_t at) {
        AscendC::GlobalTensor<ScaleT> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ ScaleT*>(memory) + row_offset);
        LocalTensor<ScaleT> dst = raw_[at];
        int32_t padded = RoundUp(count, kBlockItems), loaded = 0;
        if (layout_.kind == kScaleDense) loaded = LoadRun(dst, source, first, count);
        if (loaded >= count) return;
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t i = loaded; i < padded; ++i) {
            int64_t element = i < count ? i : count - 1;  // the padding may be any finite number
            dst.SetValue(static_cast<uint32_t>(i),
                         source.GetValue(static_cast<uint64_t>(layout_.OffsetOf(first + element))));
        }
        SyncPipes<AscendC::HardEvent::S_V>();
    }

    // Converts raw elements [from, from + count) to float32 elements [to, to + count). If ScaleT is float, both are the
    // same memory.
    __aicore__ inline void Widen(int32_t to, int32_t from, int32_t count) {
        SyncPipes<AscendC::HardEvent::MTE2_V>();
        ToFloat32(to, from, count);
    }

    // Marks the end of the loads so far. WidenMarked() waits for these loads, but not for later ones.
    __aicore__ inline void MarkLoads(AscendC::TPipe* pipe) {
        pipe_ = pipe;
        loaded_event_ = pipe_->AllocEventID<AscendC::HardEvent::MTE2_V>();
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    // Converts the first `count` raw elements to float32, after MarkLoads().
    __aicore__ inline void WidenMarked(int32_t count) {
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
        pipe_->ReleaseEventID<AscendC::HardEvent::MTE2_V>(loaded_event_);
        ToFloat32(0, 0, count);
    }

    // Returns elements [first, first + count) of a long row's scale, as float32. keeps_scale: all rows share the scale,
    // the buffer holds all of it, and only the first row loads it. Call EndRow() after each row.
    __aicore__ inline LocalTensor<float> Piece(GM_ADDR memory, int64_t row_offset, int64_t first, int32_t count,
                                               bool keeps_scale) {
        auto to = static_cast<int32_t>(keeps_scale ? first : 0);
        if (!is_loaded_) {
            int32_t from = sizeof(ScaleT) == sizeof(float) ? to : 0;
            Load(memory, row_offset, first, count, from);
            Widen(to, from, count);
        }
        return wide_[static_cast<uint32_t>(to)];
    }
    __aicore__ inline void EndRow(bool keeps_scale) { is_loaded_ = keeps_scale; }

    // Exchanges neighbours among the first `count` raw elements of 16 bits and converts them to float32 elements
    // [to, to + count).
    __aicore__ inline void WidenSwapped(int32_t to, int32_t count) {
        if constexpr (sizeof(ScaleT) != sizeof(float)) {
            LocalTensor<ScaleT> up = wide_[to].template ReinterpretCast<ScaleT>();
            SwapNeighbours(raw_, raw_, up, up[count], count);
            Widen(to, 0, count);
        }
    }

    __aicore__ inline LocalTensor<float> Wide() const { return wide_; }

private:
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(ScaleT));

    __aicore__ inline void ToFloat32(int32_t to, int32_t from, int32_t count) {
        if constexpr (sizeof(ScaleT) != sizeof(float)) {
            ToFloats(wide_[to], raw_[from], RoundUp(count, kBlockItems));
        }
    }

    // Loads contiguous elements by DMA. Returns the number of loaded elements.
    __aicore__ inline int32_t LoadRun(LocalTensor<ScaleT> dst, AscendC::GlobalTensor<ScaleT> source, int64_t first,
                                      int32_t count) {
        SyncPipes<AscendC::HardEvent::V_MTE2>();
#if __CCE_AICORE__ == 200
        int32_t aligned = count / kBlockItems * kBlockItems;
        if (aligned > 0) AscendC::DataCopy(dst, source[static_cast<uint64_t>(first)], static_cast<uint32_t>(aligned));
        return aligned;
#else
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count) * sizeof(ScaleT), 0, 0, 0);
        auto fill = static_cast<uint8_t>(RoundUp(count, kBlockItems) - count);
        AscendC::DataCopyPad(dst, source[static_cast<uint64_t>(first)], run,
                             AscendC::DataCopyPadExtParams<ScaleT>(true, 0, fill, static_cast<ScaleT>(0.0f)));
        return count;
#endif
    }

    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<ScaleT> raw_;
    LocalTensor<float> wide_;
    ScaleLayout layout_{};
    bool is_loaded_ = false;  // the whole scale is in UB
    AscendC::TPipe* pipe_ = nullptr;
    AscendC::TEventID loaded_event_ = 0;  // of MarkLoads()
};

}  // namespace norm
