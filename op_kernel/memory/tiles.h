// The tiles that a core processes, their order, and the layout of a tile's rows in GM. The code has only integer
// arithmetic, so that the tests of the tilings can run it on the host.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace memory {

// `count` items from number `first` on.
struct Share {
    int64_t first;
    int64_t count;
};

// Divides `total` items into `parts` nearly equal shares and returns share `index`. A share has whole groups of `group`
// items; only the last group may be shorter. The first shares have one group more than the others.
__aicore__ inline Share ShareOf(int64_t total, int64_t group, int64_t parts, int64_t index) {
    int64_t groups = (total + group - 1) / group;
    int64_t share_groups = groups / parts, larger_shares = groups % parts;
    int64_t first = (index * share_groups + (index < larger_shares ? index : larger_shares)) * group;
    int64_t end = first + (share_groups + (index < larger_shares ? 1 : 0)) * group;
    first = first < total ? first : total;
    end = end < total ? end : total;
    return Share{first, end - first};
}

// `tokens` x `heads` rows of one tensor that are in UB together.
struct Tile {
    int64_t batch;
    int64_t token;  // the first one, inside its batch
    int32_t tokens;
    int32_t side;  // index of the tensor
    int32_t head;  // the first one, inside its side
    int32_t heads;
    int32_t table_row;     // row of the block's table that belongs to the first token
    int32_t opens_block;   // 1: the tile is the first of its block, and the block has heads that rotate
    int32_t block_tokens;  // number of tokens in the tile's block
};

// Iterator over the tiles of a core.
class Tiles {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, int64_t first_unit, int64_t unit_step) {
        tiling_ = tiling;
        unit_ = first_unit - unit_step;
        unit_step_ = unit_step;
        rows_end_ = block_row_ = block_tokens_ = tile_token_ = tile_tokens_ = 0;
        heads_first_ = heads_end_ = head_ = side_first_ = side_end_ = 0;
        side_ = 0;
    }

    // Sets *tile to the next tile. Returns false if none is left. A tile contains heads of only one side. The
    // tiles of a block come in the order of their sides.
    __aicore__ inline bool Next(Tile* tile) {
        bool opens_block = false;
        if (head_ >= side_end_) {
            head_ = side_first_;
            tile_token_ += tile_tokens_;
            if (tile_token_ >= block_tokens_ && !NextSide()) {
                if (!NextBlock()) return false;
                opens_block = true;
            }
        }
        int64_t tokens = block_tokens_ - tile_token_, heads = side_end_ - head_;
        tile->batch = block_row_ / tiling_->seq;
        tile->token = block_row_ % tiling_->seq + tile_token_;
        tile->tokens = static_cast<int32_t>(tokens < tile_tokens_ ? tokens : tile_tokens_);
        tile->side = side_;
        tile->head = static_cast<int32_t>(head_ - SideBegin(side_));
        tile->heads = static_cast<int32_t>(heads < tiling_->tile_heads ? heads : tiling_->tile_heads);
        tile->table_row = static_cast<int32_t>(tile_token_);
        tile->opens_block = opens_block && side_ < kRopeRotatedSides ? 1 : 0;
        tile->block_tokens = static_cast<int32_t>(block_tokens_);
        head_ += tile->heads;
        return true;
    }

