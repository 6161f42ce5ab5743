// The split of a chain of single launches: copies the queries, keys and values of a fused tensor [tokens, heads of q, k
// and v, D] into tensors of their own. trace_qkv_chain.py runs it; it is no operator of the package.
//
// Each core copies one run of the fused tensor, tile by tile. The queue binds the input to the output, so that no
// vector instruction touches the bytes, and its two buffers let the load of a tile overlap with the stores of the tile
// before.
#include "kernel_operator.h"

constexpr int32_t kParts = 3;  // q, k, v
constexpr int32_t kBuffers = 2;

struct SplitHeadsTilingData {
    int64_t part_bytes[kParts];  // of one token, multiples of 32
    int64_t tokens;
    int64_t core_bytes;  // of a core's run, a multiple of 32
    int64_t tile_bytes;  // a multiple of 32
};

class SplitHeads {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const SplitHeadsTilingData* tiling, GM_ADDR fused,
                               GM_ADDR* parts) {
        tiling_ = tiling;
        parts_ = parts;
        for (int32_t part = 0; part < kParts; ++part) token_bytes_ += tiling->part_bytes[part];
        const int64_t total = tiling->tokens * token_bytes_;
        const int64_t first = tiling->core_bytes * AscendC::GetBlockIdx();
        const int64_t end = Min(first + tiling->core_bytes, total);
        if (first >= end) return;
        pipe->InitBuffer(queue_, kBuffers, static_cast<uint32_t>(tiling->tile_bytes));
        source_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(fused));
        Load(first, end);
        for (int64_t at = first; at < end; at += tiling->tile_bytes) {
            const int64_t next = at + tiling->tile_bytes;
            AscendC::LocalTensor<uint8_t> bytes = queue_.DeQue<uint8_t>();
            if (next < end) Load(next, end);
            Store(bytes, at, Min(next, end));
            queue_.FreeTensor(bytes);
        }
    }

private:
    __aicore__ inline int64_t Min(int64_t a, int64_t b) const { return a < b ? a : b; }

    __aicore__ inline void Load(int64_t at, int64_t end) {
        AscendC::LocalTensor<uint8_t> bytes = queue_.AllocTensor<uint8_t>();
        AscendC::DataCopy(bytes, source_[at], static_cast<uint32_t>(Min(tiling_->tile_bytes, end - at)));
        queue_.EnQue(bytes);
    }

    // Stores the bytes [at, end) of the fused tensor, one run for each part of each token.
    __aicore__ inline void Store(AscendC::LocalTensor<uint8_t> bytes, int64_t at, int64_t end) {
        int64_t token = at / token_bytes_;
        int64_t in_part = at - token * token_bytes_;  // the offset from the first byte of the part
        int32_t part = 0;
        while (in_part >= tiling_->part_bytes[part]) in_part -= tiling_->part_bytes[part++];
        for (int64_t from = at; from < end;) {
            const int64_t run_bytes = Min(tiling_->part_bytes[part] - in_part, end - from);
            AscendC::GlobalTensor<uint8_t> target;
            target.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(parts_[part]) + token * tiling_->part_bytes[part] +
                                   in_part);
            AscendC::DataCopy(target, bytes[static_cast<uint32_t>(from - at)], static_cast<uint32_t>(run_bytes));
            from += run_bytes;
            in_part = 0;
            if (++part == kParts) {
                part = 0;
                ++token;
            }
        }
    }

    const SplitHeadsTilingData* tiling_ = nullptr;
    GM_ADDR* parts_ = nullptr;
    int64_t token_bytes_ = 0;  // of all parts
    AscendC::GlobalTensor<uint8_t> source_;
    AscendC::TQueBind<AscendC::TPosition::VECIN, AscendC::TPosition::VECOUT, 1> queue_;
};

extern "C" __global__ __aicore__ void split_heads(GM_ADDR fused, GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR workspace,
                                                  GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(SplitHeadsTilingData);
    GET_TILING_DATA(tiling_data, tiling);
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::TPipe pipe;
    GM_ADDR parts[kParts] = {q, k, v};
    SplitHeads kernel;
    kernel.Run(&pipe, &tiling_data, fused, parts);
}
