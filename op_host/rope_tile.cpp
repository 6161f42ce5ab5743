#include "op_host/rope_tile.h"

#include <algorithm>

#include "op_host/work_split.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {
namespace {

constexpr int64_t kRunBytes = 8 * 1024;  // preferred bytes of a run of one head's tokens, if they are adjacent in GM
// Largest number of tokens of a block: a multiple of 8, and at most 255, because an instruction has one repeat for each
// token and at most 255 repeats.
constexpr int64_t kMaxTokens = 248;
constexpr int64_t kMaxRows = 4095;  // of a tile: a DMA instruction copies at most 4095 rows

// Divides n into parts that are as equal as possible, of at least `min_share`. Returns the size of the largest part.
int64_t even_share(int64_t n, int64_t min_share) { return ceil_div(n, std::max<int64_t>(1, n / min_share)); }

// Whether the vector unit takes longer than the memory.
bool is_vector_bound(const RopeTileCall& call) { return call.normalizes || call.key == kRopeSwapByGather; }

// The largest unit of work: limits of its tiles, and their preferred size.
struct Unit {
    explicit Unit(const RopeTileCall& call) {
        const CommonTiling& common = *call.common;
        const int64_t granules = ceil_div(common.rows, common.row_granule);
        const int64_t rows = std::min(common.rows, ceil_div(granules, common.row_parts) * common.row_granule);
        heads = ceil_div(common.heads, common.head_parts);
        max_tokens = std::min({rows, common.seq, kMaxTokens});
        for (int side = 0; side < kRopeMaxSides; ++side) max_heads = std::max(max_heads, heads_of_side(common, side));
        max_heads = std::min(max_heads, heads);
        whole_heads = call.whole_heads;
        row_bytes = call.max_row_pitch() * call.item_bytes;
        target_bytes = target_tile_bytes(rows, heads, call.max_head_size() * call.item_bytes);
        // If the vector unit takes longer than the memory, a larger tile saves more time by fewer instructions than its
        // last store, which nothing overlaps, takes longer.
        if (is_vector_bound(call)) target_bytes = std::max(target_bytes, 2 * tile_preferences().min_tile_bytes);
        full_token_rows = std::clamp<int64_t>(ceil_div(target_bytes, max_heads * row_bytes), 1, max_tokens);
    }

    int64_t heads, max_tokens, max_heads = 0;
    int64_t whole_heads;              // the fewest heads of a tile that normalizes all heads of a token
    int64_t row_bytes, target_bytes;  // one head's row in UB; a tile of the preferred size
    int64_t full_token_rows;          // number of token rows, with all heads, that fill a tile of the preferred size
};

// Whether the kernel's instructions can process the tile. A run of a packed tile must have at least 32 bytes.
bool is_supported(const RopeTileCall& call, const RopeTile& tile) {
    const CommonTiling& common = *call.common;
    if (tile.rows() > (call.normalizes ? kMaxNormRows : kMaxRows) || tile.heads < call.whole_heads) return false;
    for (int side = 0; side < kRopeMaxSides; ++side) {
        const int64_t heads = heads_of_side(common, side);
        int64_t run = heads % tile.heads == 0 ? tile.heads : heads % tile.heads;
        if (common.copy_mode == kCopyPacked && heads > 0 && run * common.head_size * call.item_bytes < kUbBlockBytes)
            return false;
    }
    return true;
}

// Adds tiles of whole token rows up to the preferred size, and tiles of equal parts of one token row.
void add_token_rows(const Unit& unit, int64_t table_tokens, int64_t min_bytes, std::vector<RopeTile>* tiles) {
    const int64_t all_heads = unit.max_heads, row_bytes = unit.row_bytes;
    tiles->push_back({unit.full_token_rows, all_heads, table_tokens});
    for (int64_t tokens = unit.full_token_rows - 1; tokens >= 1 && tokens * all_heads * row_bytes >= min_bytes;
         --tokens)
        tiles->push_back({tokens, all_heads, table_tokens});
    if (unit.whole_heads > 0 && unit.whole_heads < all_heads && unit.whole_heads * row_bytes >= min_bytes)
        tiles->push_back({1, unit.whole_heads, table_tokens});
    int64_t parts = std::max<int64_t>(2, all_heads * row_bytes / (tile_preferences().tile_bytes + row_bytes));
    while (parts <= all_heads) {
        const int64_t heads = ceil_div(all_heads, parts);
        if (heads * row_bytes < min_bytes) return;
        tiles->push_back({1, heads, table_tokens});
        parts = heads == 1 ? all_heads + 1 : ceil_div(all_heads, heads - 1);
    }
}

// Adds tiles of runs of one head's tokens, with as many heads as fit the preferred size.
void add_token_runs(const Unit& unit, int64_t table_tokens, int64_t min_bytes, std::vector<RopeTile>* tiles) {
    const int64_t run = even_share(unit.max_tokens, std::max(table_tokens, kRunBytes / unit.row_bytes));
    const int64_t max_rows = std::max<int64_t>(1, unit.target_bytes / unit.row_bytes);
    for (int64_t rows = max_rows; rows == max_rows || (rows >= 1 && rows * unit.row_bytes >= min_bytes);
         rows = rows * 3 / 4) {
        const int64_t tokens = std::min(rows, run);
        tiles->push_back({tokens, std::min(unit.max_heads, rows / tokens), table_tokens});
    }
}

// Returns the distance from the rotated rows to the temporaries, modulo the period of the bank groups. At this distance
// the two products that the kernel adds for a lane are half the bank groups apart. With kRopeHalves the second product
// is that of the partner, which is half of the rotated lanes away.
int64_t product_distance_bytes(const RopeTileCall& call) {
    const int64_t half_bytes = call.key == kRopeHalves ? call.common->n_dims / 2 * 4 : 0;
    return half_bytes % kUbBankPeriodBytes == kUbBankPeriodBytes / 2 ? 0 : kUbBankPeriodBytes / 2;
}

}  // namespace

