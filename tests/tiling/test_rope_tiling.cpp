// The tilings of the rotation kernels (op_host/rope_tiling.h), for random calls. The test iterates over a call's tiles
// as the kernels do (op_kernel/memory/tiles.h).
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_frequency.h"
#include "op_host/rope_tiling.h"
#include "op_kernel/memory/tiles.h"
#include "tests/tiling/failures.h"

using namespace npu_rope;
using memory::PlanRuns;
using memory::RunPlan;
using memory::Share;
using memory::ShareOf;
using memory::Tile;
using memory::TileOffset;
using memory::Tiles;

namespace {

const char* g_test = "";

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

void describe(const Case& c) {
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

void make_contiguous(RopeShape* s) {
    for (int k = 0; k < s->sides; ++k)
        for (int64_t* stride : {s->side[k].x_stride, s->side[k].out_stride}) {
            stride[2] = s->D;
            stride[1] = s->side[k].N * s->D;
            stride[0] = s->S * s->side[k].N * s->D;
        }
    s->pos_stride[0] = 0;
    s->pos_stride[1] = 1;
}

void set_mode(RopeTilingInput* in, int32_t mode) {
    RopeShape& s = in->shape;
    in->params.mode = mode;
    in->params.n_dims = static_cast<int32_t>(mode == NPU_ROPE_MODE_VISION ? s.D / 2 : s.D / 2 * 2);
    if (!rope_has_sections(mode)) return;
    const int32_t sections[4] = {2, 1, 1, 0};
    std::copy(sections, sections + 4, in->params.sections);
    for (int axis = 0; axis < 4; ++axis) s.axis_offset[axis] = axis * s.S;
}

RopeTilingInput make_call(int64_t B, int64_t S, int64_t N, int64_t D, int32_t dtype, int32_t mode, int64_t keys = 0) {
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

Check normed_tiling(Case* c) {
    RmsNormRopeTilingData data;
    Check check = rms_norm_rope_tiling(c->in, c->platform, &data, &c->launch);
    c->data = RopeTilingData{data.common, data.turns};
    c->norm = data.norm;
    return check;
}

Case tile_call(const RopeTilingInput& in, const char* chip, bool given = false, bool normed = false) {
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

class Random {
public:
    int64_t up_to(int64_t max) { return std::uniform_int_distribution<int64_t>(0, max)(engine_); }
    bool chance(int one_in) { return up_to(one_in - 1) == 0; }
    template <typename T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[up_to(static_cast<int64_t>(all.size()) - 1)];
    }

private:
    std::mt19937_64 engine_{20261120};
};

// Strides of a permutation of (B, S, N), some with gaps or negative; if may_repeat, some are 0.
void random_strides(Random* r, const RopeShape& s, int64_t heads, int64_t* stride, bool may_repeat) {
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
void random_sections(Random* r, RopeTilingInput* in) {
    RopeShape& s = in->shape;
    int32_t* sections = in->params.sections;
    for (int axis = 0; axis < 4; ++axis)
        sections[axis] = r->chance(4) ? 0 : static_cast<int32_t>(r->up_to(std::min<int64_t>(s.D / 4, 40)));
    if (sections[0] + sections[1] + sections[2] == 0) sections[r->up_to(2)] = 1;
    // Four or three planes, in any order of memory.
    int64_t step = r->one_of<int64_t>({s.S, s.B * s.S, -s.S, 1000});
    bool three = r->chance(3);
    for (int axis = 0; axis < 4; ++axis) s.axis_offset[axis] = three && axis == 3 ? 0 : axis * step;
}

// Lets the call write into rows of a cache, of x's type or a narrower one.
void make_scattering(Random* r, RopeTilingInput* in) {
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
void add_given_tables(Random* r, RopeTilingInput* in) {
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

RopeTilingInput random_call(Random* r, int32_t arch) {
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
    if (rope_has_sections(mode)) random_sections(r, &in);
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

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
int64_t units_of(const CommonTiling& d) { return int64_t{d.row_parts} * d.head_parts; }

void check_launch(const Case& c) {
    CHECK(c, c.launch.block_dim >= 1 && c.launch.block_dim <= static_cast<uint32_t>(c.platform.cores));
    CHECK(c, c.launch.block_dim == units_of(c.common));
    CHECK(c, c.launch.tiling_key >= 1 && c.launch.tiling_key <= 3);
    CHECK(c, c.launch.workspace_bytes == 0);
    CHECK(c, c.common.copy_mode == kCopyBursts || c.platform.arch == kArch310p);
    CHECK(c, c.common.copy_mode != kCopyScalar || c.launch.block_dim == 1);
}

void check_ub(const Case& c) {
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
void check_given(const Case& c) {
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
void check_norm(const Case& c) {
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
void check_instructions(const Case& c) {
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
void check_repeats(const Case& c, const Tile& tile) {
    int64_t token_step = int64_t{c.common.tokens_inner ? 1 : tile.heads} * c.common.row_pitch / 8;
    int64_t head_step = int64_t{c.common.tokens_inner ? tile.tokens : 1} * c.common.row_pitch / 8;
    CHECK(c, tile.heads == 1 || head_step <= 255 || tile.tokens == 1 || token_step <= 255);
    CHECK(c, tile.tokens <= 255);
}

// The runs of a tile are its rows in the order of UB, at the right addresses of x or out.
void check_runs(const Case& c, const Tile& tile, const int64_t* merged, const int64_t* stride, bool fuse) {
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

void check_positions(const Case& c, const Tile& tile) {
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
void check_memory(const Case& c, const Tile& tile, bool fuse) {
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

// Each lane of the table rotates by one plane of positions, that of its axis.
void check_planes(const Case& c) {
    const CommonTiling& d = c.common;
    if (!rope_has_sections(c.in.params.mode)) {
        CHECK(c, d.planes == 1 && d.plane_offset[0] == 0);
        return;
    }
    std::vector<RopePairTerms> rules = rope_pair_terms(c.in.params);
    CHECK(c, d.planes >= 1 && d.planes <= 4 && rules.size() == static_cast<size_t>(d.n_dims / 2));
    bool halves = c.launch.tiling_key == kRopeHalves;
    for (int32_t lane = 0; lane < d.table_width; ++lane) {
        int32_t inside = lane + d.lane_first - d.n_offs;
        int32_t pair = halves ? lane : inside % (d.n_dims / 2);
        int planes = 0, plane = 0;
        for (int k = 0; k < 4; ++k)
            if (c.data.turns.plane_lanes[k][lane / 64] >> lane % 64 & 1) ++planes, plane = k;
        CHECK(c, planes == 1 && plane < d.planes);
        if (!halves && (inside < 0 || inside >= d.n_dims)) continue;
        CHECK(c, d.plane_offset[plane] == c.in.shape.axis_offset[rules[static_cast<size_t>(pair)].axis]);
    }
    for (int k = 0; k < d.planes; ++k)
        for (int j = 0; j < k; ++j) CHECK(c, d.plane_offset[k] != d.plane_offset[j]);
}

// The tiles of all cores contain each row of each head once, and a tile that opens no block continues the last one.
void check_cover(const Case& c, int64_t cores) {
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

void check_balance(const Case& c) {
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

// ---- tests ------------------------------------------------------------------------------------

void random_calls_have_sound_tilings() {
    Random random;
    for (int k = 0; k < 6000; ++k) {
        const char* chip = kChipNames[k % 4];
        RopeTilingInput in = random_call(&random, find_platform(chip)->arch);
        RopeShape& s = in.shape;
        if (s.B * s.S * s.heads() > 60000) s.S = std::max<int64_t>(1, 60000 / (s.B * s.heads()));
        const int64_t* x = s.side[0].x_stride;
        if (!in.scatters && x[1] == s.side[0].N * s.D && x[2] == s.D) make_contiguous(&s);
        bool given = !in.scatters && random.chance(3);
        if (given) add_given_tables(&random, &in);
        bool normed = !given && !in.scatters && s.sides == 2 && random.chance(2);
        in.norm.epsilon = 1e-6;
        in.norm.intermediate_rounding = random.chance(2);
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
        if (k % 16 == 0) check_cover(c, 3);
    }
}

void prefill_uses_every_core_and_long_bursts() {
    for (int32_t mode : {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX})
        for (int64_t heads : {8, 32, 40, 64}) {
            Case c = tile_call(make_call(1, 4096, heads, 128, NPU_ROPE_BFLOAT16, mode), "Ascend910B1");
            int64_t burst = int64_t{c.common.tile_tokens[0]} * c.common.tile_heads * 128 * 2;
            CHECK(c, c.launch.block_dim == 48 && c.common.head_parts == 1);
            CHECK(c, burst >= (heads >= 32 ? 16 : 12) * 1024 || heads == 40);  // 40 heads: a row of 10 KiB
            CHECK(c, burst >= 10 * 1024);
            CHECK(c, c.common.block_tokens >= 8);
        }
}

void decode_splits_heads_into_parts_of_at_least_four() {
    Case one = tile_call(make_call(1, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(one, one.launch.block_dim == 8 && one.common.head_parts == 8);
    Case four_tokens = tile_call(make_call(4, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(four_tokens, four_tokens.launch.block_dim >= 24);
    Case four_heads = tile_call(make_call(1, 1, 4, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(four_heads, four_heads.launch.block_dim == 1);
    // A batch of single tokens is split like one sequence.
    Case batch = tile_call(make_call(256, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    CHECK(batch, batch.common.seq == 256 && batch.launch.block_dim == 48);
}

void check_large(const Case& c) {
    check_launch(c);
    check_ub(c);
    check_instructions(c);
    check_balance(c);
    // Check the addresses of the first 40 tiles of each unit.
    for (int64_t unit = 0; unit < units_of(c.common); ++unit) {
        Tiles tiles;
        tiles.Init(&c.common, unit, units_of(c.common));
        Tile tile;
        for (int k = 0; k < 40 && tiles.Next(&tile); ++k) check_memory(c, tile, true);
    }
}

void sizes_beyond_2_to_31_keep_their_offsets() {
    for (const char* chip : {"Ascend910B1", "Ascend310P3"})
        for (int32_t mode : {NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_IMROPE}) {
            Case contiguous = tile_call(make_call(1, 1048576, 512, 1024, NPU_ROPE_FLOAT16, mode), chip);
            check_large(contiguous);
            RopeTilingInput in = contiguous.in;
            in.shape.side[0].x_stride[1] = in.shape.D;
            in.shape.side[0].x_stride[2] = in.shape.S * in.shape.D;
            check_large(tile_call(in, chip));  // transposed
        }
    check_large(tile_call(make_call(1, 1048576, 64, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_MROPE, 8), "Ascend910B1"));
    Case tokens = tile_call(make_call(1, 1048576, 1, 64, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend910B1");
    check_cover(tokens, tokens.launch.block_dim);
}

void one_row_is_one_tile() {
    for (const char* chip : kChipNames)
        for (int64_t D : {2, 3, 16, 100, 1024}) {
            Case c = tile_call(make_call(1, 1, 1, D, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NORMAL), chip);
            Tiles tiles;
            tiles.Init(&c.common, 0, 1);
            Tile tile;
            CHECK(c, tiles.Next(&tile) && tile.tokens == 1 && tile.heads == 1 && !tiles.Next(&tile));
            check_ub(c);
        }
}

void unaligned_rows_of_310p_are_packed_and_split_at_32_bytes() {
    Case c = tile_call(make_call(1, 5000, 3, 100, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(c, c.common.copy_mode == kCopyPacked && c.launch.block_dim == 8);
    for (int64_t part = 1; part < c.common.row_parts; ++part)
        CHECK(c, ShareOf(c.common.rows, c.common.row_granule, c.common.row_parts, part).first * 3 * 100 * 2 % 32 == 0);
    Case tiny = tile_call(make_call(1, 7, 1, 10, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(tiny, tiny.common.copy_mode == kCopyScalar);
    Case small_tokens = tile_call(make_call(1, 7, 4, 10, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX), "Ascend310P3");
    CHECK(small_tokens, small_tokens.common.copy_mode == kCopyPacked && small_tokens.common.tile_heads == 4);
}

void axes_with_the_same_positions_are_one_plane() {
    RopeTilingInput in = make_call(1, 5, 2, 64, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_MROPE);  // sections 2, 1, 1, 0
    Case three = tile_call(in, "Ascend910B1");
    CHECK(three, three.common.planes == 3 && three.data.turns.plane_lanes[0][0] == 0x33333333);
    CHECK(three, three.data.turns.plane_lanes[1][0] == 0x44444444 && three.data.turns.plane_lanes[2][0] == 0x88888888);
    in.params.sections[3] = 4;
    in.shape.axis_offset[3] = 0;  // the positions of time
    Case same = tile_call(in, "Ascend910B1");
    CHECK(same, same.common.planes == 3 && same.data.turns.plane_lanes[0][0] == 0xf3f3f3f3);
    in.params.sections[1] = in.params.sections[2] = 0;
    Case one = tile_call(in, "Ascend910B1");
    CHECK(one, one.common.planes == 1 && one.data.turns.plane_lanes[0][0] == 0xffffffff);
}

void two_tensors_share_a_cores_table() {
    Case decode = tile_call(make_call(1, 1, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX, 8), "Ascend910B1");
    CHECK(decode, decode.common.heads == 40 && decode.common.heads_end[0] == 32 && decode.common.head_parts >= 8);
    Case prefill = tile_call(make_call(1, 4096, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NEOX, 8), "Ascend910B1");
    CHECK(prefill, prefill.launch.block_dim == 48 && prefill.common.head_parts == 1 && prefill.common.tile_heads == 32);
    // A tile has the heads of one side: 64 heads are 16 KiB, also if they are normalized in mode normal.
    RopeTilingInput normal = make_call(1, 4096, 32, 128, NPU_ROPE_BFLOAT16, NPU_ROPE_MODE_NORMAL, 8);
    for (bool rounds : {false, true}) {
        normal.norm.intermediate_rounding = rounds;
        Case normed = tile_call(normal, "Ascend910B1", false, true);
        CHECK(normed, normed.launch.tiling_key == kRopeSwapByShifts);
        CHECK(normed,
              normed.common.tile_tokens[0] == 2 && normed.common.tile_heads == 32 && normed.common.tile_tokens[1] >= 6);
    }
}

void turns_are_the_frequencies_over_2_pi() {
    RopeTilingInput in = make_call(1, 4, 2, 128, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    in.params.freq_base = 500000.0;
    in.params.ext_factor = 1.0;
    in.params.freq_scale = 0.25;
    in.params.n_ctx_orig = 8192;
    Case c = tile_call(in, "Ascend910B1");
    in.forward = false;
    Case back = tile_call(in, "Ascend910B1");
    in.forward = true;
    in.has_factors = true;
    Case whole = tile_call(in, "Ascend910B1");
    std::vector<Quad> frequencies = rope_frequencies(in.params, nullptr, 0);
    constexpr size_t pairs = 64;
    auto sum = [](const Case& of, size_t k, size_t i) {
        return static_cast<long double>(of.data.turns.vectors[k * pairs + i]) +
               of.data.turns.vectors[(k + 1) * pairs + i];
    };
    for (size_t i = 0; i < pairs; ++i) {
        const auto turns = static_cast<long double>(frequencies[i] / kTwoPi), high = 2048 * turns;
        CHECK(whole, fabsl(sum(whole, 0, i) - turns) <= fabsl(turns) * 0x1p-47L);
        // A lower part is at most 2^-14, and rounds once or twice.
        CHECK(c, fabsl(sum(c, 0, i) - turns) <= 0x1p-38L);
        CHECK(c, fabsl(sum(c, 2, i) - (high - rintl(high))) <= 0x1p-37L);
        for (size_t k = 0; k < kTurnParts; ++k) {
            const float part = c.data.turns.vectors[k * pairs + i];
            CHECK(c, back.data.turns.vectors[k * pairs + i] == -part);
            CHECK(c, k % 2 == 1 ? std::fabs(part) <= 0x1p-13f : part * 8192 == std::rint(part * 8192));
        }
    }
    CHECK(c, c.data.turns.vectors[kTurnParts * pairs] == 0 && whole.data.turns.vectors[2 * pairs] == 0);
    CHECK(c, std::fabs(c.common.mscale - (1 + 0.1 * std::log(4.0))) < 1e-6);

    // The parts of more than 256 pairs do not fit: the kernel splits the turns.
    in = make_call(1, 4, 2, 520, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    Case wide = tile_call(in, "Ascend910B1");
    frequencies = rope_frequencies(in.params, nullptr, 0);
    for (size_t i = 0; i < 260; ++i) {
        const float *hi = wide.data.turns.vectors, *lo = hi + 264;
        const long double turns = frequencies[i] / kTwoPi;
        CHECK(wide, fabsl(static_cast<long double>(hi[i]) + lo[i] - turns) <= fabsl(turns) * 0x1p-47L);
    }
}

void integer_turns_are_removed_unless_factors_divide_them() {
    RopeTilingInput in = make_call(1, 4, 2, 4, NPU_ROPE_FLOAT16, NPU_ROPE_MODE_NEOX);
    in.params.freq_scale = 100.0;
    Case c = tile_call(in, "Ascend910B1");
    CHECK(c, std::fabs(c.data.turns.vectors[0]) <= 0.5f);
    in.has_factors = true;
    Case factors = tile_call(in, "Ascend910B1");
    CHECK(factors,
          std::fabs(factors.data.turns.vectors[0] - 100 / 6.2831853f) < 1e-5f && factors.common.has_factors == 1);
}

void expect_error(const RopeTilingInput& in, const char* chip, const char* message) {
    Case c;
    c.in = in;
    c.platform = *find_platform(chip);
    Check check = rope_tiling(in, c.platform, &c.data, &c.launch);
    CHECK(c, check.message() == message);
}

void calls_that_an_npu_does_not_support_are_refused() {
    expect_error(make_call(1, 4, 2, 64, NPU_ROPE_BFLOAT16, 0), "Ascend310P3",
                 "[rope] x must be float32 or float16 on Ascend310P3 but got bfloat16.");
    expect_error(make_call(1, 4, 2, 64, NPU_ROPE_FLOAT64, 0), "Ascend910B1",
                 "[rope] x must be float32, float16 or bfloat16 on Ascend910B1 but got float64.");
    expect_error(make_call(1, 4, 2, 2048, NPU_ROPE_FLOAT16, 0), "Ascend910B1",
                 "[rope] x must have a head size of at most 1024 on an NPU but got 2048.");
    RopeTilingInput fast = make_call(1, 4, 2, 64, NPU_ROPE_FLOAT16, 0);
    fast.params.freq_scale = 1e10;
    expect_error(fast, "Ascend910B1",
                 "[rope] frequencies must be at most 1e+09 radians per position but got 1e+10 for pair 0.");
}

struct Test {
    const char* name;
    void (*run)();
};
#define TEST(function) {#function, function}

constexpr Test kTests[] = {
    TEST(random_calls_have_sound_tilings),
    TEST(prefill_uses_every_core_and_long_bursts),
    TEST(decode_splits_heads_into_parts_of_at_least_four),
    TEST(sizes_beyond_2_to_31_keep_their_offsets),
    TEST(one_row_is_one_tile),
    TEST(unaligned_rows_of_310p_are_packed_and_split_at_32_bytes),
    TEST(axes_with_the_same_positions_are_one_plane),
    TEST(two_tensors_share_a_cores_table),
    TEST(turns_are_the_frequencies_over_2_pi),
    TEST(integer_turns_are_removed_unless_factors_divide_them),
    TEST(calls_that_an_npu_does_not_support_are_refused),
};

}  // namespace

int main() {
    for (const Test& test : kTests) {
        g_test = test.name;
        test.run();
    }
    std::printf("%zu tests, %d failure(s)\n", sizeof kTests / sizeof *kTests, g_failures);
    return g_failures == 0 ? 0 : 1;
}
