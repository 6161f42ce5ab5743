// Calls of the rotation kernels' tilings (op_host/rope_tiling.h), and the properties that each tiling must have. The
// checks iterate over a call's tiles as the kernels do (op_kernel/memory/tiles.h).
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_frequency.h"
#include "op_host/rope_tiling.h"
#include "op_kernel/memory/tiles.h"
#include "tests/fuzz/coverage/choices.h"
#include "tests/tiling/failures.h"

namespace rope_tilings {

using namespace npu_rope;
using memory::PlanRuns;
using memory::RunPlan;
using memory::Share;
using memory::ShareOf;
using memory::Tile;
using memory::TileOffset;
using memory::Tiles;

inline const char* g_test = "";

// A call and its tiling.
struct Case {
    RopeTilingInput in;
    Platform platform{};
    bool given = false;   // rotary_mul, with given tables
    bool normed = false;  // rms_norm_rope
    RopeTilingData data{};
    HeadNormTiling norm{};
    RotaryTilingData rotary{};
    CommonTiling common{};  // of data or of rotary
    KernelLaunch launch;
};

inline void describe(const Case& c) {
    std::fprintf(stderr, "  %s\n", g_test);
    const RopeTilingInput& i = c.in;
    const RopeSide& s = i.shape.side[0];
    std::fprintf(stderr,
                 "  arch %d cores %d [%" PRId64 ",%" PRId64 ",%" PRId64 "+%" PRId64 ",%" PRId64
                 "] %s to %s mode %d n_dims %d n_offs %d"
                 " x %" PRId64 ",%" PRId64 ",%" PRId64 " out %" PRId64 ",%" PRId64 ",%" PRId64
                 "\n  key %d copy mode %d parts %d x %d granule %d tile %d x %d block %d inner %d work %d queue %d\n",
                 c.platform.arch, c.platform.cores, i.shape.B, i.shape.S, s.N, i.shape.side[1].N, i.shape.D,
                 dtype_name(i.dtype), dtype_name(i.out_dtype), i.params.mode, i.params.n_dims, i.params.n_offs,
                 s.x_stride[0], s.x_stride[1], s.x_stride[2], s.out_stride[0], s.out_stride[1], s.out_stride[2],
                 static_cast<int>(c.launch.tiling_key), c.common.copy_mode, c.common.row_parts, c.common.head_parts,
                 c.common.row_granule, c.common.tile_tokens[0], c.common.tile_heads, c.common.block_tokens,
                 c.common.tokens_inner, c.common.work_bytes, c.common.queue_bytes);
}

// ---- making calls -----------------------------------------------------------------------------

inline void make_contiguous(RopeShape* s) {
    for (int k = 0; k < s->sides; ++k)
        for (int64_t* stride : {s->side[k].x_stride, s->side[k].out_stride}) {
            stride[2] = s->D;
            stride[1] = s->side[k].N * s->D;
            stride[0] = s->S * s->side[k].N * s->D;
        }
    s->pos_stride[0] = 0;
    s->pos_stride[1] = 1;
}

inline void set_mode(RopeTilingInput* in, int32_t mode) {
    RopeShape& s = in->shape;
    in->params.mode = mode;
    in->params.n_dims = static_cast<int32_t>(mode == NPU_ROPE_MODE_VISION ? s.D / 2 : s.D / 2 * 2);
    if (!rope_has_sections(mode)) return;
    const int32_t sections[4] = {2, 1, 1, 0};
    std::copy(sections, sections + 4, in->params.sections);
    for (int axis = 0; axis < 4; ++axis) s.axis_offset[axis] = axis * s.S;
}

inline RopeTilingInput make_call(int64_t B, int64_t S, int64_t N, int64_t D, int32_t dtype, int32_t mode,
                                 int64_t keys = 0) {
    RopeTilingInput in;
    in.shape.B = B, in.shape.S = S, in.shape.D = D;
    in.shape.sides = keys > 0 ? 2 : 1;
    in.shape.side[0].N = N;
    in.shape.side[1].N = keys;
    in.dtype = in.out_dtype = dtype;
    make_contiguous(&in.shape);
    set_mode(&in, mode);
    in.params.freq_base = 10000.0;
    in.params.freq_scale = 1.0;
    in.params.attn_factor = 1.0;
    in.params.beta_fast = 32.0;
    in.params.beta_slow = 1.0;
    return in;
}

inline Check normed_tiling(Case* c) {
    RmsNormRopeTilingData data;
    Check check = rms_norm_rope_tiling(c->in, c->platform, &data, &c->launch);
    c->data = RopeTilingData{data.common, data.turns};
    c->norm = data.norm;
    return check;
}

inline Case tile_call(const RopeTilingInput& in, const char* chip, bool given = false, bool normed = false) {
    Case c;
    c.in = in;
    c.given = given;
    c.normed = normed;
    c.platform = *find_platform(chip);
    Check check = normed  ? normed_tiling(&c)
                  : given ? rotary_tiling(in, c.platform, &c.rotary, &c.launch)
                          : rope_tiling(in, c.platform, &c.data, &c.launch);
    require_accepted(check, c);
    c.common = given ? c.rotary.common : c.data.common;
    return c;
}

// Strides of a permutation of (B, S, N), some with gaps or negative; if may_repeat, some are 0.
inline void random_strides(Choices* r, const RopeShape& s, int64_t heads, int64_t* stride, bool may_repeat) {
    int order[3] = {2, 1, 0};
    if (r->chance(3)) std::swap(order[0], order[1]);
    if (r->chance(4)) std::swap(order[1], order[2]);
    const int64_t sizes[3] = {s.B, s.S, heads};
    int64_t next = s.D;
    for (int k : order) {
        stride[k] = next + (r->chance(4) ? r->up_to(40) : 0);
        next = stride[k] * sizes[k];
        if (r->chance(8)) stride[k] = -stride[k];
        if (may_repeat && r->chance(12)) stride[k] = 0;
    }
}

// Random sections: some are empty, or have more pairs than the window; at least one has pairs.
inline void random_sections(Choices* r, int64_t D, int32_t* sections) {
    for (int axis = 0; axis < 4; ++axis)
        sections[axis] = r->chance(4) ? 0 : static_cast<int32_t>(r->up_to(std::min<int64_t>(D / 4, 40)));
    if (sections[0] + sections[1] + sections[2] == 0) sections[r->up_to(2)] = 1;
}

inline void random_sections_and_planes(Choices* r, RopeTilingInput* in) {
    RopeShape& s = in->shape;
    random_sections(r, s.D, in->params.sections);
    // Four or three planes, in any order of memory.
    int64_t step = r->one_of<int64_t>({s.S, s.B * s.S, -s.S, 1000});
    bool three = r->chance(3);
    for (int axis = 0; axis < 4; ++axis) s.axis_offset[axis] = three && axis == 3 ? 0 : axis * step;
}

// Lets the call write into rows of a cache, of x's type or a narrower one.
inline void make_scattering(Choices* r, RopeTilingInput* in) {
    RopeShape& s = in->shape;
    RopeSide& side = s.side[0];
    in->scatters = true;
    s.cache_rows = s.B * s.S + r->up_to(100);
    int64_t head_step = s.D + (r->chance(3) ? r->up_to(20) : 0);
    side.out_stride[0] = 0;
    side.out_stride[1] = side.N * head_step + (r->chance(3) ? r->up_to(40) : 0);
    side.out_stride[2] = head_step;
    s.row_stride[0] = r->chance(2) ? s.S : 0;
    s.row_stride[1] = r->one_of<int64_t>({1, 1, 2, -1});
    in->rows_int64 = r->chance(2);
    if (in->dtype == NPU_ROPE_FLOAT32 && r->chance(2)) in->out_dtype = NPU_ROPE_FLOAT16;
}

// Makes the call one with given tables, of random type and strides, with a row per token or rows that ids select.
inline void add_given_tables(Choices* r, RopeTilingInput* in) {
    RopeShape& s = in->shape;
    GivenTables& t = in->tables;
    in->params.mode = in->params.mode == NPU_ROPE_MODE_NORMAL ? NPU_ROPE_MODE_NORMAL : NPU_ROPE_MODE_NEOX;
    in->params.n_dims = std::min<int32_t>(in->params.n_dims, static_cast<int32_t>(s.D / 2 * 2));
    in->has_factors = in->positions_int64 = false;
    t.dtype = r->chance(2) ? in->dtype : NPU_ROPE_FLOAT32;
    t.entry_per_lane = r->chance(2);
    t.has_ids = r->chance(2);
    t.rows = t.has_ids ? 1 + r->up_to(50) : 0;
    int64_t row = in->params.n_dims / (t.entry_per_lane ? 1 : 2);
    for (int64_t* stride : {t.cos_stride, t.sin_stride}) {
        stride[1] = r->one_of<int64_t>({row, row, row + 7, 0, -row, 5});
        stride[0] = t.has_ids || r->chance(2) ? 0 : s.S * stride[1];
    }
    s.pos_stride[0] = s.pos_stride[1] = 0;
    t.id_stride[0] = t.has_ids && r->chance(2) ? s.S : 0;
    t.id_stride[1] = t.has_ids ? r->one_of<int64_t>({1, 1, 2, -1, 0}) : 0;
    t.ids_int64 = t.has_ids && r->chance(2);
}

inline RopeTilingInput random_call(Choices* r, int32_t arch) {
    int64_t D =
        r->chance(2) ? r->one_of<int64_t>({64, 80, 96, 128, 192, 256, 576}) : 2 + r->up_to(r->chance(4) ? 1022 : 70);
    int64_t N = r->one_of<int64_t>({1, 1, 2, 3, 8, 12, 32, 40, 71, 128, 300});
    int64_t S = r->one_of<int64_t>({1, 2, 3, 15, 16, 17, 48, 100, 301});
    int64_t B = r->one_of<int64_t>({1, 1, 2, 3, 7});
    if (r->chance(20)) S = 5000, N = std::min<int64_t>(N, 8), B = 1;
    int32_t dtype = r->one_of<int32_t>({NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16, NPU_ROPE_BFLOAT16});
    if (arch == kArch310p && dtype == NPU_ROPE_BFLOAT16) dtype = NPU_ROPE_FLOAT16;
    int32_t mode =
        r->one_of<int32_t>({NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_NEOX,
                            NPU_ROPE_MODE_MROPE, NPU_ROPE_MODE_IMROPE, NPU_ROPE_MODE_VISION});
    if (mode == NPU_ROPE_MODE_VISION) D = (D + 3) / 4 * 4;
    int64_t keys = r->chance(3) ? r->one_of<int64_t>({1, 2, 8, 33}) : 0;
    RopeTilingInput in = make_call(B, S, N, D, dtype, mode, keys);
    RopeShape& s = in.shape;
    for (int k = 0; k < s.sides; ++k)
        if (r->chance(2)) {
            random_strides(r, s, s.side[k].N, s.side[k].x_stride, true);
            random_strides(r, s, s.side[k].N, s.side[k].out_stride, false);
        }
    if (mode != NPU_ROPE_MODE_VISION && r->chance(2)) {
        int64_t width = 1 + r->up_to(D / 2 - 1);
        in.params.n_dims = static_cast<int32_t>(2 * width);
        in.params.n_offs = static_cast<int32_t>(r->up_to((D - 2 * width) / 2) * 2);
        if (r->chance(2)) in.params.n_offs = 0;
    }
    if (rope_has_sections(mode)) random_sections_and_planes(r, &in);
    s.pos_stride[1] = r->one_of<int64_t>({1, 1, 2, 0, -1});
    if (r->chance(2)) s.pos_stride[0] = S;
    if (keys == 0 && r->chance(5)) make_scattering(r, &in);
    in.positions_int64 = r->chance(2);
    in.has_factors = r->chance(3);
    in.forward = !r->chance(3);
    return in;
}

constexpr const char* kChipNames[] = {"Ascend910B1", "Ascend910B3", "Ascend310P3", "Ascend950PR_9589"};

// ---- properties of every call ---------------------------------------------------------------------

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
inline int64_t units_of(const CommonTiling& d) { return int64_t{d.row_parts} * d.head_parts; }

inline void check_launch(const Case& c) {
    CHECK(c, c.launch.block_dim >= 1 && c.launch.block_dim <= static_cast<uint32_t>(c.platform.cores));
    CHECK(c, c.launch.block_dim == units_of(c.common));
    CHECK(c, c.launch.tiling_key >= 1 && c.launch.tiling_key <= 3);
    CHECK(c, c.launch.workspace_bytes == 0);
    CHECK(c, c.common.copy_mode == kCopyBursts || c.platform.arch == kArch310p);
    CHECK(c, c.common.copy_mode != kCopyScalar || c.launch.block_dim == 1);
}

inline void check_ub(const Case& c) {
    const CommonTiling& d = c.common;
    int64_t item = dtype_bytes(c.in.dtype), rows = int64_t{d.tile_tokens[0]} * d.tile_heads, lanes = rows * d.row_pitch;
    int64_t out_item = dtype_bytes(c.in.out_dtype);
    bool packed = d.copy_mode == kCopyPacked, gathers = c.launch.tiling_key == kRopeSwapByGather;
    int64_t total = int64_t{4} * d.queue_bytes + d.work_bytes + d.table_bytes + d.lane_bytes + d.source_bytes +
                    d.gather_bytes + c.norm.stats_bytes + c.norm.factor_bytes + c.norm.scale_bytes +
                    c.norm.scale_raw_bytes;
    CHECK(c, total <= (c.platform.arch == kArch910b ? 184 : 248) * 1024);
    for (int64_t bytes : {d.queue_bytes, d.tail_offset_bytes, d.work_bytes, d.temp_offset_bytes, d.table_bytes,
                          d.cos_offset_bytes, d.lane_bytes, d.source_bytes, d.gather_bytes})
        CHECK(c, bytes % 32 == 0 && bytes >= 0);
    CHECK(c, d.row_pitch * item % 32 == 0 && d.row_pitch >= d.head_size && (d.row_pitch - d.head_size) * item < 32);
    CHECK(c, d.out_pitch * out_item % 32 == 0 && d.out_pitch >= d.head_size);
    CHECK(c, (d.out_pitch - d.head_size) * out_item < 32);
    CHECK(c, d.queue_bytes >= lanes * item && d.queue_bytes >= rows * d.out_pitch * out_item);
    CHECK(c, (item == 4 && out_item == 4 && !packed) || d.temp_offset_bytes >= lanes * 4);
    CHECK(c, d.work_bytes >= d.temp_offset_bytes + lanes * 4);
    int64_t table = int64_t{d.block_tokens} * d.table_width;
    CHECK(c, d.work_bytes >= 4 * 6 * d.setup_lanes);
    CHECK(c, c.given || d.work_bytes >= 4 * (3 * table + 21 * d.token_slots));
    CHECK(c, c.given || d.work_bytes >= 4 * (12 * round_up(d.n_dims / 2, 8) + 6 * d.setup_lanes));
    CHECK(c, d.cos_offset_bytes >= table * 4 && d.table_bytes >= d.cos_offset_bytes + table * 4);
    CHECK(c, c.given || d.lane_bytes == 16 * d.table_width);
    CHECK(c, c.given || d.source_bytes == d.planes * d.token_slots * (c.in.positions_int64 ? 8 : 4));
    CHECK(c, d.token_slots >= d.block_tokens && d.token_slots % 64 == 0);
    int64_t index = int64_t{d.gather_rows} * d.row_pitch * 4;
    CHECK(c, d.gather_bytes == (gathers ? index : 0) + (packed ? 2 * index + 64 : 0));
    CHECK(c, !(gathers || packed) || (d.gather_rows >= 1 && d.setup_lanes >= d.gather_rows * d.row_pitch));
    CHECK(c, d.setup_lanes >= d.table_width && d.setup_lanes % 8 == 0);
}

// The part of given tables that the kernel reads, and its layout in UB.
inline void check_given(const Case& c) {
    const CommonTiling& d = c.common;
    const RotaryTableTiling& t = c.rotary.table;
    const GivenTables& in = c.in.tables;
    bool halves = c.launch.tiling_key == kRopeHalves;
    int64_t item = dtype_bytes(in.dtype), entries = int64_t{d.block_tokens} * t.row_pitch;
    CHECK(c, t.row_entries == (in.entry_per_lane ? d.n_dims : d.n_dims / 2) && t.row_entries * 2 >= d.n_dims);
    CHECK(c, t.row_pitch >= t.row_entries && t.row_pitch * item % 32 == 0 &&
                 (t.row_pitch - t.row_entries) * item < 32 && t.row_pitch * item / 32 <= 255);
    CHECK(c, d.source_bytes == 2 * entries * item && d.work_bytes >= 4 * entries);
    CHECK(c, d.lane_bytes == (halves ? 0 : 12 * d.table_width));
    CHECK(c, t.backward == !c.in.forward && t.has_ids == in.has_ids && t.table_rows == in.rows);
    CHECK(c, t.id_words == (in.ids_int64 ? 2 : 1));
    // With one entry per lane, both halves of a row start on a 32-byte border.
    CHECK(c, !halves || !in.entry_per_lane || t.row_entries / 2 * item % 32 == 0);
    for (int k = 0; k < 2 && in.has_ids; ++k)
        CHECK(c, t.cos_stride[k] == in.cos_stride[k] && t.sin_stride[k] == in.sin_stride[k]);
}

// The UB memory of the heads' norm: the intermediate values of each row, both scales, and the scales with exchanged
// neighbours if the kernel also normalizes each head's partners.
inline void check_norm(const Case& c) {
    const HeadNormTiling& n = c.norm;
    int64_t rows = int64_t{c.common.tile_tokens[0]} * c.common.tile_heads, item = dtype_bytes(c.in.dtype);
    bool swaps = c.launch.tiling_key == kRopeSwapByShifts && !c.in.norm.intermediate_rounding;
    CHECK(c,
          n.normalizes_partners == swaps && n.intermediate_rounding == c.in.norm.intermediate_rounding && rows <= 512);
    CHECK(c, n.stats_bytes >= 48 * rows && n.stats_bytes % (48 * 64) == 0);
    CHECK(c, n.factor_bytes >= 4 * rows * swaps && n.factor_bytes % 32 == 0);
    CHECK(c, n.scale_bytes == 4 * 2 * c.common.row_pitch * (swaps ? 2 : 1));
    CHECK(c, n.scale_raw_bytes == (item == 4 ? 0 : item * 2 * c.common.row_pitch));
}

// Limits of one instruction: repeats, strides, blocks.
inline void check_instructions(const Case& c) {
    const CommonTiling& d = c.common;
    bool halves = c.launch.tiling_key == kRopeHalves;
    CHECK(c, d.block_tokens <= 248 && d.block_tokens % d.tile_tokens[0] == 0);
    CHECK(c, d.table_width % 8 == 0 && d.table_width / 8 <= 255 && d.row_pitch / 8 <= 255);
    CHECK(c, int64_t{d.tile_tokens[0]} * d.tile_heads <= 4095);
    CHECK(c, d.lane_first % 8 == 0 && d.lane_first <= d.n_offs);
    bool has_entry_per_lane = c.given && c.in.tables.entry_per_lane;
    CHECK(c, !halves || (d.n_offs % 8 == 0 && d.n_dims % 16 == 0 &&
                         d.table_width == (has_entry_per_lane ? d.n_dims : d.n_dims / 2)));
    CHECK(c, halves ||
                 (d.lane_first + d.table_width >= d.n_offs + d.n_dims && d.lane_first + d.table_width <= d.row_pitch));
    CHECK(c, c.launch.tiling_key != kRopeSwapByShifts ||
                 (c.platform.arch != kArch310p && !d.halves && dtype_bytes(c.in.dtype) == 2));
}

// An instruction can repeat over the heads or over the tokens of a tile.
inline void check_repeats(const Case& c, const Tile& tile) {
    int64_t token_step = int64_t{c.common.tokens_inner ? 1 : tile.heads} * c.common.row_pitch / 8;
    int64_t head_step = int64_t{c.common.tokens_inner ? tile.tokens : 1} * c.common.row_pitch / 8;
    CHECK(c, tile.heads == 1 || head_step <= 255 || tile.tokens == 1 || token_step <= 255);
    CHECK(c, tile.tokens <= 255);
}

// The runs of a tile are its rows in the order of UB, at the right addresses of x or out.
inline void check_runs(const Case& c, const Tile& tile, const int64_t* merged, const int64_t* stride, bool fuse) {
    const CommonTiling& d = c.common;
    RunPlan plan = PlanRuns(&d, tile, merged, d.head_size, fuse);
    int64_t item = dtype_bytes(c.in.dtype), rows = int64_t{tile.tokens} * tile.heads;
    CHECK(c, plan.outer_count * plan.inner_count * plan.run_rows == rows &&
                 plan.run_elements == plan.run_rows * d.head_size);
    CHECK(c, plan.inner_count <= 4095 && plan.run_elements * item <= 2097151);
    if (c.platform.arch == kArch310p && d.copy_mode == kCopyBursts) CHECK(c, plan.run_elements * item % 32 == 0);
    if (d.copy_mode == kCopyPacked) {
        int64_t runs = plan.outer_count * plan.inner_count;
        CHECK(c, plan.run_elements * item >= 32);
        CHECK(c, runs * round_up(plan.run_elements * item, 32) <= d.tail_offset_bytes);
        CHECK(c, d.tail_offset_bytes + runs * 32 <= d.queue_bytes);
    }
    for (int64_t row = 0; row < rows; ++row) {
        int64_t run = row / plan.run_rows;
        int64_t at = TileOffset(tile, merged) + run / plan.inner_count * plan.outer_stride +
                     run % plan.inner_count * plan.inner_stride + row % plan.run_rows * d.head_size;
        int64_t inner = d.tokens_inner ? tile.tokens : tile.heads;
        int64_t token = d.tokens_inner ? row % inner : row / inner, head = d.tokens_inner ? row / inner : row % inner;
        // The tiling may merge batches and tokens, so compute the batch and the token of x from the token's number.
        int64_t flat = tile.batch * d.seq + tile.token + token;
        int64_t S = c.in.shape.S;
        int64_t expected = flat / S * stride[0] + flat % S * stride[1] + (tile.head + head) * stride[2];
        if (at != expected) {
            CHECK(c, at == expected);
            return;
        }
    }
}

inline void check_positions(const Case& c, const Tile& tile) {
    for (int64_t token = 0; token < tile.tokens; ++token) {
        int64_t flat = tile.batch * c.common.seq + tile.token + token;
        const RopeShape& s = c.in.shape;
        int64_t expected = flat / s.S * s.pos_stride[0] + flat % s.S * s.pos_stride[1];
        int64_t block_token = tile.token - tile.table_row;  // token of the block's first position
        int64_t at = tile.batch * c.common.pos_stride[0] + block_token * c.common.pos_stride[1] +
                     (tile.table_row + token) * c.common.pos_stride[1];
        if (c.common.rows > 1) CHECK(c, at == expected);
        for (int k = 0; c.given && !c.in.tables.has_ids && k < 2; ++k) {
            const int64_t* tiled = k ? c.rotary.table.sin_stride : c.rotary.table.cos_stride;
            const int64_t* passed = k ? c.in.tables.sin_stride : c.in.tables.cos_stride;
            int64_t row = tile.batch * tiled[0] + (tile.token + token) * tiled[1];
            if (c.common.rows > 1) CHECK(c, row == flat / s.S * passed[0] + flat % s.S * passed[1]);
        }
        const bool has_ids = c.given && c.in.tables.has_ids;
        if (!c.in.scatters && !has_ids) continue;
        const int64_t *passed = has_ids ? c.in.tables.id_stride : s.row_stride,
                      *strides = has_ids ? c.rotary.table.id_stride : c.common.row_number_stride;
        int64_t index = flat / s.S * passed[0] + flat % s.S * passed[1];
        int64_t tiled = tile.batch * strides[0] + (tile.token + token) * strides[1];
        if (c.common.rows > 1) CHECK(c, tiled == index);
    }
}

// The source of a tile's rows and, unless they are scattered, their destination.
inline void check_memory(const Case& c, const Tile& tile, bool fuse) {
    const RopeSide& side = c.in.shape.side[tile.side];
    const RopeSideTiling& d = c.common.side[tile.side];
    CHECK(c, tile.side < c.in.shape.sides && tile.head + tile.heads <= side.N);
    check_runs(c, tile, d.x_stride, side.x_stride, fuse);
    if (!c.in.scatters) return check_runs(c, tile, d.out_stride, side.out_stride, fuse);
    CHECK(c,
          !c.common.tokens_inner && c.common.copy_mode != kCopyPacked && c.common.cache_rows == c.in.shape.cache_rows);
    CHECK(c, d.out_stride[1] == side.out_stride[1]);
    CHECK(c, d.out_stride[2] == side.out_stride[2] || side.N == 1);
}

// Each lane of the table rotates by one plane of positions, that of its axis. A lane outside the window has the pair of
// the nearest lane inside.
inline void check_planes(const Case& c) {
    const CommonTiling& d = c.common;
    if (!rope_has_sections(c.in.params.mode)) {
        CHECK(c, d.planes == 1 && d.plane_offset[0] == 0);
        return;
    }
    std::vector<RopePairTerms> rules = rope_pair_terms(c.in.params);
    CHECK(c, d.planes >= 1 && d.planes <= 4 && rules.size() == static_cast<size_t>(d.n_dims / 2));
    bool halves = c.launch.tiling_key == kRopeHalves;
    for (int32_t lane = 0; lane < d.table_width; ++lane) {
        int32_t inside = std::clamp(lane + d.lane_first - d.n_offs, 0, d.n_dims - 1);
        int32_t pair = halves ? lane : inside % (d.n_dims / 2);
        int planes = 0, plane = 0;
        for (int k = 0; k < 4; ++k)
            if (c.data.turns.plane_lanes[k][lane / 64] >> lane % 64 & 1) ++planes, plane = k;
        CHECK(c, planes == 1 && plane < d.planes);
        CHECK(c, d.plane_offset[plane] == c.in.shape.axis_offset[rules[static_cast<size_t>(pair)].axis]);
    }
    for (int k = 0; k < d.planes; ++k)
        for (int j = 0; j < k; ++j) CHECK(c, d.plane_offset[k] != d.plane_offset[j]);
}

// The tiles of all cores contain each row of each head once, and a tile that opens no block continues the last one.
inline void check_cover(const Case& c, int64_t cores) {
    const CommonTiling& d = c.common;
    std::vector<uint8_t> visits(static_cast<size_t>(d.rows * d.heads), 0);
    for (int64_t core = 0; core < cores; ++core) {
        Tiles tiles;
        tiles.Init(&d, core, cores);
        Tile tile, previous{};
        previous.batch = -1;
        while (tiles.Next(&tile)) {
            CHECK(c, tile.tokens >= 1 && tile.tokens <= d.tile_tokens[tile.side]);
            CHECK(c, tile.heads >= 1 && tile.heads <= d.tile_heads);
            CHECK(c, tile.tokens * tile.heads <= d.tile_tokens[0] * d.tile_heads);
            CHECK(c, d.tile_heads <= std::max(c.in.shape.side[0].N, c.in.shape.side[1].N));
            CHECK(c, tile.block_tokens <= d.block_tokens && tile.table_row + tile.tokens <= tile.block_tokens);
            CHECK(c, tile.token + tile.tokens <= d.seq);
            bool continues = tile.batch == previous.batch && tile.block_tokens == previous.block_tokens &&
                             tile.token - tile.table_row == previous.token - previous.table_row;
            CHECK(c, tile.opens_block ? tile.table_row == 0 : continues);
            previous = tile;
            check_repeats(c, tile);
            check_positions(c, tile);
            check_memory(c, tile, d.copy_mode == kCopyPacked || d.row_pitch == d.head_size);
            int64_t first = (tile.side ? d.heads_end[tile.side - 1] : 0) + tile.head;
            for (int64_t t = 0; t < tile.tokens; ++t)
                for (int64_t h = 0; h < tile.heads; ++h)
                    ++visits[static_cast<size_t>((tile.batch * d.seq + tile.token + t) * d.heads + first + h)];
        }
    }
    bool once = true;
    for (uint8_t times : visits) once &= times == 1;
    CHECK(c, once);
}

inline void check_balance(const Case& c) {
    const CommonTiling& d = c.common;
    int64_t min_rows = INT64_MAX, max_rows = 0, min_heads = INT64_MAX, max_heads = 0, rows = 0, heads = 0;
    for (int64_t part = 0; part < d.row_parts; ++part) {
        Share share = ShareOf(d.rows, d.row_granule, d.row_parts, part);
        CHECK(c, share.first == rows && share.count >= 1);
        rows += share.count;
        min_rows = std::min(min_rows, share.count);
        max_rows = std::max(max_rows, share.count);
    }
    for (int64_t part = 0; part < d.head_parts; ++part) {
        Share share = ShareOf(d.heads, 1, d.head_parts, part);
        CHECK(c, share.first == heads && share.count >= 1);
        heads += share.count;
        min_heads = std::min(min_heads, share.count);
        max_heads = std::max(max_heads, share.count);
    }
    CHECK(c, rows == d.rows && heads == d.heads);
    CHECK(c, max_heads - min_heads <= 1);
    // The last part may also lack rows of an incomplete last granule.
    CHECK(c, max_rows - min_rows <= std::max<int64_t>(1, 2 * d.row_granule - 1));
    CHECK(c, d.head_parts == 1 || min_heads >= 4);
}

// Draws a call for this chip with at most this number of heads of tokens, tiles it and checks its tiling.
inline Case check_random_call(Choices* random, const char* chip, int64_t most_heads = 60000) {
    RopeTilingInput in = random_call(random, find_platform(chip)->arch);
    RopeShape& s = in.shape;
    if (s.B * s.S * s.heads() > most_heads) s.S = std::max<int64_t>(1, most_heads / (s.B * s.heads()));
    const int64_t* x = s.side[0].x_stride;
    if (!in.scatters && x[1] == s.side[0].N * s.D && x[2] == s.D) make_contiguous(&s);
    bool given = !in.scatters && random->chance(3);
    if (given) add_given_tables(random, &in);
    bool normed = !given && !in.scatters && s.sides == 2 && random->chance(2);
    in.norm.epsilon = 1e-6;
    in.norm.intermediate_rounding = random->chance(2);
    Case c = tile_call(in, chip, given, normed);
    check_launch(c);
    check_ub(c);
    check_instructions(c);
    if (normed) check_norm(c);
    if (given)
        check_given(c);
    else
        check_planes(c);
    check_balance(c);
    check_cover(c, c.launch.block_dim);
    return c;
}

}  // namespace rope_tilings
