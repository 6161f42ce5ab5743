// Calls of the tiling of qk_square_sums (op_host/qk_square_sums_tiling.cpp), and the properties that each tiling must
// have. The checks iterate over a call's tiles as the kernel does (op_kernel/memory/tiles.h).
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <vector>

#include "csrc/core/dtype.h"
#include "op_host/qk_square_sums_tiling.h"
#include "op_host/tile_preferences.h"
#include "op_kernel/memory/tiles.h"
#include "tests/fuzz/coverage/choices.h"
#include "tests/tiling/failures.h"

namespace qk_square_sums_tilings {

using namespace npu_rope;
using memory::PlanRuns;
using memory::RunPlan;
using memory::ShareOf;
using memory::Tile;
using memory::Tiles;

struct Case {
    QkSquareSumsTilingInput in;
    Platform platform{};
    QkSquareSumsTilingData data{};
    KernelLaunch launch;
    bool is_310p() const { return platform.arch == kArch310p; }
    bool is_long() const { return launch.tiling_key % 2 == 0; }
    bool is_split() const { return data.common.head_parts > 1; }
};

inline void describe(const Case& c) {
    const CommonTiling& h = c.data.common;
    std::fprintf(stderr,
                 "  %s S %" PRId64 " N %" PRId64 " and %" PRId64 " D %" PRId64
                 " %s\n  key %d copy mode %d parts %d x %d granule %d block %d tile %d, %d x %d chunk %d\n",
                 c.platform.soc, c.in.S, c.in.N[0], c.in.N[1], c.in.D, dtype_name(c.in.dtype),
                 static_cast<int>(c.launch.tiling_key), h.copy_mode, h.row_parts, h.head_parts, h.row_granule,
                 h.block_tokens, h.tile_tokens[0], h.tile_tokens[1], h.tile_heads, c.data.chunk);
}

// cores: of the chip; 0: all.
inline Case tile_call(const QkSquareSumsTilingInput& in, const char* chip, int32_t cores = 0) {
    Case c;
    c.in = in;
    c.platform = *find_platform(chip);
    if (cores > 0) c.platform.cores = cores;
    Check check = qk_square_sums_tiling(in, c.platform, &c.data, &c.launch);
    require_accepted(check, c);
    return c;
}

// Heads of D elements with `gap` elements between heads, and `token_gap` elements between tokens.
inline QkSquareSumsTilingInput make_call(int64_t S, int64_t Nq, int64_t Nk, int64_t D, int32_t dtype, int64_t gap = 0,
                                         int64_t token_gap = 0) {
    QkSquareSumsTilingInput in;
    in.S = S;
    in.D = D;
    in.N[0] = Nq;
    in.N[1] = Nk;
    in.dtype = dtype;
    for (int k = 0; k < 2; ++k) {
        in.x_stride[k][1] = in.N[k] > 1 ? D + gap : 0;
        in.x_stride[k][0] = S > 1 ? in.N[k] * (D + gap) + token_gap : 0;
    }
    return in;
}

// A token and a side: the tiles that a core has for it.
struct Part {
    int64_t heads = 0, tiles = 0;
    uint32_t unit = 0;
    bool is_open = false;  // the last tile of the core belongs to it
};

// Each head of each token is in one tile. The tiles of a token and side in one unit come one after another. A tile of
// several tokens has all heads of the unit. Blocks have enough tokens for their store.
inline void check_cover(const Case& c) {
    const CommonTiling& common = c.data.common;
    std::map<std::pair<int64_t, int32_t>, std::vector<std::pair<int64_t, int64_t>>> heads_of;
    CHECK(c, c.launch.block_dim <= static_cast<uint32_t>(c.platform.cores));
    for (uint32_t block = 0; block < c.launch.block_dim; ++block) {
        Tiles tiles;
        tiles.Init(&common, block, c.launch.block_dim);
        std::map<std::pair<int64_t, int32_t>, Part> parts;
        std::pair<int64_t, int32_t> last{-1, -1};
        int64_t block_first = -1;
        bool has_tiles = false;
        for (Tile tile; tiles.Next(&tile); has_tiles = true) {
            const int64_t N = c.in.N[tile.side];
            CHECK(c, tile.tokens >= 1 && tile.tokens <= common.tile_tokens[tile.side]);
            CHECK(c, tile.heads >= 1 && tile.heads <= common.tile_heads);
            CHECK(c, tile.table_row + tile.tokens <= tile.block_tokens && tile.block_tokens <= common.block_tokens);
            CHECK(c, int64_t{tile.tokens} * tile.heads <= 4095);
            if (tile.opens_block) {
                block_first = tile.token;
                CHECK(c, !c.is_310p() || tile.block_tokens >= 4 || (c.in.S < 4 && c.data.stores_by_scalar));
            }
            CHECK(c, tile.token - tile.table_row == block_first);
            for (int64_t t = tile.token; t < tile.token + tile.tokens; ++t) {
                const auto key = std::pair{t, tile.side};
                CHECK(c, parts.count(key) == 0 || (last == key && tile.tokens == 1));
                Part& part = parts[key];
                part.heads += tile.heads;
                if (++part.tiles > 1) CHECK(c, tile.tokens == 1);
                heads_of[key].push_back({tile.head, tile.head + tile.heads});
                last = key;
            }
            const bool is_short_run = common.copy_mode == kCopyPacked;
            if (is_short_run) {
                const RunPlan plan = PlanRuns(&common, tile, common.side[tile.side].x_stride, common.head_size, true);
                CHECK(c, plan.run_elements * dtype_bytes(c.in.dtype) >= 32);
            }
            CHECK(c, tile.head + tile.heads <= N);
        }
        CHECK(c, has_tiles);
        const int64_t pieces = c.is_long() ? (c.in.D + c.data.chunk - 1) / c.data.chunk : 1;
        for (const auto& [key, part] : parts) CHECK(c, part.tiles * pieces < int64_t{1} << c.data.levels);
    }
    int64_t sides = 0;
    for (int64_t N : c.in.N) sides += N > 0;
    CHECK(c, heads_of.size() == static_cast<size_t>(c.in.S * sides));
    for (auto& [key, ranges] : heads_of) {
        std::sort(ranges.begin(), ranges.end());
        int64_t end = 0;
        for (const auto& [first, last] : ranges) {
            CHECK(c, first == end);
            end = last;
        }
        CHECK(c, end == c.in.N[key.second]);
    }
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

// The heads of a token on a core.
inline int64_t heads_on_a_core(const Case& c) { return ceil_div(c.data.common.heads, c.data.common.head_parts); }

// The largest number of heads of a tile: those of a token of one side, on one core.
inline int64_t most_heads(const Case& c) { return std::min(std::max(c.in.N[0], c.in.N[1]), heads_on_a_core(c)); }

// Only Ascend310P, whose DMA copies no rows with padding, packs rows or copies them by the scalar unit.
inline void check_copy_mode(const Case& c) {
    const int64_t head_bytes = c.in.D * dtype_bytes(c.in.dtype);
    const bool whole = !c.is_310p() || c.is_long() || head_bytes % 32 == 0;
    bool can_pack = true;
    for (int k = 0; k < 2; ++k)
        can_pack &=
            head_bytes >= 32 || c.in.N[k] == 0 || (c.in.N[k] * head_bytes >= 32 && (c.in.x_stride[k][1] == c.in.D));
    const int32_t mode = c.data.common.copy_mode;
    // If one run, of a head or of the heads of a token, does not fit UB, the scalar unit copies it.
    const bool fits = (head_bytes >= 32 ? 1 : most_heads(c)) * c.data.common.row_pitch * 4 <= 16 * 1024;
    // A part of a run may be too short for a DMA.
    CHECK(c, mode != kCopyPacked || head_bytes >= 32 || c.data.common.tile_heads == most_heads(c));
    CHECK(c, whole ? mode == kCopyBursts : mode == kCopyScalar ? !can_pack || !fits : mode == kCopyPacked && can_pack);
}

// A tile has the preferred size, unless it is one head or the heads of one token. A chunk is as long as possible.
inline void check_preferred_size(const Case& c) {
    const CommonTiling& h = c.data.common;
    CHECK(c, h.tile_heads <= most_heads(c));
    if (c.is_long()) {
        int64_t chunk = 8192;
        while (c.in.D % chunk != 0 && c.in.D % chunk < 16) chunk -= 16;
        CHECK(c, c.data.chunk == chunk);
        return;
    }
    const int64_t head_bytes = h.row_pitch * dtype_bytes(c.in.dtype), bytes = h.tile_heads * head_bytes;
    const int64_t tile_bytes = tile_preferences().tile_bytes;
    CHECK(c, bytes <= tile_bytes || h.tile_heads == 1 || h.tile_heads == most_heads(c));
    for (int k = 0; k < 2; ++k)
        CHECK(c, h.tile_tokens[k] * std::min<int64_t>(h.tile_heads, c.in.N[k]) * head_bytes <=
                     std::max(tile_bytes, bytes));
}

// The buffers have no byte more than the kernel needs.
inline void check_sizes(const Case& c) {
    const CommonTiling& h = c.data.common;
    const bool packed = h.copy_mode == kCopyPacked, in_place = c.in.dtype == NPU_ROPE_FLOAT32 && !packed;
    const int64_t x = dtype_bytes(c.in.dtype);
    const int64_t rows = h.tile_tokens[c.in.N[1] > c.in.N[0]] * int64_t{h.tile_heads};
    const int64_t lanes = c.is_long() ? c.data.chunk : rows * h.row_pitch;
    const int64_t tails = c.is_long() ? 32 : packed ? 32 * rows : 0;
    CHECK(c, h.queue_bytes == std::max<int64_t>(256, round_up(lanes * x + tails, 32)));
    CHECK(c, h.tail_offset_bytes == (c.is_long() ? 0 : lanes * x));
    CHECK(c, c.data.out_bytes == 4 * round_up(2 * h.block_tokens, 8) + 32);
    CHECK(c, h.temp_offset_bytes == (in_place && !c.is_long() ? 0 : 4 * lanes));
    const int64_t gather_rows = packed ? std::clamp<int64_t>(2048 / h.row_pitch, 1, rows) : 0;
    const int64_t gather_lanes = gather_rows * h.row_pitch;
    CHECK(c, h.gather_rows == gather_rows && h.gather_bytes == packed * 4 * (2 * gather_lanes + 16));
    CHECK(c, h.setup_lanes == packed * round_up(std::max<int64_t>(gather_lanes, 16), 8));
    const int64_t chunks = ceil_div(heads_on_a_core(c), h.tile_heads) * (c.is_long() ? ceil_div(c.in.D, lanes) : 1);
    CHECK(c, c.data.levels == 1 || chunks >= int64_t{1} << (c.data.levels - 1));
    const int64_t sums = packed && x == 2 ? lanes * x : c.is_long() ? round_up(lanes / 2, 32) : lanes / 2;
    const int64_t parts = c.is_split() ? 4 * h.head_parts * round_up(2 * h.block_tokens, 8) : 0;
    const int64_t most =
        std::max<int64_t>({h.temp_offset_bytes + sums, int64_t{4} * kRopeSetupLaneTemps * h.setup_lanes, parts, 256});
    CHECK(c, h.work_bytes == 4 * (64 * (1 + c.data.levels) + 2 * 16) + round_up(most, 32));
}

// The kernel's buffers are large enough, and fit in UB together.
inline void check_ub(const Case& c) {
    const CommonTiling& h = c.data.common;
    const int64_t x = dtype_bytes(c.in.dtype), sums = (2 * int64_t{h.block_tokens} + 7) / 8 * 8;
    const int64_t fixed = 4 * (64 * (1 + int64_t{c.data.levels}) + 2 * 16);  // lane sums, the tree, offsets
    int64_t floats = (h.work_bytes - fixed) / 4;
    CHECK(c, int64_t{2} * h.queue_bytes + int64_t{2} * c.data.out_bytes + h.work_bytes + h.gather_bytes <=
                 ub_budget_bytes(c.platform));
    for (const int64_t bytes : {h.queue_bytes, h.tail_offset_bytes, h.work_bytes, h.temp_offset_bytes, h.gather_bytes})
        CHECK(c, bytes % 32 == 0 && bytes >= 0);
    CHECK(c, h.queue_bytes >= 256 && c.data.out_bytes >= 4 * sums + 32 && floats >= 64);
    if (c.is_split()) {
        CHECK(c, floats >= h.head_parts * sums && c.data.part_pitch == round_up(2 * c.in.S, 8));
        CHECK(c, c.launch.workspace_bytes == 4 * h.head_parts * c.data.part_pitch && c.launch.cores_wait);
        // A core adds the parts of its share of the sums at once.
        for (int64_t core = 0; core < c.launch.block_dim; ++core)
            CHECK(c, ShareOf(2 * c.in.S, 8, c.launch.block_dim, core).count <= sums);
    }
    if (c.is_long()) {
        const int64_t last = c.in.D - (c.in.D - 1) / c.data.chunk * c.data.chunk;
        CHECK(c, c.data.chunk % 16 == 0 && last * x >= 32 && h.queue_bytes >= c.data.chunk * x + 32);
        CHECK(c, h.temp_offset_bytes >= 4 * c.data.chunk && 4 * floats >= h.temp_offset_bytes + c.data.chunk / 2);
        CHECK(c, h.tile_heads == 1 && h.tile_tokens[0] == 1 && h.tile_tokens[1] == 1);
        return;
    }
    CHECK(c, h.row_pitch >= c.in.D && h.row_pitch * x % 32 == 0);
    for (int k = 0; k < 2; ++k) {
        if (c.in.N[k] == 0) continue;
        const int64_t rows = h.tile_tokens[k] * std::min<int64_t>(h.tile_heads, c.in.N[k]), lanes = rows * h.row_pitch;
        const bool packed = h.copy_mode == kCopyPacked;
        CHECK(c, h.queue_bytes >= lanes * x + (packed ? 32 * rows : 0));
        const bool in_place = x == 4 && !packed;
        CHECK(c, h.temp_offset_bytes >= (in_place ? 0 : 4 * lanes) && h.temp_offset_bytes % 32 == 0);
        CHECK(c, 4 * floats >= h.temp_offset_bytes + (packed && x == 2 ? 2 * lanes : lanes / 2));
        CHECK(c, !packed || h.tail_offset_bytes >= lanes * x);
    }
}

inline QkSquareSumsTilingInput random_call(Choices* random, bool is_310p, int64_t most_heads) {
    const auto in = [&](int64_t low, int64_t high) { return random->between(low, high); };
    const int32_t types[] = {NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16};
    const int64_t choice = in(0, 9);
    int64_t S = in(0, 3) ? in(1, 70) : in(1, 3000);
    int64_t D = choice < 5 ? 16 * in(1, 32) : choice < 8 ? in(1, 70) : in(1, 20000);
    int64_t Nq = in(0, 40), Nk = in(0, 12);
    if (choice == 9) Nq = in(100, 3000);
    if (Nq + Nk == 0) Nk = 1;
    S = std::min(S, most_heads / (Nq + Nk));
    const int32_t dtype = types[in(0, is_310p ? 1 : 2)];
    if (choice == 9 && in(0, 1)) D = in(1, 15);
    const int64_t gap = in(0, 2) ? 0 : in(1, 40), token_gap = in(0, 1) ? 0 : in(1, 500);
    return make_call(S, Nq, Nk, D, dtype, gap, token_gap);
}

// Draws a call for this chip with at most this number of heads of tokens, tiles it and checks its tiling.
inline Case check_random_call(Choices* random, const char* chip, int64_t most_heads = 200000) {
    const Case c = tile_call(random_call(random, chip[6] == '3', most_heads), chip);
    check_cover(c);
    check_ub(c);
    check_sizes(c);
    check_copy_mode(c);
    check_preferred_size(c);
    for (int64_t stride : c.data.common.side[2].x_stride) CHECK(c, stride == 0);  // there is no third side
    CHECK(c, c.launch.tiling_key == static_cast<uint64_t>(1 + (c.in.D > 8192) + 2 * c.is_split()));
    return c;
}

}  // namespace qk_square_sums_tilings
