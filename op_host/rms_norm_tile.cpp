#include "op_host/rms_norm_tile.h"

#include <algorithm>

#include "op_host/work_split.h"

namespace npu_rope {
namespace {

constexpr int64_t kMaxRows = 512;  // of a tile; each row needs memory for its statistics
constexpr int64_t kMaxChunk = 4096;
constexpr int64_t kMinChunk = 512;
constexpr int64_t kChunkGranule = 16;      // elements: whole 32-byte blocks of every type
constexpr int64_t kMaxGatherLanes = 2048;  // most lanes of one Gather, except for longer rows

RmsNormLayout layout_of_rows(const RmsNormTileCall& call, const RmsNormTile& tile) {
    const CommonTiling& common = *call.common;
    const bool packed = common.io == kRopeIoPacked,
               in_input = call.x_bytes == 4 && !packed;  // compute in the input buffer
    const int64_t rows = tile.rows(), lanes = rows * common.row_pitch, out_lanes = rows * common.out_pitch;
    const int64_t x_bytes = lanes * call.x_bytes, out_bytes = out_lanes * call.out_bytes;
    const int64_t widest = std::max(x_bytes, out_bytes), packed_bytes = widest + rows * kUbBlockBytes;
    RmsNormLayout l;
    l.tile = tile;
    int64_t temp_bytes = 4 * lanes;
    if (call.backward) {
        l.tail_offset = packed ? widest : 0;
        l.inputs.bytes = l.outputs.bytes = 2 * (packed ? packed_bytes : x_bytes);
        l.grads.bytes = 2 * (packed ? packed_bytes : out_bytes);
        l.g_offset = in_input ? 0 : conflict_free_offset(4 * lanes);
        l.temp_offset = conflict_free_offset(l.g_offset + 4 * out_lanes);
        if (packed && std::min(call.x_bytes, call.out_bytes) < 4) temp_bytes += 2 * lanes;
        l.dscale.bytes = 4 * (common.row_pitch + kDscaleExtraFloats);
    } else {
        l.tail_offset = widest;
        l.inputs.bytes = l.outputs.bytes = 2 * (packed ? packed_bytes : widest);
        if (call.adds) l.residuals.bytes = l.sums.bytes = 2 * (packed ? packed_bytes : x_bytes);
        l.temp_offset = in_input ? 0 : conflict_free_offset(4 * lanes);
        if (packed && call.x_bytes < 4) temp_bytes += x_bytes;
    }
    if (packed) {
        l.gather_rows = std::clamp<int64_t>(kMaxGatherLanes / common.row_pitch, 1, rows);
        const int64_t gather_lanes = l.gather_rows * common.row_pitch;
        l.setup_lanes = round_up(std::max<int64_t>(gather_lanes, 16), 8);
        l.gather_offsets.bytes = 2 * 4 * (2 * gather_lanes + 16);
    }
    l.work.bytes = std::max(l.temp_offset + temp_bytes, 4 * kRopeSetupLaneTemps * l.setup_lanes);
    l.stats.bytes = 4 * (kRowNormStats + call.backward * kGradientStats) * round_up(rows, kRowNormSlots);
    const int64_t scales = (call.scale_shared || call.backward ? 1 : rows) * call.scale_pitch;
    l.scale.bytes = 4 * scales;
    l.raw_scale.bytes = call.out_bytes == 4 ? 0 : call.out_bytes * scales;
    return l;
}

RmsNormLayout layout_of_chunk(const RmsNormTileCall& call, const RmsNormTile& tile) {
    const int64_t chunk = tile.chunk, chunks = ceil_div(call.n, chunk);
    RmsNormLayout l;
    l.tile = tile;
    l.levels = 1;
    while (chunks >> l.levels != 0) ++l.levels;
    auto two_buffers = [&](int64_t item_bytes) { return 2 * (chunk * item_bytes + kUbBlockBytes); };
    l.inputs.bytes = l.outputs.bytes =
        two_buffers(call.backward ? call.x_bytes : std::max(call.x_bytes, call.out_bytes));
    if (call.adds) l.residuals.bytes = l.sums.bytes = two_buffers(call.x_bytes);
    if (call.backward) l.grads.bytes = two_buffers(call.out_bytes);
    // Floats: the Gather offsets of a piece's end for two types, a block with the largest magnitude, a vector of sums.
    constexpr int64_t kOffsets = 2 * 16, kLargest = 8, kSums = 64;
    const int64_t sums = ((1 + call.backward) * l.levels + 1) * kSums;
    l.work.bytes = 4 * ((2 + call.backward) * chunk + sums + kLargest + kOffsets);
    const int64_t row = tile.keeps_row ? chunks * chunk : chunk;
    (call.backward ? l.dscale : l.row).bytes = 4 * (row + call.backward * kDscaleExtraFloats);
    l.stats.bytes = 4 * (kRowNormStats + call.backward * kGradientStats) * kRowNormSlots;
    l.scale.bytes = 4 * (tile.keeps_scale ? chunks * chunk : chunk);
    l.raw_scale.bytes = call.out_bytes == 4 ? 0 : call.out_bytes * chunk;
    return l;
}

}  // namespace

std::optional<RmsNormLayout> layout_of(const RmsNormTileCall& call, const RmsNormTile& tile) {
    RmsNormLayout l = tile.chunk == 0 ? layout_of_rows(call, tile) : layout_of_chunk(call, tile);
    return place_regions(l.regions()) <= call.ub_bytes ? std::optional(l) : std::nullopt;
}

std::vector<RmsNormTile> row_tiles(const RmsNormTileCall& call) {
    const CommonTiling& common = *call.common;
    const int64_t unit_rows = ceil_div(common.rows, common.row_parts),
                  max_heads = ceil_div(common.heads, common.head_parts);
    const int64_t max_tokens = std::min(unit_rows, common.seq), row_bytes = common.row_pitch * call.x_bytes;
    const int64_t target = target_tile_bytes(unit_rows, max_heads, row_bytes);
    std::vector<RmsNormTile> all;
    int64_t rows = std::clamp<int64_t>(ceil_div(target, row_bytes), 1, kMaxRows);
    for (; rows >= 1; rows = rows > 4 ? rows * 3 / 4 : rows - 1) {
        RmsNormTile tile;
        tile.tokens = std::min(max_tokens, common.tokens_inner ? rows : rows / std::min(rows, max_heads));
        tile.heads = std::min(max_heads, common.tokens_inner ? rows / tile.tokens : rows);
        all.push_back(tile);
    }
    return all;
}

std::vector<RmsNormTile> chunk_tiles(const RmsNormTileCall& call) {
    const bool may_keep_scale = call.backward || call.scale_shared;
    std::vector<RmsNormTile> all;
    for (int64_t most = kMaxChunk; most >= kMinChunk; most /= 2) {
        // Take this size or slightly less, so that the last chunk of a row has at least the 32 bytes of a DMA.
        int64_t chunk = most;
        while (call.n % chunk != 0 && call.n % chunk < kUbBlockBytes / 2) chunk -= kChunkGranule;
        if (may_keep_scale) all.push_back({1, 1, chunk, true, true});
        all.push_back({1, 1, chunk, true, false});
        all.push_back({1, 1, chunk, false, false});
    }
    return all;
}

}  // namespace npu_rope
