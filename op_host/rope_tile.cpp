#include "op_host/rope_tile.h"

#include <algorithm>

#include "op_host/work_split.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {
namespace {

constexpr int64_t kRunBytes = 8 * 1024;  // of a run of one head's tokens, if they are adjacent in GM
constexpr int64_t kMaxTokens = 248;      // a multiple of 8: one repeat for each token, at most 255
constexpr int64_t kMaxRows = 4095;       // most blocks of one DMA instruction
constexpr int64_t kMaxNormRows = 512;    // of a normalized tile; each row needs memory for its statistics

// The size of the most even parts of n that are not smaller than `least`.
int64_t even_share(int64_t n, int64_t least) { return ceil_div(n, std::max<int64_t>(1, n / least)); }

// The largest unit of work: bounds for its tiles and their preferred size.
struct Unit {
    explicit Unit(const RopeTileCall& call) {
        const CommonTiling& common = *call.common;
        const int64_t granules = ceil_div(common.rows, common.row_granule);
        const int64_t rows = std::min(common.rows, ceil_div(granules, common.row_parts) * common.row_granule);
        heads = ceil_div(common.heads, common.head_parts);
        max_tokens = std::min({rows, common.seq, kMaxTokens});
        max_heads = std::min<int64_t>(heads, std::max(common.side0_heads, common.heads - common.side0_heads));
        row_bytes = common.row_pitch * call.item_bytes;
        target_bytes = target_tile_bytes(rows, heads, common.head_size * call.item_bytes);
        whole_rows = std::clamp<int64_t>(ceil_div(target_bytes, max_heads * row_bytes), 1, max_tokens);
    }

    int64_t heads, max_tokens, max_heads;
    int64_t row_bytes, target_bytes;  // one head's row in UB, and a tile
    int64_t whole_rows;               // token rows with all heads that fill a tile
};

// Whether the kernel's instructions can process the tile. Runs of a packed tile must have the 32 bytes of a DMA.
bool is_supported(const RopeTileCall& call, const RopeTile& tile) {
    const CommonTiling& common = *call.common;
    if (tile.rows() > (call.normalizes ? kMaxNormRows : kMaxRows)) return false;
    for (int64_t heads : {common.side0_heads, common.heads - common.side0_heads}) {
        int64_t run = heads % tile.heads == 0 ? tile.heads : heads % tile.heads;
        if (common.io == kRopeIoPacked && heads > 0 && run * common.head_size * call.item_bytes < kUbBlockBytes)
            return false;
    }
    return true;
}

// Whole token rows up to the target size, and even parts of one row.
void add_token_rows(const Unit& unit, int64_t table, int64_t least, std::vector<RopeTile>* all) {
    const int64_t all_heads = unit.max_heads, row_bytes = unit.row_bytes;
    all->push_back({unit.whole_rows, all_heads, table});
    for (int64_t tokens = unit.whole_rows - 1; tokens >= 1 && tokens * all_heads * row_bytes >= least; --tokens)
        all->push_back({tokens, all_heads, table});
    int64_t parts = std::max<int64_t>(2, all_heads * row_bytes / (tile_preferences().tile_bytes + row_bytes));
    while (parts <= all_heads) {
        const int64_t heads = ceil_div(all_heads, parts);
        if (heads * row_bytes < least) return;
        all->push_back({1, heads, table});
        parts = heads == 1 ? all_heads + 1 : ceil_div(all_heads, heads - 1);
    }
}

// Runs of one head's tokens, for the number of heads that fills the target size or less.
void add_token_runs(const Unit& unit, int64_t table, int64_t least, std::vector<RopeTile>* all) {
    const int64_t run = even_share(unit.max_tokens, std::max(table, kRunBytes / unit.row_bytes));
    const int64_t most = std::max<int64_t>(1, unit.target_bytes / unit.row_bytes);
    for (int64_t rows = most; rows == most || (rows >= 1 && rows * unit.row_bytes >= least); rows = rows * 3 / 4) {
        const int64_t tokens = std::min(rows, run);
        all->push_back({tokens, std::min(unit.max_heads, rows / tokens), table});
    }
}

// Distance of the two products of a lane that the kernel adds, modulo the period of the bank groups. With halves the
// second product is that of the partner, half the rotated lanes away.
int64_t products_apart(const RopeTileCall& call) {
    const int64_t half_bytes = call.key == kRopeHalves ? call.common->n_dims / 2 * 4 : 0;
    return half_bytes % kUbBankPeriodBytes == kUbBankPeriodBytes / 2 ? 0 : kUbBankPeriodBytes / 2;
}

}  // namespace