private:
    // A block ends where its unit or its batch ends, because the stride of positions is constant only in a batch.
    __aicore__ inline bool NextBlock() {
        block_row_ += block_tokens_;
        if (block_row_ >= rows_end_ && !NextUnit()) return false;
        int64_t left = rows_end_ - block_row_, in_batch = tiling_->seq - block_row_ % tiling_->seq;
        block_tokens_ = left < in_batch ? left : in_batch;
        if (block_tokens_ > tiling_->block_tokens) block_tokens_ = tiling_->block_tokens;
        side_ = -1;
        return NextSide();
    }

    // The heads of all sides have consecutive numbers. Enters the next side that has heads in the unit. Returns false
    // if none is left.
    __aicore__ inline bool NextSide() {
        while (++side_ < kRopeMaxSides) {
            int64_t begin = SideBegin(side_), end = tiling_->heads_end[side_];
            side_first_ = heads_first_ > begin ? heads_first_ : begin;
            side_end_ = heads_end_ < end ? heads_end_ : end;
            if (side_first_ >= side_end_) continue;
            tile_tokens_ = tiling_->tile_tokens[side_];
            tile_token_ = 0;
            head_ = side_first_;
            return true;
        }
        return false;
    }

    __aicore__ inline int64_t SideBegin(int32_t side) const { return side == 0 ? 0 : tiling_->heads_end[side - 1]; }

    __aicore__ inline bool NextUnit() {
        unit_ += unit_step_;
        if (unit_ >= static_cast<int64_t>(tiling_->row_parts) * tiling_->head_parts) return false;
        Share rows = ShareOf(tiling_->rows, tiling_->row_granule, tiling_->row_parts, unit_ / tiling_->head_parts);
        Share heads = ShareOf(tiling_->heads, 1, tiling_->head_parts, unit_ % tiling_->head_parts);
        block_row_ = rows.first;
        rows_end_ = rows.first + rows.count;
        heads_first_ = heads.first;
        heads_end_ = heads.first + heads.count;
        return true;
    }

    const CommonTiling* tiling_ = nullptr;
    int64_t unit_ = 0, unit_step_ = 1;
    int64_t rows_end_ = 0, heads_first_ = 0, heads_end_ = 0;
    int64_t block_row_ = 0, block_tokens_ = 0, tile_token_ = 0, tile_tokens_ = 0;
    int64_t head_ = 0, side_first_ = 0, side_end_ = 0;
    int32_t side_ = 0;
};

// The previous, the current and the next tile of a core. For each tile the caller:
// - calls FindNext(),
// - loads the next tile before it stores the previous one, because all other work waits for the loads,
// - computes the current tile,
// - calls Advance(), which returns whether a tile is left.
// At the end the caller stores the last tile.
class TileWindow {
public:
    Tile previous{}, current{}, next{};
    bool has_previous = false, has_next = false;

    // Returns whether the core has a tile.
    __aicore__ inline bool Begin(const CommonTiling* tiling, int64_t first_unit, int64_t unit_step) {
        tiles_.Init(tiling, first_unit, unit_step);
        return tiles_.Next(&current);
    }

    __aicore__ inline void FindNext() { has_next = tiles_.Next(&next); }

    __aicore__ inline bool Advance() {
        previous = current;
        current = next;
        has_previous = true;
        return has_next;
    }

private:
    Tiles tiles_;
};

// A tile's rows in GM, in their UB order: outer_count x inner_count runs of contiguous elements. Strides are in
// elements.
struct RunPlan {
    int64_t outer_count;
    int64_t outer_stride;
    int64_t inner_count;
    int64_t inner_stride;
    int64_t run_elements;
    int64_t run_rows;  // head rows in a run
};

// Adjacent rows of `row_elements` elements become one run if `may_merge_rows`. stride is {batch, token, head}.
__aicore__ inline RunPlan PlanRuns(const CommonTiling* tiling, const Tile& tile, const int64_t* stride,
                                   int32_t row_elements, bool may_merge_rows) {
    bool by_tokens = tiling->tokens_inner != 0;
    int64_t outer = by_tokens ? tile.heads : tile.tokens, inner = by_tokens ? tile.tokens : tile.heads;
    int64_t outer_stride = by_tokens ? stride[2] : stride[1], inner_stride = by_tokens ? stride[1] : stride[2];
    int64_t run = row_elements, run_rows = 1;
    if (may_merge_rows && (inner == 1 || inner_stride == run)) {
        run *= inner;
        run_rows = inner;
        inner = 1;
        if (outer == 1 || outer_stride == run) {
            run *= outer;
            run_rows *= outer;
            outer = 1;
        }
    }
    if (inner == 1) return RunPlan{1, 0, outer, outer_stride, run, run_rows};
    if (outer == 1) return RunPlan{1, 0, inner, inner_stride, run, run_rows};
    if (outer_stride == inner * inner_stride) return RunPlan{1, 0, outer * inner, inner_stride, run, run_rows};
    return RunPlan{outer, outer_stride, inner, inner_stride, run, run_rows};
}

// Offset of the tile's first element in the tensor, in elements.
__aicore__ inline int64_t TileOffset(const Tile& tile, const int64_t* stride) {
    return tile.batch * stride[0] + tile.token * stride[1] + tile.head * stride[2];
}

}  // namespace memory