std::optional<RopeLayout> layout_of(const RopeTileCall& call, const RopeTile& tile) {
    const CommonTiling& common = *call.common;
    const bool packed = common.copy_mode == kCopyPacked, gathers = call.key == kRopeSwapByGather;
    const int64_t rows = tile.rows(), lanes = rows * call.max_row_pitch(), width = common.table_width;
    const int64_t unit_tokens = Unit(call).max_tokens;
    RopeLayout layout;
    layout.tile = tile;
    int64_t block = round_up(even_share(unit_tokens, std::max(tile.table_tokens, tile.tokens)), tile.tokens);
    layout.block_tokens = std::min(block, kMaxTokens / tile.tokens * tile.tokens);
    layout.token_slots = round_up(layout.block_tokens, 64);
    layout.tile_tokens[0] = tile.tokens;
    const int64_t out_row_bytes = *std::max_element(std::begin(call.out_row_bytes), std::end(call.out_row_bytes));
    for (int side = 1; side < call.sides; ++side) {
        // Fill the same buffer with tokens of this side. Then reduce their number so that the tiles of a block are
        // equal.
        const int64_t heads = std::clamp<int64_t>(heads_of_side(common, side), 1, tile.heads);
        int64_t side_rows = rows;
        if (side >= kRopeRotatedSides && call.value_size > 0)
            side_rows =
                std::min({lanes / call.value_pitch(), rows * out_row_bytes / call.out_row_bytes[side], kMaxRows});
        const int64_t max_tokens = side_rows / heads;
        layout.tile_tokens[side] = ceil_div(layout.block_tokens, ceil_div(layout.block_tokens, max_tokens));
    }

    layout.tail_offset = lanes * call.item_bytes;
    layout.buffers = call.buffers;
    layout.inputs.bytes = layout.outputs.bytes =
        call.buffers * (layout.tail_offset + (packed ? rows * kUbBlockBytes : 0));
    if (call.stores_any_type) layout.outputs.bytes = call.buffers * rows * out_row_bytes;
    const int64_t max_gather_lanes = common.row_pitch <= 256 ? 2048 : 1024;
    layout.gather_rows = gathers || packed ? std::clamp<int64_t>(max_gather_lanes / common.row_pitch, 1, rows) : 0;
    const int64_t gather_lanes = layout.gather_rows * common.row_pitch;
    // Offsets of the partners. For packed rows: offsets in both directions, and those of a block's elements.
    layout.gather_offsets.bytes = 4 * (gather_lanes * (gathers + 2 * packed) + (packed ? 16 : 0));

    layout.setup_lanes = round_up(std::max({gather_lanes, width, int64_t{16}}), 8);
    int64_t setup_temps = kRopeSetupLaneTemps * layout.setup_lanes,
            table_temps = layout.block_tokens * call.entry_pitch;
    if (call.entry_bytes > 0) {
        // For each lane: the sign of the sine, and the offsets of the cosine and the sine.
        layout.entry_offsets.bytes = call.key == kRopeHalves ? 0 : 3 * width * 4;
        layout.source.bytes = 2 * std::max(common.planes, 1) * table_temps * call.entry_bytes;
    } else {
        layout.frequencies.bytes = 4 * width * 4;  // for each lane: four parts (lane_frequencies.h)
        layout.source.bytes = layout.token_slots * call.position_bytes;
        setup_temps += kRopeSetupPairTemps * round_up(common.n_dims / 2, 8);
        table_temps = kRopeTableTemps * layout.block_tokens * width + kRopeTokenTemps * layout.token_slots;
    }
    // If the kernel rotates float32 rows in `work`, the temporaries follow these rows. Otherwise it rotates into an
    // output buffer, and temp_offset only avoids bank conflicts with that buffer.
    const bool rotates_in_work = call.item_bytes == 2 || (call.out_bytes == 2 && !call.stores_any_type) || packed;
    const int64_t product_distance = product_distance_bytes(call);
    layout.temp_offset =
        rotates_in_work
            ? round_up(lanes * 4, kUbBankPeriodBytes) + product_distance
            : (product_distance + round_up(layout.outputs.bytes, kUbBankPeriodBytes) - layout.outputs.bytes) %
                  kUbBankPeriodBytes;
    const int64_t temp_end = (rotates_in_work ? layout.temp_offset : kUbBankPeriodBytes) + lanes * 4;
    layout.staging_offset = round_up(4 * std::max(table_temps, setup_temps), kUbBlockBytes);
    int64_t staging_bytes = call.factors.staging_bytes;
    if (call.factors.streamed_head_bytes > 0) {  // the factors of a tile, beside its rows and the next table
        layout.staging_offset = std::max(layout.staging_offset, round_up(temp_end, kUbBlockBytes));
        staging_bytes = std::max(staging_bytes, tile.heads * call.factors.streamed_head_bytes);
    }
    layout.work.bytes = std::max(temp_end, layout.staging_offset + staging_bytes);
    layout.cos_offset = conflict_free_offset(layout.block_tokens * width * 4);
    layout.table.bytes = layout.cos_offset + layout.block_tokens * width * 4;
    if (call.normalizes) {
        const int64_t slots = round_up(rows, kRowNormSlots);
        layout.stats.bytes = 4 * kRowNormStats * slots;
        layout.factors.bytes = call.normalizes_partners ? 4 * slots : 0;
        if (!call.stores_any_type) {
            layout.scales.bytes = 4 * 2 * common.row_pitch * (1 + call.normalizes_partners);
            layout.raw_scales.bytes = call.item_bytes == 4 ? 0 : call.item_bytes * 2 * common.row_pitch;
        }
    }
    if (call.stores_any_type) layout.scales.bytes = call.factors.bytes;

    return place_regions(layout.regions()) <= call.ub_bytes ? std::optional(layout) : std::nullopt;
}

