// Multiply the heads of a tile by rows of factors, or add the rows to them: scales and biases of norms, and the factors
// and offsets of quantization. A row serves all heads of a side, or each head has its own row. The rows stay in UB as
// float32.
#pragma once

#include "../memory/row_bursts.h"
#include "../memory/row_steps.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../qkv_norm_rope_cache_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

class RowFactors {
public:
    // has_padding: in the rows of some head, the pitch exceeds the size. staging: memory for the rows in their own
    // type, from StartLoad() to Prepare().
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, int32_t bytes, bool has_padding,
                                LocalTensor<float> staging) {
        pipe_ = pipe;
        tiling_ = tiling;
        bytes_ = bytes;
        if (bytes == 0) return;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(bytes));
        rows_ = buffer_.Get<float>();
        staging_ = staging;
        loaded_event_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
        if (!has_padding) return;
        // The padding of the rows must be finite, so all rows become zero. The loads wait for these zeros, and the
        // conversion to float32 waits for the loads.
        AscendC::Duplicate(rows_, 0.0f, bytes / static_cast<int32_t>(sizeof(float)));
        SyncPipes<AscendC::HardEvent::V_MTE2>();
    }

    // Starts to load rows [rows, D] of T. Call once per core for all rows, then MarkLoads(). head: a row in UB.
    template <typename T>
    __aicore__ inline void StartLoad(const RowFactorsTiling& factors, const HeadRow& head, GM_ADDR memory) {
        if (factors.rows == 0 || factors.lane_stride == 0) return;
        LocalTensor<T> own_type_rows = RowsInOwnType<T>(factors);
#if __CCE_AICORE__ == 200
        if (PitchInOwnType<T>(head) != head.size) {
            LoadByScalar(own_type_rows, TensorAt<T>(memory, 0), factors, head.size, PitchInOwnType<T>(head));
            return;
        }
#endif
        RowBursts<T> bursts;
        bursts.Init(tiling_, head.size, PitchInOwnType<T>(head));
        bursts.LoadRows(own_type_rows, memory, 0, factors.rows, factors.head_stride, head.size);
    }

    __aicore__ inline void MarkLoads() {
        if (bytes_ != 0) AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    __aicore__ inline void WaitForLoads() {
        if (bytes_ == 0) return;
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
        pipe_->ReleaseEventID<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    // Converts loaded rows of T to float32, after WaitForLoads().
    template <typename T>
    __aicore__ inline void Prepare(const RowFactorsTiling& factors, const HeadRow& head, GM_ADDR memory) {
        if (factors.rows == 0) return;
        if (factors.lane_stride == 0) {
            LoadNumbers<T>(factors, head, memory);
        } else if (factors.staging_bytes >= 0) {
            CopyAsFloat32(rows_[factors.ub_offset], head.pitch, RowsInOwnType<T>(factors), PitchInOwnType<T>(head),
                          factors.rows);
            VectorBarrier();
        }
    }

    // Adds a number to all elements of the rows. This function has no barrier: a norm runs before Apply() reads the
    // rows, and the norm has barriers.
    __aicore__ inline void AddNumber(const RowFactorsTiling& factors, const HeadRow& head, float number) {
        if (factors.rows == 0 || number == 0.0f) return;
        AscendC::Adds(rows_[factors.ub_offset], rows_[factors.ub_offset], number, factors.rows * head.pitch);
    }

    // rows = rows op factors, for a tile's rows, token by token.
    template <RowOp op>
    __aicore__ inline void Apply(const RowFactorsTiling& factors, const HeadRow& head, LocalTensor<float> rows,
                                 const Tile& tile) {
        if (factors.rows == 0) return;
        if (factors.rows == 1) {
            PitchedRows heads{rows, head.pitch, false};
            ApplyPerRow<op>(heads, heads, OneRow(rows_[factors.ub_offset]), tile.tokens * tile.heads,
                            RoundUp(head.size, kBlockFloats));
        } else {
            int32_t token_pitch = tile.heads * head.pitch;
            PitchedRows tokens{rows, token_pitch, false};
            ApplyPerRow<op>(tokens, tokens, OneRow(rows_[factors.ub_offset + tile.head * head.pitch]), tile.tokens,
                            token_pitch);
        }
        VectorBarrier();
    }

private:
    // Elements from one row to the next in their own type.
    template <typename T>
    __aicore__ inline int32_t PitchInOwnType(const HeadRow& head) const {
        return RoundUp(head.size, kBlockBytes / static_cast<int32_t>(sizeof(T)));
    }

    // The memory for rows in their own type. Float32 rows whose pitch is that of the tile need no other memory.
    template <typename T>
    __aicore__ inline LocalTensor<T> RowsInOwnType(const RowFactorsTiling& factors) {
        if (factors.staging_bytes < 0) return rows_[factors.ub_offset].template ReinterpretCast<T>();
        return staging_[factors.staging_bytes / static_cast<int32_t>(sizeof(float))].template ReinterpretCast<T>();
    }

    // Sets all lanes of a row to its number.
    template <typename T>
    __aicore__ inline void LoadNumbers(const RowFactorsTiling& factors, const HeadRow& head, GM_ADDR memory) {
        AscendC::GlobalTensor<T> numbers = TensorAt<T>(memory, 0);
        for (int32_t row = 0; row < factors.rows; ++row) {
            float number = static_cast<float>(numbers.GetValue(static_cast<uint64_t>(row * factors.head_stride)));
            AscendC::Duplicate(rows_[factors.ub_offset + row * head.pitch], number, head.pitch);
        }
        VectorBarrier();
    }

    // Factors of 16 bits have x's type, and so the pitch of its rows.
    template <typename T>
    __aicore__ inline void CopyAsFloat32(LocalTensor<float> dst, int32_t dst_pitch, LocalTensor<T> src, int32_t pitch,
                                         int32_t rows) {
        if constexpr (sizeof(T) != sizeof(float)) {
            AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(rows * pitch));
        } else {
            auto row_blocks = static_cast<uint16_t>(pitch / kBlockFloats);
            auto gap = static_cast<uint16_t>((dst_pitch - pitch) / kBlockFloats);
            AscendC::DataCopy(dst, src, AscendC::DataCopyParams(static_cast<uint16_t>(rows), row_blocks, 0, gap));
        }
    }

#if __CCE_AICORE__ == 200
    // Loads rows that end inside a block. The rows of a tile then end inside a block as well, so the scalar unit also
    // loads the first tile. After that load it synchronises with the vector unit. The vector unit thus sees these
    // stores too.
    template <typename T>
    __aicore__ inline void LoadByScalar(LocalTensor<T> dst, AscendC::GlobalTensor<T> source,
                                        const RowFactorsTiling& factors, int32_t size, int32_t pitch) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < factors.rows; ++row)
            for (int32_t i = 0; i < pitch; ++i)
                dst.SetValue(static_cast<uint32_t>(row * pitch + i),
                             i < size ? source.GetValue(static_cast<uint64_t>(row * factors.head_stride + i))
                                      : static_cast<T>(0.0f));
    }
#endif

    AscendC::TPipe* pipe_ = nullptr;
    const CommonTiling* tiling_ = nullptr;
    int32_t bytes_ = 0;
    AscendC::TEventID loaded_event_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> rows_, staging_;
};

}  // namespace norm