std::optional<RopeLayout> layout_of(const RopeTileCall& call, const RopeTile& tile) {
    const CommonTiling& common = *call.common;
    const bool packed = common.io == kRopeIoPacked, gathers = call.key == kRopeSwapByGather;
    const int64_t rows = tile.rows(), lanes = rows * common.row_pitch, width = common.table_width;
    const int64_t unit_tokens = Unit(call).max_tokens, second_heads = common.heads - common.side0_heads;
    RopeLayout l;
    l.tile = tile;
    int64_t block = round_up(even_share(unit_tokens, std::max(tile.table_tokens, tile.tokens)), tile.tokens);
    l.block_tokens = std::min(block, kMaxTokens / tile.tokens * tile.tokens);
    l.token_slots = round_up(l.block_tokens, 32);
    l.side1_tokens = tile.tokens;
    if (call.sides == 2) {
        // Take the number of the second side's tokens that fills the same buffer, reduced to even parts of a block.
        int64_t most = rows / std::clamp<int64_t>(second_heads, 1, tile.heads);
        l.side1_tokens = ceil_div(l.block_tokens, ceil_div(l.block_tokens, most));
    }

    l.tail_offset = lanes * call.item_bytes;
    l.inputs.bytes = l.outputs.bytes = 2 * (l.tail_offset + (packed ? rows * kUbBlockBytes : 0));
    const int64_t max_gather_lanes = common.row_pitch <= 256 ? 2048 : 1024;
    l.gather_rows = gathers || packed ? std::clamp<int64_t>(max_gather_lanes / common.row_pitch, 1, rows) : 0;
    const int64_t gather_lanes = l.gather_rows * common.row_pitch;
    l.gather_offsets.bytes = 4 * (gather_lanes * (gathers + 2 * packed) + (packed ? 16 : 0));

    l.setup_lanes = round_up(std::max({gather_lanes, width, int64_t{16}}), 8);
    int64_t setup_temps = kRopeSetupLaneTemps * l.setup_lanes, table_temps = l.block_tokens * call.entry_pitch;
    if (call.entry_bytes > 0) {
        l.entry_offsets.bytes = call.key == kRopeHalves ? 0 : 3 * width * 4;
        l.source.bytes = 2 * table_temps * call.entry_bytes;
    } else {
        l.frequencies.bytes = 4 * width * 4;
        l.source.bytes = l.token_slots * call.position_bytes;
        setup_temps += kRopeSetupPairTemps * round_up(common.n_dims / 2, 8);
        table_temps = kRopeTableTemps * l.block_tokens * width + kRopeTokenTemps * l.token_slots;
    }
    // The temporaries follow the rows that the kernel rotates, or the rows are the result in an output buffer. Then
    // `work` has the same room for every tile.
    const bool float_rows = call.item_bytes == 2 || call.out_bytes == 2 || packed;
    const int64_t apart = products_apart(call);
    l.temp_offset =
        float_rows ? round_up(lanes * 4, kUbBankPeriodBytes) + apart
                   : (apart + round_up(l.outputs.bytes, kUbBankPeriodBytes) - l.outputs.bytes) % kUbBankPeriodBytes;
    const int64_t temp_end = (float_rows ? l.temp_offset : kUbBankPeriodBytes) + lanes * 4;
    l.work.bytes = std::max({temp_end, 4 * table_temps, 4 * setup_temps});
    l.cos_offset = conflict_free_offset(l.block_tokens * width * 4);
    l.table.bytes = l.cos_offset + l.block_tokens * width * 4;
    if (call.normalizes) {
        const int64_t slots = round_up(rows, kRowNormSlots);
        l.stats.bytes = 4 * kRowNormStats * slots;
        l.factors.bytes = call.normalizes_partners ? 4 * slots : 0;
        l.scales.bytes = 4 * 2 * common.row_pitch * (1 + call.normalizes_partners);
        l.raw_scales.bytes = call.item_bytes == 4 ? 0 : call.item_bytes * 2 * common.row_pitch;
    }

    return place_regions(l.regions()) <= call.ub_bytes ? std::optional(l) : std::nullopt;
}

std::vector<RopeTile> tile_candidates(const RopeTileCall& call) {
    const Unit unit(call);
    const bool token_runs = call.common->tokens_inner != 0;
    // With few heads the table takes much of the time; more tokens per table give it longer instructions. Without
    // halves a row of the table is twice as wide. Where the vector unit takes longer than the memory, twice as many
    // tokens shorten it further; elsewhere they only delay the first rows, which wait for their table.
    const TilePreferences& p = tile_preferences();
    const bool vector_bound = call.normalizes || call.key == kRopeSwapByGather;
    const int64_t block_tokens = p.block_tokens * (vector_bound ? 2 : 1);
    const int64_t block_rows = p.block_rows * (call.normalizes || call.key != kRopeHalves ? 2 : 1);
    const int64_t max_table_tokens = std::clamp(block_rows / unit.heads, block_tokens, 4 * block_tokens);
    std::vector<RopeTile> all;
    // For normalized heads the vector unit takes as long as the memory: build fewer tables if the tile fits unchanged.
    if (call.normalizes && !token_runs) all.push_back({unit.whole_rows, unit.max_heads, 2 * max_table_tokens});
    for (int64_t table = max_table_tokens; table >= 1; table /= 2) {
        // Tiles below the least size have the smallest table, unless the unit has no larger tiles.
        const int64_t least = table == 1 ? 0 : p.min_tile_bytes;
        (token_runs ? add_token_runs : add_token_rows)(unit, table, least, &all);
    }
    auto is_excluded = [&call](const RopeTile& tile) { return !is_supported(call, tile); };
    all.erase(std::remove_if(all.begin(), all.end(), is_excluded), all.end());
    return all;
}

}  // namespace npu_rope