std::vector<RopeTile> tile_candidates(const RopeTileCall& call) {
    const Unit unit(call);
    const bool token_runs = call.common->tokens_inner != 0;
    // With few heads, building the tables takes much of the time. A table with more tokens takes less time for each
    // token, because its instructions are longer. A table row is twice as wide without kRopeHalves. If the call is
    // bound by the vector unit, a table with twice as many tokens saves more time. Otherwise the additional tokens only
    // delay the first rows, which wait for their table.
    const TilePreferences& p = tile_preferences();
    const int64_t block_tokens = p.block_tokens * (is_vector_bound(call) ? 2 : 1);
    const int64_t block_rows = p.block_rows * (call.normalizes || call.key != kRopeHalves ? 2 : 1);
    const int64_t max_table_tokens = std::clamp(block_rows / unit.heads, block_tokens, 4 * block_tokens);
    std::vector<RopeTile> tiles;
    // With a norm, the vector unit takes as long as the memory: build fewer tables if the same tile still fits UB.
    if (call.normalizes && !token_runs) tiles.push_back({unit.full_token_rows, unit.max_heads, 2 * max_table_tokens});
    for (int64_t table_tokens = max_table_tokens; table_tokens >= 1; table_tokens /= 2) {
        // Tiles below the minimum size are allowed only with the smallest table.
        const int64_t min_bytes = table_tokens == 1 ? 0 : p.min_tile_bytes;
        (token_runs ? add_token_runs : add_token_rows)(unit, table_tokens, min_bytes, &tiles);
    }
    auto is_excluded = [&call](const RopeTile& tile) { return !is_supported(call, tile); };
    tiles.erase(std::remove_if(tiles.begin(), tiles.end(), is_excluded), tiles.end());
    return tiles;
}

}  // namespace npu_rope
