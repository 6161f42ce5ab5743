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
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, int32_t bytes) {
        tiling_ = tiling;
        if (bytes == 0) return;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(bytes));
        rows_ = buffer_.Get<float>();
        // The padding of the rows must be finite.
        if (tiling->row_pitch != tiling->head_size)
            AscendC::Duplicate(rows_, 0.0f, bytes / static_cast<int32_t>(sizeof(float)));
    }

    // Loads rows [rows, D] of T and converts them to float32. Call once per core. staging: scratch memory for all rows.
    // Waits for earlier vector instructions.
    template <typename T>
    __aicore__ inline void Load(const RowFactorsTiling& factors, GM_ADDR memory, LocalTensor<float> staging) {
        if (factors.rows == 0) return;
        if (factors.lane_stride == 0) {
            LoadNumbers<T>(factors, memory);
            return;
        }
        LocalTensor<T> raw = staging.template ReinterpretCast<T>();
        int32_t pitch = RoundUp(tiling_->head_size, kBlockBytes / static_cast<int32_t>(sizeof(T)));
        SyncPipes<AscendC::HardEvent::V_MTE2>();
#if __CCE_AICORE__ == 200
        if (pitch != tiling_->head_size) {
            LoadByScalar(raw, TensorAt<T>(memory, 0), factors, pitch);
        } else
#endif
        {
            RowBursts<T> bursts;
            bursts.Init(tiling_, tiling_->head_size, pitch);
            bursts.LoadRows(raw, memory, 0, factors.rows, factors.head_stride, tiling_->head_size);
        }
        SyncPipes<AscendC::HardEvent::MTE2_V>();
        Widen(rows_[factors.at], raw, pitch, factors.rows);
        VectorBarrier();
    }

    // Adds a number to all elements of the rows.
    __aicore__ inline void AddNumber(const RowFactorsTiling& factors, float number) {
        if (factors.rows == 0 || number == 0.0f) return;
        AscendC::Adds(rows_[factors.at], rows_[factors.at], number, factors.rows * tiling_->row_pitch);
        VectorBarrier();
    }

    // rows = rows op factors, for a tile's rows [row_pitch], token by token.
    template <RowOp op>
    __aicore__ inline void Apply(const RowFactorsTiling& factors, LocalTensor<float> rows, const Tile& tile) {
        if (factors.rows == 0) return;
        int32_t pitch = tiling_->row_pitch;
        if (factors.rows == 1) {
            PitchedRows heads{rows, pitch, false};
            ApplyPerRow<op>(heads, heads, OneRow(rows_[factors.at]), tile.tokens * tile.heads,
                            RoundUp(tiling_->head_size, kBlockFloats));
        } else {
            int32_t token_pitch = tile.heads * pitch;
            PitchedRows tokens{rows, token_pitch, false};
            ApplyPerRow<op>(tokens, tokens, OneRow(rows_[factors.at + tile.head * pitch]), tile.tokens, token_pitch);
        }
        VectorBarrier();
    }

private:
    // Sets all lanes of a row to its number.
    template <typename T>
    __aicore__ inline void LoadNumbers(const RowFactorsTiling& factors, GM_ADDR memory) {
        AscendC::GlobalTensor<T> numbers = TensorAt<T>(memory, 0);
        for (int32_t row = 0; row < factors.rows; ++row) {
            float number = static_cast<float>(numbers.GetValue(static_cast<uint64_t>(row * factors.head_stride)));
            AscendC::Duplicate(rows_[factors.at + row * tiling_->row_pitch], number, tiling_->row_pitch);
        }
        VectorBarrier();
    }

    // Factors of 16 bits have x's type, and so the pitch of its rows.
    template <typename T>
    __aicore__ inline void Widen(LocalTensor<float> dst, LocalTensor<T> src, int32_t pitch, int32_t rows) {
        if constexpr (sizeof(T) != sizeof(float)) {
            AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(rows * pitch));
        } else {
            auto row_blocks = static_cast<uint16_t>(pitch / kBlockFloats);
            auto gap = static_cast<uint16_t>((tiling_->row_pitch - pitch) / kBlockFloats);
            AscendC::DataCopy(dst, src, AscendC::DataCopyParams(static_cast<uint16_t>(rows), row_blocks, 0, gap));
        }
    }

#if __CCE_AICORE__ == 200
    template <typename T>
    __aicore__ inline void LoadByScalar(LocalTensor<T> dst, AscendC::GlobalTensor<T> source,
                                        const RowFactorsTiling& factors, int32_t pitch) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < factors.rows; ++row)
            for (int32_t i = 0; i < pitch; ++i)
                dst.SetValue(static_cast<uint32_t>(row * pitch + i),
                             i < tiling_->head_size
                                 ? source.GetValue(static_cast<uint64_t>(row * factors.head_stride + i))
                                 : static_cast<T>(0.0f));
        SyncPipes<AscendC::HardEvent::S_V>();
    }
#endif

    const CommonTiling* tiling_ = nullptr;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> rows_;
};

}  // namespace norm
