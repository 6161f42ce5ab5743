// The kernel of qk_square_sums: the sums of the squares of each token's queries and keys, over all heads.
//
// A core processes tiles: all heads of some tokens of q or of k. If the heads of a token do not fit UB, a tile has some
// heads of one token. If a head does not fit UB, it is processed chunk by chunk. A core collects the sums of a block of
// tokens in UB and stores them together. Few tokens with many elements are split by heads: each core stores the sums of
// its heads into a workspace, and when all cores have finished, each core adds the parts of some tokens.
//
// Every sum is a tree whose order depends on the shapes, the strides and the chip only: blocks of 8 lanes are added, or
// halves of a row, the lanes of several tiles or chunks are added in a binary tree (ChunkSums), and so are the parts of
// several cores. A call therefore has the same bits in every run.
//
// The error, with u = 2^-24: A square rounds once. n squares in one tile go through ceil(log2 n) < log2(n) + 1
// additions, and through one more if the padding of the heads widens the row. Several tiles or chunks add at most two
// levels, and parts of several cores another one. No term is negative. The relative error of a sum is within
// (6 + log2 n) u. npu_rope/testing/bounds.py uses this bound.
#pragma once

#include "../memory/row_bursts.h"
#include "../memory/row_pieces.h"
#include "../memory/row_steps.h"
#include "../memory/tile_rows.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../qk_square_sums_tiling_data.h"
#include "chunk_sums.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

struct SquareSumsArguments {
    GM_ADDR x[2];  // q and k
    GM_ADDR out;
    GM_ADDR workspace;  // kSquareSumsSplit...: the sums of each part of the heads
};

