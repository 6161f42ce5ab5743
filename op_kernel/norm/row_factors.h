// Multiply the heads of a tile by rows of factors, or add the rows to them: scales and biases of norms, and the factors
// and offsets of quantization. A row serves all heads of a side, or each head has its own row. The rows stay in UB as
// float32. If they do not fit, those of which each head has its own are streamed: each tile loads those of its heads.
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
    // type, from StartLoad() to Prepare(), and for streamed rows.
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, int32_t bytes, bool has_padding,
                                LocalTensor<float> staging) {
        pipe_ = pipe;
        tiling_ = tiling;
        bytes_ = bytes;
        staging_ = staging;
        if (bytes == 0) return;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(bytes));
        rows_ = buffer_.Get<float>();
        loaded_event_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
        if (!has_padding) return;
        // The padding of the rows must be finite, so all rows become zero. The loads wait for these zeros, and the
        // conversion to float32 waits for the loads.
        AscendC::Duplicate(rows_, 0.0f, bytes / static_cast<int32_t>(sizeof(float)));
        SyncPipes<AscendC::HardEvent::V_MTE2>();
    }

    // Selects the side whose factors the other functions receive. head: a row of a tile in UB.
    __aicore__ inline void Select(const QkvSideTiling& side, const HeadRow& head) {
        streams_ = side.streams_factors != 0;
        head_ = head;
    }

    // Starts to load rows [rows, D] of T that stay in UB. Call once per core for all rows, then MarkLoads().
    template <typename T>
    __aicore__ inline void StartLoad(const RowFactorsTiling& factors, GM_ADDR memory) {
        if (!IsStreamed(factors)) Load<T>(factors, memory, RowRange{0, factors.rows});
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
    __aicore__ inline void Prepare(const RowFactorsTiling& factors, GM_ADDR memory) {
        if (!IsStreamed(factors)) Convert<T>(factors, memory, RowRange{0, factors.rows});
    }

    // Adds a number to all elements of the rows that stay in UB. This function has no barrier: a norm runs before
    // Apply() reads the rows, and the norm has barriers.
    __aicore__ inline void AddNumber(const RowFactorsTiling& factors, float number) {
        if (!IsStreamed(factors)) Add(factors, number, factors.rows);
    }

    // Loads the rows of a tile's heads, if they are streamed, and adds a number to their elements.
    template <typename T>
    __aicore__ inline void LoadStreamed(const RowFactorsTiling& factors, GM_ADDR memory, const Tile& tile,
                                        float number = 0.0f) {
        if (!IsStreamed(factors)) return;
        const RowRange rows{tile.head, tile.heads};
        if (head_.pitch != head_.size) AscendC::Duplicate(Rows(factors), 0.0f, rows.count * head_.pitch);
        SyncPipes<AscendC::HardEvent::V_MTE2>();  // of the rows before, in the same memory
        Load<T>(factors, memory, rows);
        SyncPipes<AscendC::HardEvent::MTE2_V>();
#if __CCE_AICORE__ == 200
        SyncPipes<AscendC::HardEvent::S_V>();  // of LoadByScalar()
#endif
        Convert<T>(factors, memory, rows);
        Add(factors, number, rows.count);
        VectorBarrier();
    }

    // rows = rows op factors, for a tile's rows, token by token.
    template <RowOp op>
    __aicore__ inline void Apply(const RowFactorsTiling& factors, LocalTensor<float> rows, const Tile& tile) {
        if (factors.rows == 0) return;
        if (factors.rows == 1) {
            PitchedRows heads{rows, head_.pitch, false};
            ApplyPerRow<op>(heads, heads, OneRow(Rows(factors)), tile.tokens * tile.heads,
                            RoundUp(head_.size, kBlockFloats));
        } else {
            int32_t token_pitch = tile.heads * head_.pitch;
            int32_t first = IsStreamed(factors) ? 0 : tile.head * head_.pitch;
            PitchedRows tokens{rows, token_pitch, false};
            ApplyPerRow<op>(tokens, tokens, OneRow(Rows(factors)[first]), tile.tokens, token_pitch);
        }
        VectorBarrier();
    }

private:
    struct RowRange {
        int32_t first, count;
    };

    __aicore__ inline bool IsStreamed(const RowFactorsTiling& factors) const { return streams_ && factors.rows > 1; }

    template <typename T>
    __aicore__ inline void Load(const RowFactorsTiling& factors, GM_ADDR memory, const RowRange& rows) {
        if (rows.count == 0 || factors.rows == 0 || factors.lane_stride == 0) return;
        LocalTensor<T> own_type_rows = RowsInOwnType<T>(factors);
        const int64_t first = static_cast<int64_t>(rows.first) * factors.head_stride;
#if __CCE_AICORE__ == 200
        if (PitchInOwnType<T>() != head_.size) {
            LoadByScalar(own_type_rows, TensorAt<T>(memory, first), factors, rows.count);
            return;
        }
#endif
        RowBursts<T> bursts;
        bursts.Init(tiling_, head_.size, PitchInOwnType<T>());
        bursts.LoadRows(own_type_rows, memory, first, rows.count, factors.head_stride, head_.size);
    }

    template <typename T>
    __aicore__ inline void Convert(const RowFactorsTiling& factors, GM_ADDR memory, const RowRange& rows) {
        if (factors.rows == 0) return;
        if (factors.lane_stride == 0) {
            LoadNumbers<T>(factors, memory, rows);
        } else if (factors.staging_bytes >= 0) {
            CopyAsFloat32(Rows(factors), head_.pitch, RowsInOwnType<T>(factors), PitchInOwnType<T>(), rows.count);
            VectorBarrier();
        }
    }

    __aicore__ inline void Add(const RowFactorsTiling& factors, float number, int32_t count) {
        if (factors.rows == 0 || number == 0.0f) return;
        AscendC::Adds(Rows(factors), Rows(factors), number, count * head_.pitch);
    }

    // Elements from one row to the next in their own type.
    template <typename T>
    __aicore__ inline int32_t PitchInOwnType() const {
        return RoundUp(head_.size, kBlockBytes / static_cast<int32_t>(sizeof(T)));
    }

    // The rows as float32. Streamed rows are at the beginning of the staging memory.
    __aicore__ inline LocalTensor<float> Rows(const RowFactorsTiling& factors) {
        return IsStreamed(factors) ? staging_ : rows_[factors.ub_offset];
    }

    // The memory for rows in their own type. Float32 rows whose pitch is that of the tile need no other memory.
    // Streamed rows are behind those as float32.
    template <typename T>
    __aicore__ inline LocalTensor<T> RowsInOwnType(const RowFactorsTiling& factors) {
        if (factors.staging_bytes < 0) return Rows(factors).template ReinterpretCast<T>();
        const int32_t at = IsStreamed(factors) ? tiling_->tile_heads * head_.pitch
                                               : factors.staging_bytes / static_cast<int32_t>(sizeof(float));
        return staging_[at].template ReinterpretCast<T>();
    }

    // Sets all lanes of a row to its number.
    template <typename T>
    __aicore__ inline void LoadNumbers(const RowFactorsTiling& factors, GM_ADDR memory, const RowRange& rows) {
        AscendC::GlobalTensor<T> numbers = TensorAt<T>(memory, 0);
        LocalTensor<float> to = Rows(factors);
        for (int32_t row = 0; row < rows.count; ++row) {
            auto at = static_cast<uint64_t>((rows.first + row) * factors.head_stride);
            AscendC::Duplicate(to[row * head_.pitch], static_cast<float>(numbers.GetValue(at)), head_.pitch);
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
    // stores too. LoadStreamed() synchronises by itself.
    template <typename T>
    __aicore__ inline void LoadByScalar(LocalTensor<T> dst, AscendC::GlobalTensor<T> source,
                                        const RowFactorsTiling& factors, int32_t rows) {
        const int32_t pitch = PitchInOwnType<T>();
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t row = 0; row < rows; ++row)
            for (int32_t i = 0; i < pitch; ++i)
                dst.SetValue(static_cast<uint32_t>(row * pitch + i),
                             i < head_.size ? source.GetValue(static_cast<uint64_t>(row * factors.head_stride + i))
                                            : static_cast<T>(0.0f));
    }
#endif

    AscendC::TPipe* pipe_ = nullptr;
    const CommonTiling* tiling_ = nullptr;
    int32_t bytes_ = 0;
    AscendC::TEventID loaded_event_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> rows_, staging_;
    bool streams_ = false;  // of the selected side
    HeadRow head_{};
};

}  // namespace norm
