// The store into a KV cache of a chain of single launches: copies row t of x [tokens, row] to row slots[t] of the cache
// [rows, row], and leaves out tokens whose slot is no row. trace_qkv_chain.py runs it; it is no operator of the
// package.
//
// Each core copies a run of tokens, tile by tile. The queue binds the input to the output, and its two buffers let the
// load of a tile overlap with the stores of the tile before. If there are fewer tokens than cores, several cores copy
// parts of each row.
#include "kernel_operator.h"

constexpr int32_t kBuffers = 2;

struct ScatterRowsTilingData {
    int64_t tokens;
    int64_t cache_rows;
    int64_t row_bytes;
    int64_t piece_bytes;  // a row is a whole number of pieces, one for each core that shares it; a multiple of 32
    int64_t core_tokens;
    int64_t tile_tokens;
};

class ScatterRows {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const ScatterRowsTilingData* tiling, GM_ADDR x, GM_ADDR slots,
                               GM_ADDR cache) {
        tiling_ = tiling;
        const int64_t pieces = tiling->row_bytes / tiling->piece_bytes;
        const int64_t first = AscendC::GetBlockIdx() / pieces * tiling->core_tokens;
        const int64_t end = Min(first + tiling->core_tokens, tiling->tokens);
        if (first >= end) return;
        const int64_t piece_offset = AscendC::GetBlockIdx() % pieces * tiling->piece_bytes;
        source_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(x) + piece_offset);
        cache_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(cache) + piece_offset);
        pipe->InitBuffer(queue_, kBuffers, static_cast<uint32_t>(tiling->tile_tokens * tiling->piece_bytes));
        pipe->InitBuffer(slots_, static_cast<uint32_t>(tiling->core_tokens * sizeof(int32_t)));
        LoadSlots(slots, first, end - first);
        Load(first, end);
        WaitForSlots();
        for (int64_t token = first; token < end; token += tiling->tile_tokens) {
            const int64_t next = token + tiling->tile_tokens;
            AscendC::LocalTensor<uint8_t> rows = queue_.DeQue<uint8_t>();
            if (next < end) Load(next, end);
            Store(rows, token - first, Min(next, end) - token);
            queue_.FreeTensor(rows);
        }
    }

private:
    __aicore__ inline int64_t Min(int64_t a, int64_t b) const { return a < b ? a : b; }

    // Starts the copy of the core's slots to UB. The scalar unit reads GM slowly.
    __aicore__ inline void LoadSlots(GM_ADDR slots, int64_t first, int64_t count) {
        AscendC::GlobalTensor<int32_t> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(slots) + first);
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count * sizeof(int32_t)), 0, 0, 0);
        AscendC::DataCopyPad(slots_.Get<int32_t>(), source, run, AscendC::DataCopyPadExtParams<int32_t>());
        slots_event_ = static_cast<int32_t>(GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S));
        AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(slots_event_);
    }

    __aicore__ inline void WaitForSlots() { AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(slots_event_); }

    __aicore__ inline void Load(int64_t token, int64_t end) {
        AscendC::LocalTensor<uint8_t> rows = queue_.AllocTensor<uint8_t>();
        const auto count = static_cast<uint16_t>(Min(tiling_->tile_tokens, end - token));
        const auto gap = static_cast<uint32_t>(tiling_->row_bytes - tiling_->piece_bytes);
        AscendC::DataCopyExtParams runs(count, static_cast<uint32_t>(tiling_->piece_bytes), gap, 0, 0);
        AscendC::DataCopyPad(rows, source_[token * tiling_->row_bytes], runs, AscendC::DataCopyPadExtParams<uint8_t>());
        queue_.EnQue(rows);
    }

    // first: the number of the tile's first token in the core's run.
    __aicore__ inline void Store(AscendC::LocalTensor<uint8_t> rows, int64_t first, int64_t count) {
        AscendC::LocalTensor<int32_t> slots = slots_.Get<int32_t>();
        for (int64_t i = 0; i < count; ++i) {
            const int64_t slot = slots.GetValue(static_cast<uint32_t>(first + i));
            if (slot < 0 || slot >= tiling_->cache_rows) continue;
            AscendC::DataCopy(cache_[slot * tiling_->row_bytes], rows[static_cast<uint32_t>(i * tiling_->piece_bytes)],
                              static_cast<uint32_t>(tiling_->piece_bytes));
        }
    }

    const ScatterRowsTilingData* tiling_ = nullptr;
    int32_t slots_event_ = 0;
    AscendC::GlobalTensor<uint8_t> source_, cache_;
    AscendC::TQueBind<AscendC::TPosition::VECIN, AscendC::TPosition::VECOUT, 1> queue_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> slots_;
};

extern "C" __global__ __aicore__ void scatter_rows(GM_ADDR x, GM_ADDR slots, GM_ADDR cache, GM_ADDR workspace,
                                                   GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(ScatterRowsTilingData);
    GET_TILING_DATA(tiling_data, tiling);
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    ScatterRows kernel;
    kernel.Run(&pipe, &tiling_data, x, slots, cache);
}