// T: type of q and k. is_long: heads are processed in chunks. is_split: the heads of a token are on several cores.
template <typename T, bool is_long, bool is_split>
class SquareSumsKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const QkSquareSumsTilingData* tiling,
                               const SquareSumsArguments& arguments) {
        if (!window_.Begin(&tiling->common, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        Init(pipe, tiling, arguments);
        LoadPiece(window_.current, 0);
        BuildOffsets();
        do {
            window_.FindNext();
            ProcessTile(window_.current);
        } while (window_.Advance());
        if constexpr (is_split) AddParts();
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(T));
    static constexpr int32_t kSums = 2;      // sums of a token
    static constexpr int32_t kOffsets = 16;  // Gather offsets of the elements of a 32-byte block

    __aicore__ inline void Init(AscendC::TPipe* pipe, const QkSquareSumsTilingData* tiling,
                                const SquareSumsArguments& arguments) {
        tiling_ = tiling;
        common_ = &tiling->common;
        arguments_ = arguments;
        chunks_ = RowChunks{tiling->head_elements, tiling->chunk};
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(common_->queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(tiling->out_bytes));
        pipe->InitBuffer(work_, static_cast<uint32_t>(common_->work_bytes));
        FloatAllocator work(work_.template Get<float>());
        lane_sums_ = work.Take(kRepeatFloats);
        tree_.Init(work.Take(tiling->levels * kRepeatFloats));
        LocalTensor<uint32_t> offsets = work.Take(kOffsets).template ReinterpretCast<uint32_t>();
        LocalTensor<uint32_t> sum_offsets = work.Take(kOffsets).template ReinterpretCast<uint32_t>();
        rows_ = work.Rest();
        temp_ = rows_[static_cast<uint32_t>(common_->temp_offset_bytes) / sizeof(float)];
        sum_pieces_.Init(sum_offsets, RoundUp(kSums * common_->block_tokens, kBlockFloats));
        if constexpr (is_long) {
            pieces_.Init(offsets, tiling->chunk);
        } else {
            x_rows_.Init(common_, common_->row_pitch);
#if __CCE_AICORE__ == 200
            offsets_.Init(pipe, common_, &x_rows_);
#endif
        }
        if constexpr (is_split) part_ = AscendC::GetBlockIdx() % common_->head_parts;
    }

    // Call once per core, while the first tile is loaded.
    __aicore__ inline void BuildOffsets() {
#if __CCE_AICORE__ == 200
        sum_pieces_.BuildOffsets(rows_);
        if constexpr (is_long) {
            pieces_.BuildOffsets(rows_);
        } else {
            offsets_.Build(rows_, &x_rows_);
        }
#endif
    }

    // ---- between GM and UB

    // The number of pieces of a tile.
    __aicore__ inline int64_t Pieces() const { return is_long ? chunks_.Count() : 1; }

    __aicore__ inline void LoadPiece(const Tile& tile, int64_t piece) {
        LocalTensor<T> x = in_.template AllocTensor<T>();
        if constexpr (is_long) {
            int64_t first = TileOffset(tile, common_->side[tile.side].x_stride) + piece * tiling_->chunk;
            pieces_.Load(x, arguments_.x[tile.side], first, chunks_.ElementsOf(piece));
        } else {
            x_rows_.Load(x, arguments_.x[tile.side], tile);
        }
        in_.EnQue(x);
    }

    __aicore__ inline void LoadNext(const Tile& tile, int64_t piece) {
        if (piece + 1 < Pieces()) {
            LoadPiece(tile, piece + 1);
        } else if (window_.has_next) {
            LoadPiece(window_.next, 0);
        }
    }

    __aicore__ inline void OpenBlock(const Tile& tile) {
        block_token_ = tile.token;
        block_tokens_ = tile.block_tokens;
        sums_ = out_.template AllocTensor<float>();
        // Also the sums of a side without heads. AddPiece() has a barrier before it sets sums.
        AscendC::Duplicate(sums_, 0.0f, kSums * block_tokens_);
    }

    __aicore__ inline void StoreBlock() {
        int32_t count = kSums * block_tokens_;
        int64_t first = kSums * block_token_;
        if constexpr (is_split) {
            sum_pieces_.StoreQueued(arguments_.workspace, &out_, sums_, part_ * tiling_->part_pitch + first, count);
            return;
        }
#if __CCE_AICORE__ == 200
        if (tiling_->stores_by_scalar != 0) {
            StoreFew(TensorAt<float>(arguments_.out, first), count);
            return;
        }
        sum_pieces_.CopyToTail(sums_, count);
#endif
        sum_pieces_.StoreQueued(arguments_.out, &out_, sums_, first, count);
    }

#if __CCE_AICORE__ == 200
    // Stores fewer than 8 sums by the scalar unit, because a DMA copies at least 32 bytes. One core has all of them.
    __aicore__ inline void StoreFew(AscendC::GlobalTensor<float> target, int32_t count) {
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t i = 0; i < count; ++i)
            target.SetValue(static_cast<uint64_t>(i), sums_.GetValue(static_cast<uint32_t>(i)));
        AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::ENTIRE_DATA_CACHE>(target);
        out_.FreeTensor(sums_);
    }
#endif

    // ---- in UB

    __aicore__ inline void ProcessTile(const Tile& tile) {
        if (tile.opens_block != 0) OpenBlock(tile);
        const bool continues = window_.has_previous && AreOneRow(window_.previous, tile);
        const bool is_continued = window_.has_next && AreOneRow(tile, window_.next);
        if (!continues) chunk_ = 0;
        for (int64_t piece = 0; piece < Pieces(); ++piece) {
            LocalTensor<T> x = in_.template DeQue<T>();
            LoadNext(tile, piece);
            bool is_whole = !continues && !is_continued && Pieces() == 1;
            AddPiece(x, tile, piece, is_whole);
        }
        if (chunk_ > 0 && !is_continued) {
            tree_.Total(lane_sums_, chunk_);
            SumLanes(tile, lane_sums_, kRepeatFloats, kRepeatFloats);
        }
        if (!window_.has_next || window_.next.opens_block != 0) StoreBlock();
    }

    // Returns whether two consecutive tiles have heads of the same token.
    __aicore__ inline bool AreOneRow(const Tile& tile, const Tile& next) const {
        return next.side == tile.side && next.token == tile.token;
    }

    // Adds the squares of a piece. is_whole: it has all heads of its tokens.
    __aicore__ inline void AddPiece(LocalTensor<T> x, const Tile& tile, int64_t piece, bool is_whole) {
        int32_t width = is_long ? RoundUp(chunks_.ElementsOf(piece), kBlockItems) : tile.heads * common_->row_pitch;
        int32_t count = tile.tokens * width;
        LocalTensor<float> squares = Widened(x, tile, piece, count);
        AscendC::Mul(squares, squares, squares, count);
        VectorBarrier();
        LocalTensor<float> sums = squares;
        if (is_whole) {
            width = SumBlocks(&sums, tile.tokens, width, kRepeatFloats);
            SumLanes(tile, sums, width, FoldRows<RowOp::kAdd>(sums, width, tile.tokens, width, kRepeatFloats));
        } else {
            width = SumBlocks(&sums, 1, width, kBlockFloats * kRepeatFloats - 1);
            tree_.Add(sums, chunk_, width);
            ++chunk_;
        }
        if (IsInPlace()) in_.FreeTensor(x);
    }

    // Whether float32 rows stay in the input buffer.
    __aicore__ inline bool IsInPlace() const { return kIsFloat && !is_long && common_->copy_mode != kCopyPacked; }

    // Returns a piece as float32. The padding of its rows is 0.
    __aicore__ inline LocalTensor<float> Widened(LocalTensor<T> x, const Tile& tile, int64_t piece, int32_t count) {
        if constexpr (is_long) {
            pieces_.Widen(rows_, x, chunks_.ElementsOf(piece), count);
        } else {
#if __CCE_AICORE__ == 200
            if (common_->copy_mode == kCopyPacked) {
                Unpack(x, tile, count);
                in_.FreeTensor(x);
                return rows_;
            }
#endif
            if constexpr (kIsFloat) {
                return x;
            } else {
                ToFloats(rows_, x, count);
            }
        }
        in_.FreeTensor(x);
        return rows_;
    }

#if __CCE_AICORE__ == 200
    __aicore__ inline void Unpack(LocalTensor<T> x, const Tile& tile, int32_t count) {
        if constexpr (kIsFloat) {
            x_rows_.Packed().Unpack(rows_, x, tile);
        } else {
            LocalTensor<T> narrow = temp_.template ReinterpretCast<T>();
            x_rows_.Packed().Unpack(narrow, x, tile);
            ToFloats(rows_, narrow, count);
        }
        // Gather has filled the padding of each row with its last element.
        ClearLanes(rows_, common_->row_pitch, tile.tokens * tile.heads,
                   LaneRange{common_->head_size, common_->row_pitch});
    }
#endif

    // Replaces rows [width] without gaps by the sums of their blocks of 8 lanes, again and again while a row is longer
    // than `limit` and has whole repeats of 64 lanes. Returns the new width. The sums may be in temp_.
    __aicore__ inline int32_t SumBlocks(LocalTensor<float>* rows, int32_t count, int32_t width, int32_t limit) {
        for (LocalTensor<float> to = temp_; width > limit && width % kRepeatFloats == 0; width /= kBlockFloats) {
            LocalTensor<float> from = *rows;
            int32_t repeats = count * width / kRepeatFloats;
            for (int32_t i = 0; i < repeats; i += kMaxRepeats)
                AscendC::BlockReduceSum(to[i * kBlockFloats], from[i * kRepeatFloats], MinOf(repeats - i, kMaxRepeats),
                                        kRepeatFloats, 1, 1, kRepeatFloats / kBlockFloats);
            VectorBarrier();
            *rows = to;
            to = from;
        }
        return width;
    }

    // Sets the sums of the tile's tokens and side, from at most 64 lanes of each row.
    __aicore__ inline void SumLanes(const Tile& tile, LocalTensor<float> rows, int32_t pitch, int32_t lanes) {
        for (int32_t row = 0; row < tile.tokens; row += kMaxRepeats)
            AscendC::WholeReduceSum(sums_[kSums * (tile.table_row + row) + tile.side], rows[row * pitch], lanes,
                                    MinOf(tile.tokens - row, kMaxRepeats), kSums, 1, pitch / kBlockFloats);
        VectorBarrier();
    }

    // ---- the parts of several cores

    // Adds the parts of the sums, for this core's share of the sums. They are no more than those of a block.
    __aicore__ inline void AddParts() {
#if __CCE_AICORE__ != 200
        AscendC::SyncAll();
        Share own = ShareOf(kSums * common_->rows, kBlockFloats, AscendC::GetBlockNum(), AscendC::GetBlockIdx());
        if (own.count == 0) return;
        auto count = static_cast<int32_t>(own.count);
        int32_t width = RoundUp(count, kBlockFloats);
        RowBursts<float> bursts;
        bursts.Init(common_, count, width);
        // SyncAll() has waited for the vector instructions that use rows_.
        bursts.LoadRows(rows_, arguments_.workspace, own.first, common_->head_parts, tiling_->part_pitch, count);
        SyncPipes<AscendC::HardEvent::MTE2_V>();
        AddRowsAsTree(rows_, common_->head_parts, width);
        LocalTensor<float> sums = out_.template AllocTensor<float>();
        AscendC::DataCopy(sums, rows_, static_cast<uint32_t>(width));
        sum_pieces_.StoreQueued(arguments_.out, &out_, sums, own.first, count);
#endif
    }

    const QkSquareSumsTilingData* tiling_ = nullptr;
    const CommonTiling* common_ = nullptr;
    SquareSumsArguments arguments_{};
    TileWindow window_;
    TileRows<T> x_rows_;
    RowPieces<T> pieces_;
    RowPieces<float> sum_pieces_;
#if __CCE_AICORE__ == 200
    PackedOffsets offsets_;
#endif
    ChunkSums tree_;
    RowChunks chunks_{};
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_;
    LocalTensor<float> rows_, temp_, lane_sums_, sums_;
    int64_t block_token_ = 0, chunk_ = 0, part_ = 0;  // chunk_: chunks of the row in the tree
    int32_t block_tokens_ = 0;
};

