// Calls of the tiling of qkv_norm_rope_cache (op_host/qkv_norm_rope_cache_tiling.h), and the properties that each
// tiling must have. The checks iterate over a call's tiles as the kernel does (op_kernel/memory/tiles.h). rope's checks
// judge the rotation.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "op_host/qkv_norm_rope_cache_tiling.h"
#include "op_host/rope_tile.h"
#include "tests/tiling/rope_tiling_calls.h"

namespace qkv_tilings {

using namespace npu_rope;
using memory::Tile;
using memory::Tiles;
using rope_tilings::round_up;

constexpr int kV = 2;  // the side of values
constexpr int kSides = kRopeMaxSides;

// A call and its tiling. Its tensors have no memory.
struct Case {
    std::deque<npu_rope_tensor> tensors;
    QkvTensors call{{}, {}, Known::kLayout};
    npu_rope_params params = {};
    QkvAttributes attributes = {1e-6, 0.0, 1, NPU_ROPE_ANGLE_EXACT};
    Platform platform{};
    QkvShape shape;  // as the check finds it
    TilingResult<QkvNormRopeCacheTilingData> tiled;
    std::string refusal;

    Case() = default;
    Case(Case&&) = default;  // `call` points to `tensors`
    const QkvTiling& qkv() const { return tiled.data.qkv; }
    const CommonTiling& common() const { return tiled.data.common; }
    bool has_tables() const { return call.in.cos != nullptr; }
    bool scatters() const { return call.in.slots != nullptr; }
    bool normalizes(int k) const { return shape.side[k].norm != QkvNorm::kNone && shape.side[k].N > 0; }
    int32_t key() const { return static_cast<int32_t>(tiled.launch.tiling_key) - (has_tables() ? kQkvGivenTables : 0); }
    int64_t pitch(int k) const { return k == kV ? qkv().value_head.pitch : common().row_pitch; }
};

inline void describe(const Case& c) {
    const CommonTiling& h = c.common();
    std::fprintf(stderr, "  %s S %" PRId64 " %s", c.platform.soc, c.shape.rope.S, dtype_name(c.call.in.q->dtype));
    for (int k = 0; k < kSides; ++k) {
        const QkvSide& s = c.shape.side[k];
        std::fprintf(stderr, ", %c [%" PRId64 ",%" PRId64 "] norm %d out type %d", "qkv"[k], s.N, s.D,
                     static_cast<int>(s.norm), c.qkv().side[k].out_type);
    }
    std::fprintf(stderr,
                 "\n  mode %d n_dims %d n_offs %d tables %d slots %d sums %d ranks %" PRId64
                 "\n  key %d copy mode %d parts"
                 " %d x %d block %d tile %d, %d, %d x %d buffers %d queue %d out %d work %d factors %d\n  %s\n",
                 c.params.mode, c.params.n_dims, c.params.n_offs, c.has_tables(), c.scatters(),
                 c.call.in.square_sums != nullptr, c.attributes.ranks, c.key(), h.copy_mode, h.row_parts, h.head_parts,
                 h.block_tokens, h.tile_tokens[0], h.tile_tokens[1], h.tile_tokens[2], h.tile_heads, c.qkv().buffers,
                 h.queue_bytes, c.qkv().out_queue_bytes, h.work_bytes, c.qkv().factor_bytes, c.refusal.c_str());
}

// ---- making calls -----------------------------------------------------------------------------

// Adds a contiguous tensor.
inline npu_rope_tensor* add_tensor(Case* c, int32_t dtype, std::initializer_list<int64_t> shape) {
    npu_rope_tensor t{nullptr, dtype, static_cast<int32_t>(shape.size()), {}, {}};
    std::copy(shape.begin(), shape.end(), t.shape);
    int64_t next = 1;
    for (int k = t.ndim - 1; k >= 0; --k) {
        t.stride[k] = next;
        next *= t.shape[k];
    }
    return &c->tensors.emplace_back(t);
}

// Adds queries, keys or values [S,N,D], contiguous or with gaps. token_elements: the distance of tokens in the output
// of a projection that computes all sides; 0: each side has its own.
inline npu_rope_tensor* add_heads(Choices* r, Case* c, int32_t dtype, int64_t S, int64_t N, int64_t D,
                                  int64_t token_elements = 0) {
    npu_rope_tensor* t = add_tensor(c, dtype, {S, N, D});
    t->stride[1] = D + (r->chance(4) ? r->up_to(40) : 0);
    t->stride[0] = std::max(N * t->stride[1], token_elements) + (r->chance(4) ? r->up_to(100) : 0);
    return t;
}

inline npu_rope_tensor* add_cache(Choices* r, Case* c, int32_t dtype, int64_t N, int64_t D) {
    const bool is_paged = r->chance(2);
    const int64_t rows = 1 + r->up_to(200), block_size = r->one_of<int64_t>({16, 128, 1, 7});
    npu_rope_tensor* t = is_paged ? add_tensor(c, dtype, {rows, block_size, N, D}) : add_tensor(c, dtype, {rows, N, D});
    if (is_paged && r->chance(2)) {  // the heads of a block one after another
        t->stride[2] = block_size * D;
        t->stride[1] = D;
    } else if (!is_paged && r->chance(3)) {
        t->stride[0] += r->up_to(100);
    }
    return t;
}

// Adds a scale, and perhaps a bias, of each head or of all heads.
inline void add_norm(Choices* r, Case* c, int side, int32_t dtype, bool has_sums) {
    const npu_rope_tensor& x = side == 0 ? *c->call.in.q : *c->call.in.k;
    const int64_t all = x.shape[1] * x.shape[2], size = has_sums || r->chance(3) ? all : x.shape[2];
    const npu_rope_tensor* scale = add_tensor(c, dtype, {size});
    const npu_rope_tensor* bias = r->chance(3) ? add_tensor(c, dtype, {size}) : nullptr;
    (side == 0 ? c->call.in.q_scale : c->call.in.k_scale) = scale;
    (side == 0 ? c->call.in.q_bias : c->call.in.k_bias) = bias;
}

inline void add_quantization(Choices* r, Case* c, int side, int64_t N, int64_t D) {
    auto add = [&](int kind) {
        return kind == 0   ? add_tensor(c, NPU_ROPE_FLOAT32, {1})
               : kind == 1 ? add_tensor(c, NPU_ROPE_FLOAT32, {N})
                           : add_tensor(c, NPU_ROPE_FLOAT32, {N, D});
    };
    const int kind = static_cast<int>(r->up_to(2));
    const npu_rope_tensor *scale = add(kind), *offset = r->chance(2) ? add(kind) : nullptr;
    (side == 1 ? c->call.in.k_quant_scale : c->call.in.v_quant_scale) = scale;
    (side == 1 ? c->call.in.k_quant_offset : c->call.in.v_quant_offset) = offset;
}

inline void set_window(Choices* r, Case* c, int64_t D) {
    npu_rope_params& p = c->params;
    p.freq_base = 10000.0;
    p.freq_scale = p.attn_factor = 1.0;
    p.beta_fast = 32.0;
    p.beta_slow = 1.0;
    p.mode = r->one_of<int32_t>({NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_NEOX, NPU_ROPE_MODE_NORMAL, NPU_ROPE_MODE_MROPE,
                                 NPU_ROPE_MODE_IMROPE, NPU_ROPE_MODE_VISION});
    if (p.mode == NPU_ROPE_MODE_VISION && D % 4 != 0) p.mode = NPU_ROPE_MODE_NEOX;
    p.n_dims = static_cast<int32_t>(p.mode == NPU_ROPE_MODE_VISION ? D / 2 : D / 2 * 2);
    if (p.mode != NPU_ROPE_MODE_VISION && r->chance(3)) {
        p.n_dims = static_cast<int32_t>(2 * (1 + r->up_to(D / 2 - 1)));
        p.n_offs = r->chance(2) ? 0 : static_cast<int32_t>(r->up_to((D - p.n_dims) / 2) * 2);
    }
    if (rope_has_sections(p.mode)) rope_tilings::random_sections(r, D, p.sections);
}

inline void add_positions(Choices* r, Case* c, int64_t S, int32_t parameter_type) {
    const bool has_sections = rope_has_sections(c->params.mode);
    const int64_t pairs = rope_pairs(c->params);
    if (r->chance(3)) {
        const bool has_ids = has_sections || r->chance(2);
        const int64_t width = r->chance(2) ? 2 * pairs : pairs;
        const int64_t rows = has_ids ? 1 + r->up_to(300) : S + r->up_to(50);
        npu_rope_tensor* tables[] = {add_tensor(c, parameter_type, {rows, width}),
                                     add_tensor(c, parameter_type, {rows, width})};
        if (r->chance(3)) tables[0]->stride[0] = tables[1]->stride[0] = 2 * width;  // parts of one tensor
        c->call.in.cos = tables[0];
        c->call.in.sin = tables[1];
        if (!has_ids) return;
    } else if (r->chance(4)) {
        c->call.in.freq_factors = add_tensor(c, NPU_ROPE_FLOAT32, {pairs});
    }
    const int32_t type = r->one_of<int32_t>({NPU_ROPE_INT32, NPU_ROPE_INT64});
    const int64_t step = r->one_of<int64_t>({1, 1, 2});
    npu_rope_tensor* positions =
        has_sections ? add_tensor(c, type, {r->chance(3) ? 3 : 4, S}) : add_tensor(c, type, {S});
    positions->stride[positions->ndim - 1] = step;
    if (has_sections) positions->stride[0] = step * S;
    c->call.in.positions = positions;
}

inline void add_outputs(Choices* r, Case* c, bool is_310p) {
    npu_rope_qkv_inputs& in = c->call.in;
    const npu_rope_tensor* x[kSides] = {in.q, in.k, in.v};
    const npu_rope_tensor** out[kSides] = {&c->call.out.q_out, &c->call.out.k_out, &c->call.out.v_out};
    const int64_t S = in.q->shape[0];
    if (r->chance(2)) {
        npu_rope_tensor* slots = add_tensor(c, r->one_of<int32_t>({NPU_ROPE_INT32, NPU_ROPE_INT64}), {S});
        slots->stride[0] = r->one_of<int64_t>({1, 1, 2});
        in.slots = slots;
    }
    for (int k = 0; k < kSides; ++k) {
        if (!x[k]) continue;
        const int64_t N = x[k]->shape[1], D = x[k]->shape[2];
        if (k == 0 || !in.slots) {
            *out[k] = r->chance(2) ? x[k] : add_heads(r, c, x[k]->dtype, S, N, D);
            continue;
        }
        int32_t type = r->one_of<int32_t>({x[k]->dtype, x[k]->dtype, NPU_ROPE_FLOAT32, NPU_ROPE_FLOAT16,
                                           NPU_ROPE_BFLOAT16, NPU_ROPE_INT8, NPU_ROPE_INT8});
        if (is_310p && type == NPU_ROPE_BFLOAT16) type = NPU_ROPE_FLOAT16;
        *out[k] = add_cache(r, c, type, N, D);
        if (type == NPU_ROPE_INT8) add_quantization(r, c, k, N, D);
    }
}

inline Case random_call(Choices* r, bool is_310p, int64_t most_heads) {
    Case c;
    npu_rope_qkv_inputs& in = c.call.in;
    const int64_t D = r->chance(2) ? r->one_of<int64_t>({128, 64, 80, 96, 192, 256, 576, 1024})
                                   : 2 + r->up_to(r->chance(4) ? 1022 : 70);
    int64_t S = r->one_of<int64_t>({1, 2, 3, 15, 16, 17, 48, 100, 301});
    int64_t N[kSides] = {r->one_of<int64_t>({32, 1, 2, 8, 12, 40, 0, 128, 600}),
                         r->one_of<int64_t>({8, 1, 2, 3, 0, 32, 128}), r->one_of<int64_t>({8, 1, 2, 0, 32})};
    if (r->chance(20)) S = 5000, N[0] = std::min<int64_t>(N[0], 8);
    if (N[0] + N[1] + N[2] == 0) N[0] = 1;
    S = std::max<int64_t>(1, std::min(S, most_heads / (N[0] + N[1] + N[2])));
    int32_t dtype = r->one_of<int32_t>({NPU_ROPE_BFLOAT16, NPU_ROPE_FLOAT16, NPU_ROPE_FLOAT32});
    if (is_310p && dtype == NPU_ROPE_BFLOAT16) dtype = NPU_ROPE_FLOAT16;
    const int32_t parameter_type = r->chance(2) ? NPU_ROPE_FLOAT32 : dtype;
    const int64_t value_size = r->chance(3) ? 1 + r->up_to(r->chance(4) ? 1023 : 200) : D;
    const int64_t token_elements = r->chance(2) ? (N[0] + N[1]) * D + N[2] * value_size : 0;
    in.q = add_heads(r, &c, dtype, S, N[0], D, token_elements);
    in.k = add_heads(r, &c, dtype, S, N[1], D, token_elements);
    if (!r->chance(5)) in.v = add_heads(r, &c, dtype, S, N[2], value_size, token_elements);
    set_window(r, &c, D);
    const bool has_sums = r->chance(5);
    if (has_sums) {
        in.square_sums = add_tensor(&c, NPU_ROPE_FLOAT32, {S, 2});
        c.attributes.ranks = 1 + r->up_to(7);
    }
    for (int side = 0; side < 2; ++side)
        if ((has_sums && N[side] > 0) || r->chance(2)) add_norm(r, &c, side, parameter_type, has_sums);
    if (r->chance(4)) c.attributes.scale_offset = 1.0;
    add_positions(r, &c, S, parameter_type);
    add_outputs(r, &c, is_310p);
    return c;
}

// ---- properties of every tiling -----------------------------------------------------------------------

// Only a norm over the heads of a token may be refused: one of very many heads, or one whose smallest tile takes more
// than half of UB, with its two input buffers, two output buffers, float32 rows and temporaries.
inline void check_refusal(const Case& c) {
    CHECK(c, c.refusal.find("_scale must cover ") != std::string::npos && !c.call.in.square_sums);
    const int64_t item = dtype_bytes(c.call.in.q->dtype);
    int64_t heads = 0, size = 0, out_item = item;
    for (int k = 0; k < kSides; ++k) {
        const QkvSide& s = c.shape.side[k];
        if (s.N == 0) continue;
        if (s.norm == QkvNorm::kAllHeads) heads = std::max(heads, s.N);
        size = std::max(size, s.D);
        if (c.scatters() && k > 0) out_item = std::max<int64_t>(out_item, dtype_bytes(s.out_dtype));
    }
    const int64_t bytes = heads * round_up(size, 32 / item) * (2 * item + 2 * out_item + (item == 4 ? 4 : 8));
    CHECK(c, heads > kMaxNormRows || bytes > ub_budget_bytes(c.platform) / 2);
}

inline void check_launch(const Case& c) {
    const KernelLaunch& launch = c.tiled.launch;
    CHECK(c, launch.block_dim >= 1 && launch.block_dim <= static_cast<uint32_t>(c.platform.cores));
    CHECK(c, launch.block_dim == rope_tilings::units_of(c.common()));
    CHECK(c, c.key() >= 1 && c.key() <= 3 && launch.workspace_bytes == 0 && !launch.cores_wait);
    CHECK(c, c.common().copy_mode == kCopyBursts || (c.platform.arch == kArch310p && launch.block_dim == 1));
    CHECK(c, c.common().copy_mode == kCopyBursts || c.common().copy_mode == kCopyScalar);
    // The exchange of 16-bit neighbours takes place before a norm could.
    CHECK(c, c.key() != kRopeSwapByShifts || !(c.normalizes(0) || c.normalizes(1)));
}

// Sizes and strides of the sides, and of the tensors with a row for each token.
inline void check_tensors(const Case& c) {
    const CommonTiling& h = c.common();
    const int64_t S = c.shape.rope.S;
    CHECK(c, h.rows == S && h.seq == S && h.tokens_inner == 0);
    int64_t heads = 0;
    for (int k = 0; k < kSides; ++k) {
        const QkvSide& s = c.shape.side[k];
        const bool has_heads = s.N * s.D > 0;
        CHECK(c, h.heads_end[k] == (heads += has_heads ? s.N : 0));
        if (!has_heads) continue;
        const RopeSideTiling& t = h.side[k];
        const bool is_cache = c.scatters() && k > 0;
        CHECK(c, S == 1 || t.x_stride[1] == s.x_stride[0]);
        CHECK(c, s.N == 1 || t.x_stride[2] == s.x_stride[1]);
        CHECK(c, s.N == 1 || t.out_stride[2] == s.out_stride[2]);
        CHECK(c, is_cache ? t.out_stride[0] == s.out_stride[0] && t.out_stride[1] == s.out_stride[1]
                          : S == 1 || t.out_stride[1] == s.out_stride[0]);
        const QkvSideTiling& q = c.qkv().side[k];
        CHECK(c, !is_cache || (q.cache_rows == s.cache_rows && q.block_size == s.block_size));
        CHECK(c, q.out_type == (is_cache ? s.out_dtype : c.call.in.q->dtype));
        const int64_t item = dtype_bytes(q.out_type);
        CHECK(c, q.out_pitch >= s.D && q.out_pitch * item % 32 == 0 && (q.out_pitch - s.D) * item < 32);
    }
    CHECK(c, h.heads == heads && c.qkv().scatters == c.scatters());
    CHECK(c, S == 1 || h.row_number_stride[1] == c.shape.slot_stride);
    CHECK(c, !c.scatters() || h.row_number_words == (c.call.in.slots->dtype == NPU_ROPE_INT64 ? 2 : 1));
    CHECK(c, c.has_tables() || S == 1 || h.pos_stride[1] == c.shape.rope.pos_stride[1]);
}

// Each head of each token is in one tile. A tile with a norm over the heads of a token has all of them, and fits the
// memory for statistics. Its rows fit the buffers.
inline void check_cover(const Case& c) {
    const CommonTiling& h = c.common();
    const QkvTiling& qkv = c.qkv();
    const int64_t item = dtype_bytes(c.call.in.q->dtype);
    std::vector<uint8_t> visits(static_cast<size_t>(h.rows * h.heads), 0);
    for (uint32_t core = 0; core < c.tiled.launch.block_dim; ++core) {
        Tiles tiles;
        tiles.Init(&h, core, c.tiled.launch.block_dim);
        int64_t block_first = -1;  // the first token of the block whose table the core has
        bool has_tiles = false;
        for (Tile tile; tiles.Next(&tile); has_tiles = true) {
            const QkvSideTiling& side = qkv.side[tile.side];
            const int64_t rows = int64_t{tile.tokens} * tile.heads, elements = rows * c.pitch(tile.side);
            CHECK(c, tile.tokens >= 1 && tile.tokens <= h.tile_tokens[tile.side] && tile.tokens <= 255);
            CHECK(c, tile.heads >= 1 && tile.heads <= h.tile_heads && rows <= 4095);
            CHECK(c, tile.batch == 0 && tile.token + tile.tokens <= h.rows);
            CHECK(c, tile.head + tile.heads <= c.shape.side[tile.side].N);
            CHECK(c, tile.block_tokens <= h.block_tokens && tile.table_row + tile.tokens <= tile.block_tokens);
            if (tile.opens_block) block_first = tile.token;
            if (tile.side != kV) CHECK(c, tile.token - tile.table_row == block_first);
            if (side.norm_kind != kNormNone) {
                const bool has_all = tile.heads == c.shape.side[tile.side].N;
                CHECK(c, side.norm_kind == kNormHead || has_all || qkv.has_square_sums);
                CHECK(c, rows <= qkv.stats_bytes / (4 * kRowNormStats));
            }
            CHECK(c, elements * item <= h.queue_bytes);
            CHECK(c, rows * side.out_pitch * dtype_bytes(side.out_type) <= qkv.out_queue_bytes);
            // Rows of 16 bits are computed in front of the temporaries.
            CHECK(c, item == 4 || 4 * elements <= h.temp_offset_bytes);
            CHECK(c, h.temp_offset_bytes + 4 * elements <= h.work_bytes);
            const int64_t first = (tile.side ? h.heads_end[tile.side - 1] : 0) + tile.head;
            for (int64_t t = tile.token; t < tile.token + tile.tokens; ++t)
                for (int64_t head = first; head < first + tile.heads; ++head)
                    ++visits[static_cast<size_t>(t * h.heads + head)];
        }
        CHECK(c, has_tiles);
    }
    CHECK(c, std::all_of(visits.begin(), visits.end(), [](uint8_t times) { return times == 1; }));
}

// A norm has the parameters of the elements that its mean square covers.
inline void check_norms(const Case& c) {
    for (int k = 0; k < kSides; ++k) {
        const QkvSideTiling& side = c.qkv().side[k];
        const bool is_head = c.shape.side[k].norm == QkvNorm::kHead;
        CHECK(c, side.norm_kind == (!c.normalizes(k) ? kNormNone : is_head ? kNormHead : kNormToken));
        CHECK(c, side.scale.rows == (!c.normalizes(k) ? 0 : is_head ? 1 : c.shape.side[k].N));
        const npu_rope_tensor* bias = k == 0 ? c.call.in.q_bias : k == 1 ? c.call.in.k_bias : nullptr;
        CHECK(c, side.bias.rows == (bias && c.normalizes(k) ? side.scale.rows : 0));
        CHECK(c, (side.factor.rows > 0) == (side.out_type == kOutInt8));
        if (!c.normalizes(k)) continue;
        const int64_t heads = is_head ? 1 : c.shape.side[k].N;
        const auto n = static_cast<double>(heads * c.shape.rope.D * c.attributes.ranks);
        CHECK(c, side.norm.root_n == static_cast<float>(std::sqrt(n)));
    }
}

// The rows of factors in UB are apart from each other, in the memory for them. Until they are float32, or if they are
// loaded for each tile, they are behind all else in the work buffer that is in use at that time.
inline void check_factors(const Case& c) {
    const QkvTiling& qkv = c.qkv();
    const CommonTiling& h = c.common();
    const int64_t staging_end = h.work_bytes - qkv.staging_offset;
    std::vector<std::pair<int64_t, int64_t>> kept, staged;  // ranges in bytes
    CHECK(c, qkv.staging_offset % 32 == 0 && qkv.staging_offset >= 4 * kRopeSetupLaneTemps * h.setup_lanes);
    for (int k = 0; k < kSides; ++k) {
        const QkvSideTiling& side = qkv.side[k];
        const npu_rope_tensor* scale = k == 0 ? c.call.in.q_scale : c.call.in.k_scale;
        const int64_t norm_item = scale ? dtype_bytes(scale->dtype) : 4, size = c.shape.side[k].D;
        for (const auto& [f, item] : {std::pair{side.scale, norm_item},
                                      {side.bias, norm_item},
                                      {side.factor, int64_t{4}},
                                      {side.quant_offset, int64_t{4}}}) {
            if (f.rows == 0) continue;
            const int64_t own_row = round_up(size, 32 / item) * item;
            CHECK(c, f.rows == 1 || f.rows == c.shape.side[k].N);
            if (side.streams_factors && f.rows > 1) {
                const int64_t wide = 4 * h.tile_heads * c.pitch(k);
                CHECK(c, wide + (f.staging_bytes >= 0 ? h.tile_heads * own_row : 0) <= staging_end);
                CHECK(c, qkv.staging_offset >= h.temp_offset_bytes + 4 * int64_t{h.tile_heads} * c.pitch(k));
                continue;
            }
            kept.push_back({4 * int64_t{f.ub_offset}, 4 * (int64_t{f.ub_offset} + f.rows * c.pitch(k))});
            if (f.staging_bytes < 0) continue;
            staged.push_back({f.staging_bytes, f.staging_bytes + f.rows * own_row});
        }
    }
    for (auto [ranges, end] : {std::pair{&kept, int64_t{qkv.factor_bytes}}, {&staged, staging_end}}) {
        std::sort(ranges->begin(), ranges->end());
        int64_t last = 0;
        for (const auto& [first, next] : *ranges) {
            CHECK(c, first >= last && first % 32 == 0 && next <= end);
            last = next;
        }
    }
}

// All buffers fit in UB together, and those of the table are large enough.
inline void check_ub(const Case& c) {
    const CommonTiling& h = c.common();
    const QkvTiling& qkv = c.qkv();
    const RotaryTableTiling& table = c.tiled.data.table;
    CHECK(c, qkv.buffers == 2 || qkv.buffers == 3);
    CHECK(c, int64_t{qkv.buffers} * (h.queue_bytes + qkv.out_queue_bytes) + h.work_bytes + h.gather_bytes +
                     h.table_bytes + h.lane_bytes + h.source_bytes + qkv.stats_bytes + qkv.factor_bytes <=
                 ub_budget_bytes(c.platform));
    for (const int64_t bytes :
         {h.queue_bytes, qkv.out_queue_bytes, h.work_bytes, h.temp_offset_bytes, h.table_bytes, h.cos_offset_bytes,
          h.lane_bytes, h.source_bytes, h.gather_bytes, qkv.stats_bytes, qkv.factor_bytes})
        CHECK(c, bytes % 32 == 0 && bytes >= 0);
    const int64_t lanes = int64_t{h.block_tokens} * h.table_width;
    CHECK(c, h.cos_offset_bytes >= 4 * lanes && h.table_bytes >= h.cos_offset_bytes + 4 * lanes);
    CHECK(c, h.token_slots >= h.block_tokens && h.token_slots % 64 == 0 && h.setup_lanes >= h.table_width);
    CHECK(c, h.gather_bytes == (c.key() == kRopeSwapByGather ? 4 * h.gather_rows * h.row_pitch : 0));
    CHECK(c, h.setup_lanes >= h.gather_rows * h.row_pitch);
    if (!c.has_tables()) {
        const int64_t position = c.call.in.positions->dtype == NPU_ROPE_INT64 ? 8 : 4;
        CHECK(c, h.lane_bytes == 16 * h.table_width && h.source_bytes == h.planes * h.token_slots * position);
        CHECK(c, qkv.staging_offset >= 4 * (kRopeTableTemps * lanes + kRopeTokenTemps * int64_t{h.token_slots}));
        CHECK(c, qkv.staging_offset >=
                     4 * (12 * round_up(h.n_dims / 2, 8) + kRopeSetupLaneTemps * int64_t{h.setup_lanes}));
        return;
    }
    const int64_t item = dtype_bytes(c.call.in.cos->dtype), entries = int64_t{h.block_tokens} * table.row_pitch;
    CHECK(c, table.row_entries == c.call.in.cos->shape[1] && table.row_pitch >= table.row_entries);
    CHECK(c, table.row_pitch * item % 32 == 0 && (table.row_pitch - table.row_entries) * item < 32);
    CHECK(c, h.source_bytes == 2 * h.planes * entries * item && qkv.staging_offset >= 4 * entries);
    CHECK(c, h.lane_bytes == (c.key() == kRopeHalves ? 0 : 12 * h.table_width) && table.backward == 0);
    CHECK(c, table.has_ids == (c.call.in.positions != nullptr) && table.table_rows == c.shape.table_rows);
    CHECK(c, c.shape.table_rows == 1 || table.cos_stride[1] == c.shape.cos_stride || c.shape.rope.S == 1);
    CHECK(c, c.shape.table_rows == 1 || table.sin_stride[1] == c.shape.sin_stride || c.shape.rope.S == 1);
    CHECK(c, !table.has_ids || c.shape.rope.S == 1 || table.id_stride[1] == c.shape.rope.pos_stride[1]);
}

// The properties that every rotation has. rope's checks read rope's case.
inline void check_rotation(const Case& c) {
    rope_tilings::Case rope;
    rope.in.shape = c.shape.rope;
    rope.in.params = c.params;
    rope.in.dtype = rope.in.out_dtype = c.call.in.q->dtype;
    rope.in.tables.entry_per_lane = c.shape.entry_per_lane;
    rope.platform = c.platform;
    rope.given = c.has_tables();
    rope.data.common = rope.common = c.common();
    rope.data.turns = c.tiled.data.turns;
    rope.launch = c.tiled.launch;
    rope.launch.tiling_key = static_cast<uint64_t>(c.key());
    rope_tilings::check_instructions(rope);
    rope_tilings::check_balance(rope);
    if (!rope.given) rope_tilings::check_planes(rope);
}

// Draws a call for this chip with at most this number of heads of tokens, tiles it and checks its tiling.
inline Case check_random_call(Choices* random, const char* chip, int64_t most_heads = 60000) {
    Case c = random_call(random, chip[6] == '3', most_heads);
    c.platform = *find_platform(chip);
    require_accepted(check_qkv_norm_rope_cache(c.call, &c.params, c.attributes, &c.shape), c);
    const Check check = check_and_tile_qkv_norm_rope_cache(c.call, c.params, c.attributes, c.platform, &c.tiled);
    c.refusal = check.message();
    if (!check.ok()) {
        check_refusal(c);
        return c;
    }
    if (!c.tiled.has_elements()) {
        CHECK(c, c.shape.empty());
        return c;
    }
    check_launch(c);
    check_tensors(c);
    check_cover(c);
    check_norms(c);
    check_factors(c);
    check_ub(c);
    check_rotation(c);
    return c;
}

}  // namespace qkv_tilings
