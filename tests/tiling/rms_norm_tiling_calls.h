// Calls of the tiling of rms_norm, add_rms_norm and rms_norm_backward (op_host/rms_norm_tiling.cpp), and the properties
// that each tiling must have. The checks iterate over a call's tiles as the kernels do (op_kernel/memory/tiles.h).
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>

#include "csrc/core/dtype.h"
#include "op_host/rms_norm_tiling.h"
#include "op_kernel/memory/tiles.h"
#include "tests/fuzz/coverage/choices.h"
#include "tests/tiling/failures.h"

namespace rms_norm_tilings {

using namespace npu_rope;
using memory::Tile;
using memory::TileOffset;
using memory::Tiles;

struct Case {
    RmsNormTilingInput in;
    Platform platform{};
    RmsNormTilingData data{};
    KernelLaunch launch;
};

inline void describe(const Case& c) {
    const RmsNormShape& s = c.in.shape;
    std::fprintf(stderr,
                 "  arch %d [%" PRId64 ",%" PRId64 ",%" PRId64 "] x %" PRId64
                 " %s to %s adds %d shared %d\n  key %d copy mode %d parts %d x %d tile %d x %d inner %d chunk %d\n",
                 c.platform.arch, s.outer[0], s.outer[1], s.outer[2], s.n, dtype_name(c.in.dtype),
                 dtype_name(c.in.scale_dtype), c.in.adds, c.data.scale_shared, static_cast<int>(c.launch.tiling_key),
                 c.data.common.copy_mode, c.data.common.row_parts, c.data.common.head_parts,
                 c.data.common.tile_tokens[0], c.data.common.tile_heads, c.data.common.tokens_inner, c.data.chunk);
}

inline Case tile_call(const RmsNormTilingInput& in, const char* chip) {
    Case c;
    c.in = in;
    c.platform = *find_platform(chip);
    Check check = rms_norm_tiling(in, c.platform, &c.data, &c.launch);
    require_accepted(check, c);
    return c;
}

// Rows [a,b,c,n]. The rows of x have `gap` elements between them, and may be in memory as [a,c,b,n].
inline RmsNormTilingInput make_call(int64_t a, int64_t b, int64_t c, int64_t n, int32_t dtype, int32_t scale_dtype,
                                    bool exchanged, int64_t gap) {
    RmsNormTilingInput in{};
    RmsNormShape& s = in.shape;
    const int64_t outer[] = {a, b, c};
    std::copy(outer, outer + 3, s.outer);
    s.rows = a * b * c;
    s.n = n;
    s.x_stride[exchanged ? 1 : 2] = n + gap;
    s.x_stride[exchanged ? 2 : 1] = (n + gap) * (exchanged ? b : c);
    s.x_stride[0] = (n + gap) * b * c;
    const int64_t dense[] = {b * c * n, c * n, n};
    for (int64_t* stride : {s.out_stride, s.residual_stride, s.sum_stride}) std::copy(dense, dense + 3, stride);
    for (int64_t& size : s.inner) size = 1;
    s.inner[3] = n;
    s.scale_inner_stride[3] = 1;
    s.scale_is_dense = true;
    s.stash_dtype = NPU_ROPE_FLOAT32;
    s.epsilon = 1e-5;
    in.dtype = dtype;
    in.scale_dtype = scale_dtype;
    return in;
}

// Each row of x is read once, and the same row of out is written once.
inline void check_cover(const Case& c) {
    const RmsNormShape& s = c.in.shape;
    const CommonTiling& common = c.data.common;
    std::set<std::pair<int64_t, int64_t>> expected, visited;
    for (int64_t i = 0; i < s.outer[0]; ++i)
        for (int64_t j = 0; j < s.outer[1]; ++j)
            for (int64_t k = 0; k < s.outer[2]; ++k)
                expected.insert({i * s.x_stride[0] + j * s.x_stride[1] + k * s.x_stride[2],
                                 i * s.out_stride[0] + j * s.out_stride[1] + k * s.out_stride[2]});
    for (uint32_t block = 0; block < c.launch.block_dim; ++block) {
        Tiles tiles;
        tiles.Init(&common, block, c.launch.block_dim);
        bool has_tiles = false;
        for (Tile tile; tiles.Next(&tile); has_tiles = true) {
            CHECK(c, tile.side == 0 && tile.tokens >= 1 && tile.heads >= 1);
            CHECK(c, tile.tokens <= common.tile_tokens[0] && tile.heads <= common.tile_heads);
            for (int32_t t = 0; t < tile.tokens; ++t)
                for (int32_t h = 0; h < tile.heads; ++h) {
                    Tile row = tile;
                    row.token += t;
                    row.head += h;
                    bool is_new = visited
                                      .insert({TileOffset(row, common.side[0].x_stride),
                                               TileOffset(row, common.side[0].out_stride)})
                                      .second;
                    CHECK(c, is_new);
                }
        }
        CHECK(c, has_tiles);
    }
    CHECK(c, visited == expected);
}

// Only a gradient's sums on several cores are added in a fixed order. Each core has its own lines of 512 bytes in the
// workspace, and all cores have blocks of 32 bytes behind.
inline void check_launch(const Case& c) {
    const bool is_ordered = c.in.backward && c.in.deterministic && c.launch.block_dim > 1;
    const int32_t keys[2][2] = {{kRmsNormRows, kRmsNormLong}, {kRmsNormOrderedRows, kRmsNormOrderedLong}};
    CHECK(c, c.launch.tiling_key == static_cast<uint64_t>(keys[is_ordered][c.data.chunk > 0]));
    CHECK(c, c.launch.block_dim >= 1 && c.launch.block_dim <= static_cast<uint32_t>(c.platform.cores));
    CHECK(c, c.launch.cores_wait == is_ordered);
    CHECK(c, c.data.sums_pitch == (is_ordered ? (c.in.shape.n + 127) / 128 * 128 : 0));
    CHECK(c, c.launch.workspace_bytes == is_ordered * c.launch.block_dim * (4 * c.data.sums_pitch + 32));
}

// The kernels' buffers are large enough, and fit in UB together.
inline void check_ub(const Case& c) {
    const CommonTiling& h = c.data.common;
    int64_t bytes = int64_t{4} * h.queue_bytes + int64_t{4} * c.data.sum_queue_bytes + h.work_bytes +
                    c.data.stats_bytes + c.data.scale_bytes + c.data.scale_raw_bytes;
    const int64_t x = dtype_bytes(c.in.dtype), out = dtype_bytes(c.in.scale_dtype), n = c.in.shape.n;
    if (c.launch.tiling_key == kRmsNormRows) {
        const int64_t rows = int64_t{h.tile_tokens[0]} * h.tile_heads, lanes = rows * h.row_pitch;
        bytes += h.gather_bytes;
        CHECK(c, h.row_pitch >= n && h.out_pitch >= n && h.row_pitch * x % 32 == 0 && h.out_pitch * out % 32 == 0);
        // Packed rows of both types have the same elements in UB.
        const int64_t items = 32 / x, out_items = 32 / out, most_items = std::max(items, out_items);
        const bool packed = h.copy_mode == kCopyPacked;
        CHECK(c,
              h.row_pitch - n < (packed ? most_items : items) && h.out_pitch - n < (packed ? most_items : out_items));
        CHECK(c, !packed || h.row_pitch == h.out_pitch);
        CHECK(c, rows >= 1 && rows <= 512 && h.queue_bytes >= lanes * x && h.queue_bytes >= rows * h.out_pitch * out);
        CHECK(c, h.work_bytes >= h.temp_offset_bytes + 4 * lanes && h.temp_offset_bytes % 32 == 0);
        CHECK(c, x == 4 || h.temp_offset_bytes >= 4 * lanes);
        CHECK(c, c.data.stats_bytes >= 48 * rows && c.data.stats_bytes % (48 * 64) == 0);
        CHECK(c, c.data.scale_bytes >= 4 * n * (c.data.scale_shared ? 1 : rows));
    } else {
        CHECK(c, h.copy_mode == kCopyBursts && h.tokens_inner == 0 && h.head_size == 0);
        bytes += c.data.row_bytes;
        const int64_t chunks = (n + c.data.chunk - 1) / c.data.chunk, last = n - (chunks - 1) * c.data.chunk;
        CHECK(c, c.data.chunk % 16 == 0 && (last * x) >= 32 && last * out >= 32);
        CHECK(c, h.queue_bytes >= c.data.chunk * std::max(x, out) + 32);
        CHECK(c, c.data.row_bytes >= 4 * (c.data.keeps_row ? n : c.data.chunk));
        CHECK(c, c.data.scale_bytes >= 4 * (c.data.keeps_scale ? n : c.data.chunk));
        CHECK(c, chunks < int64_t{1} << c.data.levels);
    }
    CHECK(c, bytes <= ub_budget_bytes(c.platform));
}

inline RmsNormTilingInput random_call(Choices* random, bool is_310p) {
    const auto in = [&](int64_t low, int64_t high) { return random->between(low, high); };
    const int32_t types[] = {NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16};
    const int64_t choice = in(0, 9);
    int64_t n = choice < 4 ? in(1, 70) : choice < 8 ? in(1, 600) * in(1, 8) : in(5000, 200000);
    if (in(0, 1)) n = std::max<int64_t>(64, n / 64 * 64);
    const int64_t max_size = n > 4000 ? 3 : 9;
    const int64_t a = in(1, max_size), b = in(1, max_size), c = in(1, max_size);
    const int32_t dtype = types[in(0, is_310p ? 1 : 2)], scale_dtype = types[in(0, is_310p ? 1 : 2)];
    const bool exchanged = in(0, 1);
    RmsNormTilingInput input = make_call(a, b, c, n, dtype, scale_dtype, exchanged, in(0, 2) ? 0 : in(1, 40));
    input.adds = in(0, 2) == 0;
    if (in(0, 3) == 0) input.shape.scale_stride[2] = n;
    input.backward = !input.adds && input.shape.scale_stride[2] == 0 && in(0, 1);
    input.deterministic = in(0, 1);
    std::copy_n(input.shape.out_stride, kMaxOuterDims, input.shape.grad_stride);
    return input;
}

// Draws a call for this chip, tiles it and checks its tiling.
inline Case check_random_call(Choices* random, const char* chip) {
    const RmsNormTilingInput input = random_call(random, chip[6] == '3');
    const Case c = tile_call(input, chip);
    check_cover(c);
    check_launch(c);
    CHECK(c, c.data.scale_shared == (input.shape.outer[2] == 1 || input.shape.scale_stride[2] == 0));
    if (!input.backward) {
        check_ub(c);
        return c;
    }
    // test_rms_norm_tile.cpp checks its UB.
    const RopeSideTiling* side = c.data.common.side;
    CHECK(c, c.data.scale_shared && std::equal(side[1].x_stride, side[1].x_stride + 3, side[0].out_stride));
    return c;
}

}  // namespace rms_norm_tilings
