#include "op_host/rms_norm_tile.h"

#include <algorithm>

#include "op_host/work_split.h"

namespace npu_rope {
namespace {

constexpr int64_t kMaxRows = 512;  // rows of a tile; each row needs memory for its statistics
constexpr int64_t kMaxChunk = 4096;
constexpr int64_t kMinChunk = 512;
constexpr int64_t kChunkGranule = 16;      // elements; a multiple of 16 elements has whole 32-byte blocks in every type
constexpr int64_t kMaxGatherLanes = 2048;  // lanes of one Gather, unless a row is longer

RmsNormLayout layout_of_rows(const RmsNormTileCall& call, const RmsNormTile& tile) {
    const CommonTiling& common = *call.common;
    const bool packed = common.copy_mode == kCopyPacked,
               computes_in_input = call.x_bytes == 4 && !packed;  // in the input buffer
    const int64_t rows = tile.rows(), lanes = rows * common.row_pitch, out_lanes = rows * common.out_pitch;
    const int64_t x_bytes = lanes * call.x_bytes, out_bytes = out_lanes * call.out_bytes;
    const int64_t widest = std::max(x_bytes, out_bytes), packed_bytes = widest + rows * kUbBlockBytes;
    RmsNormLayout layout;
    layout.tile = tile;
    int64_t temp_bytes = 4 * lanes;  // packed rows of 16 bits also need memory for the rows in their own type
    if (call.backward) {
        layout.tail_offset = packed ? widest : 0;
        layout.inputs.bytes = layout.outputs.bytes = 2 * (packed ? packed_bytes : x_bytes);
        layout.grads.bytes = 2 * (packed ? packed_bytes : out_bytes);
        layout.g_offset = computes_in_input ? 0 : conflict_free_offset(4 * lanes);
        layout.temp_offset = conflict_free_offset(layout.g_offset + 4 * out_lanes);
        if (packed && std::min(call.x_bytes, call.out_bytes) < 4) temp_bytes += 2 * lanes;
        layout.dscale.bytes = 4 * (common.row_pitch + kDscaleExtraFloats);
    } else {
        layout.tail_offset = widest;
        layout.inputs.bytes = layout.outputs.bytes = 2 * (packed ? packed_bytes : widest);
        if (call.adds) layout.residuals.bytes = layout.sums.bytes = 2 * (packed ? packed_bytes : x_bytes);
        layout.temp_offset = computes_in_input ? 0 : conflict_free_offset(4 * lanes);
        if (packed && call.x_bytes < 4) temp_bytes += x_bytes;
    }
    if (packed) {
        layout.gather_rows = std::clamp<int64_t>(kMaxGatherLanes / common.row_pitch, 1, rows);
        const int64_t gather_lanes = layout.gather_rows * common.row_pitch;
        layout.setup_lanes = round_up(std::max<int64_t>(gather_lanes, 16), 8);
        // For two types: offsets in both directions, and those of a block's elements.
        layout.gather_offsets.bytes = 2 * 4 * (2 * gather_lanes + 16);
    }
    layout.work.bytes = std::max(layout.temp_offset + temp_bytes, 4 * kRopeSetupLaneTemps * layout.setup_lanes);
    layout.stats.bytes = 4 * (kRowNormStats + call.backward * kGradientStats) * round_up(rows, kRowNormSlots);
    const int64_t scales = (call.scale_shared || call.backward ? 1 : rows) * call.scale_pitch;
    layout.scale.bytes = 4 * scales;
    layout.raw_scale.bytes = call.out_bytes == 4 ? 0 : call.out_bytes * scales;
    return layout;
}

RmsNormLayout layout_of_chunk(const RmsNormTileCall& call, const RmsNormTile& tile) {
    const int64_t chunk = tile.chunk, chunks = ceil_div(call.n, chunk);
    RmsNormLayout layout;
    layout.tile = tile;
    layout.levels = 1;
    while (chunks >> layout.levels != 0) ++layout.levels;
    auto two_buffers = [&](int64_t item_bytes) { return 2 * (chunk * item_bytes + kUbBlockBytes); };
    layout.inputs.bytes = layout.outputs.bytes =
        two_buffers(call.backward ? call.x_bytes : std::max(call.x_bytes, call.out_bytes));
    if (call.adds) layout.residuals.bytes = layout.sums.bytes = two_buffers(call.x_bytes);
    if (call.backward) layout.grads.bytes = two_buffers(call.out_bytes);
    // Numbers of floats: Gather offsets of 16 elements for two types, a block for the largest magnitude, a vector of
    // sums.
    constexpr int64_t kOffsetFloats = 2 * 16, kLargestFloats = 8, kSumFloats = 64;
    const int64_t sums = ((1 + call.backward) * layout.levels + 1) * kSumFloats;
    layout.work.bytes = 4 * ((2 + call.backward) * chunk + sums + kLargestFloats + kOffsetFloats);
    const int64_t row = tile.keeps_row ? chunks * chunk : chunk;
    (call.backward ? layout.dscale : layout.row).bytes = 4 * (row + call.backward * kDscaleExtraFloats);
    layout.stats.bytes = 4 * (kRowNormStats + call.backward * kGradientStats) * kRowNormSlots;
    layout.scale.bytes = 4 * (tile.keeps_scale ? chunks * chunk : chunk);
    layout.raw_scale.bytes = call.out_bytes == 4 ? 0 : call.out_bytes * chunk;
    return layout;
}

}  // namespace

std::optional<RmsNormLayout> layout_of(const RmsNormTileCall& call, const RmsNormTile& tile) {
    RmsNormLayout layout = tile.chunk == 0 ? layout_of_rows(call, tile) : layout_of_chunk(call, tile);
    return place_regions(layout.regions()) <= call.ub_bytes ? std::optional(layout) : std::nullopt;
}

std::vector<RmsNormTile> row_tiles(const RmsNormTileCall& call) {
    const CommonTiling& common = *call.common;
    const int64_t unit_rows = ceil_div(common.rows, common.row_parts),
                  max_heads = ceil_div(common.heads, common.head_parts);
    const int64_t max_tokens = std::min(unit_rows, common.seq), row_bytes = common.row_pitch * call.x_bytes;
    const int64_t target = target_tile_bytes(unit_rows, max_heads, row_bytes);
    std::vector<RmsNormTile> tiles;
    int64_t rows = std::clamp<int64_t>(ceil_div(target, row_bytes), 1, kMaxRows);
    for (; rows >= 1; rows = rows > 4 ? rows * 3 / 4 : rows - 1) {
        RmsNormTile tile;
        tile.tokens = std::min(max_tokens, common.tokens_inner ? rows : rows / std::min(rows, max_heads));
        tile.heads = std::min(max_heads, common.tokens_inner ? rows / tile.tokens : rows);
        tiles.push_back(tile);
    }
    return tiles;
}

std::vector<RmsNormTile> chunk_tiles(const RmsNormTileCall& call) {
    const bool may_keep_row = call.n <= call.ub_bytes;  // larger sizes may overflow
    const bool may_keep_scale = may_keep_row && (call.backward || call.scale_shared);
    std::vector<RmsNormTile> tiles;
    for (int64_t max_chunk = kMaxChunk; max_chunk >= kMinChunk; max_chunk /= 2) {
        // Take this size or a little less. The last chunk of a row must have at least 32 bytes, the least size of a
        // DMA.
        int64_t chunk = max_chunk;
        while (call.n % chunk != 0 && call.n % chunk < kUbBlockBytes / 2) chunk -= kChunkGranule;
        if (may_keep_scale) tiles.push_back({1, 1, chunk, true, true});
        if (may_keep_row) tiles.push_back({1, 1, chunk, true, false});
        tiles.push_back({1, 1, chunk, false, false});
    }
    return tiles;
}

}  // namespace npu_rope