// Runs the kernel for the launch's tiling key. The keys are literals, because CANN's build reads them from the
// preprocessed source.
template <typename T>
__aicore__ inline void RunSquareSums(const QkSquareSumsTilingData* tiling, const SquareSumsArguments& arguments) {
    AscendC::TPipe pipe;
    if (TILING_KEY_IS(1)) {
        SquareSumsKernel<T, /*is_long=*/false, /*is_split=*/false> kernel;
        kernel.Run(&pipe, tiling, arguments);
    } else if (TILING_KEY_IS(2)) {
        SquareSumsKernel<T, /*is_long=*/true, /*is_split=*/false> kernel;
        kernel.Run(&pipe, tiling, arguments);
    } else if (TILING_KEY_IS(3)) {
        SquareSumsKernel<T, /*is_long=*/false, /*is_split=*/true> kernel;
        kernel.Run(&pipe, tiling, arguments);
    } else if (TILING_KEY_IS(4)) {
        SquareSumsKernel<T, /*is_long=*/true, /*is_split=*/true> kernel;
        kernel.Run(&pipe, tiling, arguments);
    }
}

static_assert(kSquareSumsRows == 1 && kSquareSumsLong == 2 && kSquareSumsSplitRows == 3 && kSquareSumsSplitLong == 4,
              "RunSquareSums has them as literals");

}  // namespace norm
