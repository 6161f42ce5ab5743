#include "op_host/rope_tiling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"
#include "op_host/rope_tile.h"
#include "op_host/row_norm_tiling.h"
#include "op_host/work_split.h"

namespace npu_rope {
namespace {

Check check_dtypes(const RopeTilingInput& in, const Platform& p) {
    if (Check c = check_dtype_on_chip(in.op, in.x_name, in.dtype, p); !c.ok()) return c;
    return check_dtype_on_chip(in.op, "cache", in.out_dtype, p);
}

Check check_sizes(const RopeTilingInput& in) {
    if (in.shape.D > kRopeMaxHeadSize)
        return bad_value(in.op, in.x_name, formatted("have a head size of at most %d on an NPU", kRopeMaxHeadSize),
                         std::to_string(in.shape.D));
    if (in.shape.heads() > INT32_MAX)
        return bad_value(in.op, in.x_name, formatted("have at most %d heads on an NPU", INT32_MAX),
                         std::to_string(in.shape.heads()));
    return {};
}

// Whether one stride covers two dimensions: `inner_size` steps of the inner one are one step of the outer one.
bool can_merge(int64_t outer_stride, int64_t inner_size, int64_t inner_stride) {
    int64_t reach;
    return !__builtin_mul_overflow(inner_size, inner_stride, &reach) && reach == outer_stride;
}

// Merges batches and tokens if one stride covers both, so that a block may have tokens of several batches.
void merge_batches(const RopeTilingInput& in, CommonTiling* common, RotaryTableTiling* given) {
    const RopeShape& s = in.shape;
    common->rows = s.B * s.S;
    auto copy = [](auto& to, const auto& from) { std::copy(std::begin(from), std::end(from), std::begin(to)); };
    copy(common->pos_stride, s.pos_stride);
    copy(common->row_number_stride, s.row_stride);
    // Strides of batch and token.
    std::vector<int64_t*> token_strides = {common->pos_stride, common->row_number_stride};
    if (given) {
        copy(given->cos_stride, in.tables.cos_stride);
        copy(given->sin_stride, in.tables.sin_stride);
        copy(given->id_stride, in.tables.id_stride);
        token_strides.push_back(given->id_stride);
        if (!in.tables.has_ids) token_strides.insert(token_strides.end(), {given->cos_stride, given->sin_stride});
    }
    for (int k = 0; k < s.sides; ++k) {
        copy(common->side[k].x_stride, s.side[k].x_stride);
        copy(common->side[k].out_stride, s.side[k].out_stride);
        if (s.side[k].N == 1) common->side[k].x_stride[2] = common->side[k].out_stride[2] = in.head_size(k);
        token_strides.push_back(common->side[k].x_stride);
        if (!in.scatters_side(k)) token_strides.push_back(common->side[k].out_stride);
    }
    bool merged = s.B == 1 || s.S == 1 ||
                  std::all_of(token_strides.begin(), token_strides.end(),
                              [&](const int64_t* stride) { return can_merge(stride[0], s.S, stride[1]); });
    common->seq = merged ? common->rows : s.S;
    for (int64_t* stride : token_strides) {
        stride[1] = common->seq == 1 ? 0 : stride[s.S == 1 ? 0 : 1];
        if (merged) stride[0] = 0;
    }
    // The stride of a single token has no effect. It is 1, so that the kernel loads the position by DMA.
    if (common->seq == 1) common->pos_stride[1] = 1;
}

class Tiling {
public:
    // computed, given: the tiling data of computed tables or of given tables; the other pointer is NULL. norm: NULL for
    // a call that does not normalize.
    Tiling(const RopeTilingInput& in, const Platform& platform, CommonTiling* common, RopeTurns* computed,
           RotaryTableTiling* given, HeadNormTiling* norm = nullptr)
        : in_(in),
          platform_(platform),
          common_(*common),
          computed_(computed),
          planes_(computed),
          given_(given),
          norm_(norm) {}

    // qkv_norm_rope_cache, with computed or with given tables.
    Tiling(const RopeTilingInput& in, const Platform& platform, QkvNormRopeCacheTilingData* data)
        : in_(in),
          platform_(platform),
          common_(data->common),
          computed_(in.qkv->tensors->in.cos ? nullptr : &data->turns),
          planes_(&data->turns),
          given_(in.qkv->tensors->in.cos ? &data->table : nullptr),
          qkv_(&data->qkv) {}

    Check run(KernelLaunch* launch) {
        const bool is_empty = shape_.empty();
        if (Check c = check_dtypes(in_, platform_); !c.ok()) return c;
        if (!is_empty)
            if (Check c = check_sizes(in_); !c.ok()) return c;
        if (norm_)
            if (Check c = check_device_epsilon("rms_norm_rope", in_.norm.epsilon, NPU_ROPE_FLOAT32); !c.ok()) return c;
        if (qkv_)
            if (Check c = check_qkv(); !c.ok()) return c;
        if (is_empty) return computed_ ? check_rope_frequencies(rope_frequencies(in_.params, nullptr, 0)) : Check{};
        merge_batches(in_, &common_, given_);
        set_shape();
        set_copy_mode();
        split();
        std::optional<RopeLayout> layout = best_layout(call_, tile_candidates(call_));
        if (!layout && qkv_) {
            call_.buffers = 2;
            layout = best_layout(call_, tile_candidates(call_));
        }
        if (!layout && qkv_) {
            place_factors(true);
            layout = best_layout(call_, tile_candidates(call_));
        }
        if (!layout && call_.whole_heads > 0) return refuse_norm();
        if (!layout) return internal_error(in_.op, "tile", "fit into UB", "none that does");
        set_layout(*layout);
        launch->block_dim = static_cast<uint32_t>(common_.row_parts * common_.head_parts);
        launch->tiling_key = static_cast<uint64_t>(call_.key + (qkv_ && given_ ? kQkvGivenTables : 0));
        return computed_ ? set_frequencies() : Check{};
    }

private:
    void set_shape() {
        const npu_rope_params& p = in_.params;
        int64_t pairs = rope_pairs(p);
        bool halves = p.mode != NPU_ROPE_MODE_NORMAL;
        set_heads(common_, {shape_.side[0].N, shape_.side[1].N, shape_.side[2].N});
        common_.head_size = to_int32(shape_.D);
        common_.row_pitch = to_int32(round_up(shape_.D, kUbBlockBytes / call_.item_bytes));
        common_.out_pitch = to_int32(round_up(shape_.D, kUbBlockBytes / call_.out_bytes));
        common_.n_offs = p.n_offs;
        common_.n_dims = to_int32(2 * pairs);
        common_.halves = halves;
        common_.has_factors = in_.has_factors;
        common_.cache_rows = shape_.cache_rows;
        common_.row_number_words = in_.rows_int64 ? 2 : 1;
        // With one entry per lane, each half of a table row must also start on a 32-byte border.
        int64_t half_multiple = given_ && in_.tables.entry_per_lane ? kUbBlockBytes / dtype_bytes(in_.tables.dtype) : 8;
        bool halves_on_borders = halves && p.n_offs % 8 == 0 && pairs % half_multiple == 0;
        bool can_swap_by_shifts = !halves && call_.item_bytes == 2 && platform_.arch != kArch310p && !qkv_normalizes();
        call_.key = halves_on_borders ? kRopeHalves : can_swap_by_shifts ? kRopeSwapByShifts : kRopeSwapByGather;
        common_.lane_first = call_.key == kRopeHalves ? 0 : p.n_offs / 8 * 8;
        common_.table_width = call_.key == kRopeHalves
                                  ? to_int32(pairs)
                                  : to_int32(round_up(p.n_offs + common_.n_dims, 8)) - common_.lane_first;
        set_planes();
        call_.position_bytes = common_.planes * (in_.positions_int64 ? 8 : 4);
        if (given_) set_given_tables();
        if (qkv_) set_qkv();
        if (norm_) {
            norm_->norm = row_norm_tiling(shape_.D, in_.norm.epsilon, kStashFloat32, in_.dtype != NPU_ROPE_FLOAT16);
            norm_->intermediate_rounding = in_.norm.intermediate_rounding;
            norm_->normalizes_partners = call_.key == kRopeSwapByShifts && !in_.norm.intermediate_rounding;
            norm_->scatters = in_.scatters;
            call_.normalizes = true;
            call_.normalizes_partners = norm_->normalizes_partners;
        }
        // Choose the order in UB in which more rows are adjacent in GM. The counts are the numbers of tensors in which
        // the heads of a token, or the tokens of a head, are adjacent. Rows of a cache are stored token by token.
        int adjacent_heads_count = 0, adjacent_tokens_count = 0;
        for (int k = 0; k < shape_.sides; ++k)
            for (const int64_t* stride : {common_.side[k].x_stride, common_.side[k].out_stride}) {
                adjacent_heads_count += stride[2] == in_.head_size(k);
                adjacent_tokens_count += stride[1] == in_.head_size(k);
            }
        common_.tokens_inner = !in_.scatters && !qkv_ && adjacent_tokens_count > adjacent_heads_count;
        heads_adjacent_ = adjacent_heads_count == 2 * shape_.sides;
    }

    void set_given_tables() {
        const GivenTables& t = in_.tables;
        given_->table_rows = t.rows;
        given_->has_ids = t.has_ids;
        given_->id_words = t.ids_int64 ? 2 : 1;
        given_->row_entries = t.entry_per_lane ? common_.n_dims : common_.n_dims / 2;
        call_.entry_bytes = dtype_bytes(t.dtype);
        call_.entry_pitch = round_up(given_->row_entries, kUbBlockBytes / call_.entry_bytes);
        given_->row_pitch = to_int32(call_.entry_pitch);
        given_->backward = !in_.forward;
        if (call_.key == kRopeHalves) common_.table_width = given_->row_entries;
    }

    // Sets the planes of positions. Axes with the same positions share a plane; an axis that rotates no pair has none.
    void set_planes() {
        common_.planes = 1;
        if (!planes_ || !rope_has_sections(in_.params.mode)) return;
        std::vector<RopePairTerms> pair_terms = rope_pair_terms(in_.params);
        int plane_of[kRopeAxes];
        common_.planes = 0;
        for (int axis = 0; axis < kRopeAxes; ++axis) {
            plane_of[axis] = -1;
            bool rotates = std::any_of(pair_terms.begin(), pair_terms.end(),
                                       [&](const RopePairTerms& p) { return p.axis == axis; });
            if (!rotates) continue;
            int64_t offset = shape_.axis_offset[axis];
            int64_t* plane = std::find(common_.plane_offset, common_.plane_offset + common_.planes, offset);
            plane_of[axis] = static_cast<int>(plane - common_.plane_offset);
            if (plane_of[axis] == common_.planes) common_.plane_offset[common_.planes++] = offset;
        }
        // The lanes of a computed table, or the entries of a row of given tables.
        const int32_t pairs = common_.n_dims / 2;
        const int32_t lanes = !given_ ? common_.table_width : in_.tables.entry_per_lane ? 2 * pairs : pairs;
        for (int32_t lane = 0; lane < lanes; ++lane) {
            const auto pair = given_ ? static_cast<size_t>(lane % pairs) : pair_of_lane(lane);
            planes_->plane_lanes[plane_of[pair_terms[pair].axis]][lane / 64] |= uint64_t{1} << lane % 64;
        }
    }

    // The pair of a table lane in a mode with sections, whose pairs are halves. Lanes outside the window are clamped to
    // the nearest lane inside, as in the kernel.
    size_t pair_of_lane(int32_t lane) const {
        if (call_.key == kRopeHalves) return static_cast<size_t>(lane);
        int32_t inside = std::clamp(lane + common_.lane_first - common_.n_offs, 0, common_.n_dims - 1);
        return static_cast<size_t>(inside % (common_.n_dims / 2));
    }

    // Bytes of the longest head.
    int64_t head_bytes() const { return call_.max_head_size() * call_.item_bytes; }
    int64_t heads() const { return common_.heads; }

    void set_copy_mode() {
        common_.copy_mode = kCopyBursts;
        bool whole_blocks = true;
        for (int k = 0; k < shape_.sides; ++k)
            for (const int64_t item_bytes : {call_.item_bytes, qkv_ ? out_item_bytes(k) : call_.out_bytes})
                whole_blocks &= !has_heads(k) || in_.head_size(k) * item_bytes % kUbBlockBytes == 0;
        if (platform_.arch != kArch310p || whole_blocks) return;
        // A run of a token's adjacent heads may be long enough for a DMA, even if one head is not.
        int64_t min_heads = shape_.side[0].N;
        for (int k = 1; k < shape_.sides; ++k) min_heads = std::min(min_heads, shape_.side[k].N);
        bool run_is_enough =
            head_bytes() >= kUbBlockBytes || (heads_adjacent_ && min_heads * head_bytes() >= kUbBlockBytes);
        common_.copy_mode = run_is_enough && !in_.scatters && !qkv_ ? kCopyPacked : kCopyScalar;
        if (head_bytes() < kUbBlockBytes) common_.tokens_inner = 0;
    }

    // The least number of adjacent rows of out whose total size is a multiple of 32 bytes; 1 if rows are not adjacent.
    int64_t granule() const {
        int64_t granule = 1;
        for (int k = 0; k < shape_.sides && common_.copy_mode == kCopyPacked && heads_adjacent_; ++k) {
            int64_t row = shape_.side[k].N * shape_.D;
            if (common_.side[k].out_stride[1] == row)
                granule = std::max(granule, kUbBlockBytes / std::gcd(kUbBlockBytes, row * call_.item_bytes));
        }
        return granule;
    }

    // Chooses the split with the least work for the busiest core. The cost of a token's table counts as that of
    // table_heads heads.
    void split() {
        common_.row_granule = to_int32(granule());
        WorkSplit split;
        if (common_.copy_mode != kCopyScalar)  // else one core, because two cores must not write to one cache line
            split = split_work(
                common_.rows, common_.row_granule, heads(), head_bytes(), platform_.cores,
                common_.copy_mode == kCopyPacked || call_.whole_heads > 0 ? heads() : tile_preferences().min_heads,
                tile_preferences().table_heads);
        common_.row_parts = to_int32(split.row_parts);
        common_.head_parts = to_int32(split.head_parts);
    }

    void set_layout(const RopeLayout& layout) {
        set_common_layout(common_, layout, layout.buffers);
        common_.block_tokens = to_int32(layout.block_tokens);
        common_.token_slots = to_int32(layout.token_slots);
        for (int k = 1; k < kRopeMaxSides; ++k) common_.tile_tokens[k] = to_int32(layout.tile_tokens[k]);
        common_.table_bytes = to_int32(layout.table.bytes);
        common_.cos_offset_bytes = to_int32(layout.cos_offset);
        common_.lane_bytes = to_int32(layout.frequencies.bytes + layout.entry_offsets.bytes);
        common_.source_bytes = to_int32(layout.source.bytes);
        if (qkv_) {
            qkv_->stats_bytes = to_int32(layout.stats.bytes);
            qkv_->factor_bytes = to_int32(layout.scales.bytes);
            qkv_->staging_offset = to_int32(layout.staging_offset);
            qkv_->out_queue_bytes = to_int32(layout.outputs.bytes / layout.buffers);
            qkv_->buffers = to_int32(layout.buffers);
        }
        if (!norm_) return;
        norm_->stats_bytes = to_int32(layout.stats.bytes);
        norm_->factor_bytes = to_int32(layout.factors.bytes);
        norm_->scale_bytes = to_int32(layout.scales.bytes);
        norm_->scale_raw_bytes = to_int32(layout.raw_scales.bytes);
    }

    // ---- qkv_norm_rope_cache

    static constexpr int kV = 2;  // the side of values
    const QkvSide& qkv_side(int k) const { return in_.qkv->shape->side[k]; }
    HeadRow head_row(int k) const { return k == kV ? qkv_->value_head : HeadRow{common_.head_size, common_.row_pitch}; }
    bool has_heads(int k) const { return shape_.side[k].N > 0; }
    bool normalizes_side(int k) const { return has_heads(k) && qkv_side(k).norm != QkvNorm::kNone; }
    bool qkv_normalizes() const { return qkv_ && (normalizes_side(0) || normalizes_side(1)); }
    int32_t out_type(int k) const { return k > 0 && in_.scatters ? qkv_side(k).out_dtype : in_.dtype; }
    int64_t out_item_bytes(int k) const { return dtype_bytes(out_type(k)); }
    bool normalizes_all_heads(int k) const { return has_heads(k) && qkv_side(k).norm == QkvNorm::kAllHeads; }

    // Refuses the longest norm over all heads of a token, which do not fit UB together. Sums are for q and k alike.
    Check refuse_norm() const {
        const int k = normalizes_all_heads(1) && qkv_side(1).N == call_.whole_heads ? 1 : 0;
        const bool may_have_sums = normalizes_all_heads(1 - k) || !has_heads(1 - k);
        const bool has_many_heads = call_.whole_heads > kMaxNormRows;
        const int64_t n = call_.whole_heads * (has_many_heads ? 1 : shape_.D);
        const std::string most =
            has_many_heads ? "at most " + std::to_string(kMaxNormRows) + " heads" : "fewer elements";
        return bad_value(
            in_.op, k == 0 ? "q_scale" : "k_scale",
            formatted("cover %s on an NPU%s", most.c_str(), may_have_sums ? ", or be given with square_sums" : ""),
            formatted("%lld%s", static_cast<long long>(n), has_many_heads ? "" : ", which do not fit UB"));
    }

    // The rules of the kernel that the operator does not have.
    Check check_qkv() {
        if (Check c = check_device_epsilon(in_.op, in_.qkv->attributes.epsilon, NPU_ROPE_FLOAT32); !c.ok()) return c;
        if (shape_.empty()) return {};
        if (has_heads(kV) && qkv_side(kV).D > kRopeMaxHeadSize)
            return bad_value(in_.op, "v", formatted("have a head size of at most %d on an NPU", kRopeMaxHeadSize),
                             std::to_string(qkv_side(kV).D));
        for (const auto& [k, name] : {std::pair{1, "k_cache"}, {kV, "v_cache"}})
            if (has_heads(k) && out_type(k) != NPU_ROPE_INT8)
                if (Check c = check_dtype_on_chip(in_.op, name, out_type(k), platform_); !c.ok()) return c;
        return {};
    }

    static_assert(kOutFloat32 == NPU_ROPE_FLOAT32 && kOutFloat16 == NPU_ROPE_FLOAT16, "out_type has these numbers");
    static_assert(kOutBfloat16 == NPU_ROPE_BFLOAT16 && kOutInt8 == NPU_ROPE_INT8, "out_type has these numbers");

    // Places the factors of all sides in UB.
    void place_factors(bool streams) {
        const npu_rope_qkv_inputs& in = in_.qkv->tensors->in;
        const npu_rope_tensor *scale[] = {in.q_scale, in.k_scale}, *bias[] = {in.q_bias, in.k_bias};
        call_.factors = {streams};
        for (int k = 0; k < shape_.sides; ++k) {
            if (!has_heads(k)) continue;
            const QkvSide& s = qkv_side(k);
            QkvSideTiling& to = qkv_->side[k];
            to.streams_factors = streams;
            auto place = [&](const npu_rope_tensor* t, int64_t rows, int64_t head_stride, int64_t lane_stride) {
                return t ? call_.factors.place({rows, dtype_bytes(t->dtype), head_stride, lane_stride}, head_row(k))
                         : RowFactorsTiling{};
            };
            if (normalizes_side(k)) {
                const bool is_per_head = s.norm == QkvNorm::kHead;
                const int64_t rows = is_per_head ? 1 : s.N, head_stride = is_per_head ? 0 : shape_.D;
                to.scale = place(scale[k], rows, head_stride, 1);
                to.bias = place(bias[k], rows, head_stride, 1);
            }
            if (to.out_type != kOutInt8) continue;
            const int64_t *stride = s.quant_stride, rows = stride[0] == 0 && stride[1] == 0 ? 1 : s.N;
            to.factor = place(k == 1 ? in.k_quant_scale : in.v_quant_scale, rows, stride[0], stride[1]);
            to.quant_offset = place(k == 1 ? in.k_quant_offset : in.v_quant_offset, rows, stride[0], stride[1]);
        }
    }

    void set_qkv() {
        const npu_rope_qkv_inputs& in = in_.qkv->tensors->in;
        const QkvAttributes& a = in_.qkv->attributes;
        call_.stores_any_type = true;
        // The moves of values, which need no computation, take place while the vector unit computes the tile before.
        call_.buffers = 3;
        call_.normalizes = qkv_normalizes();
        for (int k = 0; k < shape_.sides; ++k) {
            if (!has_heads(k)) continue;
            const QkvSide& s = qkv_side(k);
            QkvSideTiling& to = qkv_->side[k];
            to.cache_rows = s.cache_rows;
            to.block_size = s.block_size;
            to.out_type = out_type(k);
            to.out_pitch = to_int32(round_up(s.D, kUbBlockBytes / out_item_bytes(k)));
            call_.out_row_bytes[k] = out_item_bytes(k) * to.out_pitch;
            if (k == kV) {
                call_.value_size = s.D;
                qkv_->value_head = {to_int32(s.D), to_int32(call_.value_pitch())};
            }
            if (normalizes_side(k)) {
                const bool is_per_head = s.norm == QkvNorm::kHead, has_sums = in.square_sums != nullptr;
                to.norm_kind = is_per_head ? kNormHead : kNormToken;
                const int64_t n = shape_.D * (is_per_head ? 1 : s.N) * (has_sums ? a.ranks : 1);
                to.norm = row_norm_tiling(n, a.epsilon, kStashFloat32, in_.dtype != NPU_ROPE_FLOAT16 && !has_sums);
                if (!is_per_head && !has_sums) call_.whole_heads = std::max(call_.whole_heads, s.N);
            }
        }
        place_factors(false);
        qkv_->has_square_sums = in.square_sums != nullptr;
        qkv_->square_sum_stride = in_.qkv->shape->square_sum_stride;
        qkv_->scatters = in_.scatters;
        qkv_->scale_offset = static_cast<float>(a.scale_offset);
    }

    Check set_frequencies() {
        common_.mscale = static_cast<float>(rope_mscale(in_.params));
        std::vector<Quad> frequencies = rope_frequencies(in_.params, nullptr, 0);
        if (Check c = check_rope_frequencies(frequencies); !c.ok()) return c;
        for (size_t i = 0; i < frequencies.size(); ++i) {
            Quad turns = frequencies[i] / kTwoPi;
            // Whole turns do not change the angle, unless the kernel still divides them by a factor.
            if (!in_.has_factors) turns -= rintl(static_cast<long double>(turns));
            if (!in_.forward) turns = -turns;
            const auto hi = static_cast<float>(turns);
            set_turns(i, hi, static_cast<float>(turns - hi));
        }
        return {};
    }

    // Splits the turns hi + lo of a pair, unless the kernel does so. The operations are those of the kernel's
    // SplitTurns(): a factor of 1 gives the same bits. All products are exact.
    void set_turns(size_t pair, float hi, float lo) {
        const auto pairs = static_cast<size_t>(round_up(common_.n_dims / 2, 8));
        if (in_.has_factors || pairs > kSplitMaxPairs) {
            computed_->vectors[pair] = hi;
            computed_->vectors[pairs + pair] = lo;
            return;
        }
        auto nearest_on_grid = [](float x) { return std::nearbyint(x * kGridPerTurn) / kGridPerTurn; };
        const float high = hi * kHighUnit, rest = high - std::nearbyint(high);
        const float w1 = nearest_on_grid(hi), w2 = nearest_on_grid(rest);
        const float parts[kTurnParts] = {w1, hi - w1 + lo, w2, rest - w2 + lo * kHighUnit};
        for (size_t k = 0; k < kTurnParts; ++k) computed_->vectors[k * pairs + pair] = parts[k];
    }

    const RopeTilingInput& in_;
    const Platform& platform_;
    CommonTiling& common_;
    RopeTurns* computed_;
    RopeTurns* planes_;  // for the lanes of each plane of positions; NULL: no planes
    RotaryTableTiling* given_;
    HeadNormTiling* norm_ = nullptr;
    QkvTiling* qkv_ = nullptr;
    bool heads_adjacent_ = false;  // in every tensor, the heads of a token are adjacent in GM
    const RopeShape& shape_ = in_.shape;
    RopeTileCall call_{&common_, shape_.sides, ub_budget_bytes(platform_), dtype_bytes(in_.dtype),
                       dtype_bytes(in_.out_dtype)};
};

}  // namespace

RopeTilingInput rope_tiling_input(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params,
                                  bool forward) {
    RopeTilingInput in;
    in.op = t.op;
    in.x_name = t.x_name[0];
    in.shape = shape;
    in.dtype = t.x[0]->dtype;
    in.out_dtype = (t.out[0] ? t.out[0] : t.x[0])->dtype;
    in.positions_int64 = t.positions->dtype == NPU_ROPE_INT64;
    in.has_factors = t.freq_factors != nullptr;
    in.scatters = t.scatters;
    in.rows_int64 = t.rows && t.rows->dtype == NPU_ROPE_INT64;
    in.forward = forward;
    in.params = params;
    return in;
}

Check check_device_angle(const char* op, int32_t angle) {
    if (angle == NPU_ROPE_ANGLE_EXACT) return {};
    return bad_value(op, "angle", "be exact (0) on an NPU", angle == NPU_ROPE_ANGLE_F32 ? "f32" : "ggml");
}

Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, KernelLaunch* launch) {
    *data = RopeTilingData{};
    return Tiling(in, platform, &data->common, &data->turns, nullptr).run(launch);
}

Check check_and_tile_rope(const RopeTensors& t, const npu_rope_params& params, int32_t angle, bool forward,
                          const Platform& platform, TilingResult<RopeTilingData>* tiled) {
    RopeShape shape;
    if (Check c = check_rope(t, &params, angle, &shape); !c.ok()) return c;
    if (Check c = check_device_angle(t.op, angle); !c.ok()) return c;
    return rope_tiling(rope_tiling_input(t, shape, params, forward), platform, &tiled->data, &tiled->launch);
}

Check rms_norm_rope_tiling(const RopeTilingInput& in, const Platform& platform, RmsNormRopeTilingData* data,
                           KernelLaunch* launch) {
    *data = RmsNormRopeTilingData{};
    return Tiling(in, platform, &data->common, &data->turns, nullptr, &data->norm).run(launch);
}

Check rotary_tiling(const RopeTilingInput& in, const Platform& platform, RotaryTilingData* data, KernelLaunch* launch) {
    *data = RotaryTilingData{};
    return Tiling(in, platform, &data->common, nullptr, &data->table).run(launch);
}

Check qkv_tiling(const RopeTilingInput& in, const Platform& platform, QkvNormRopeCacheTilingData* data,
                 KernelLaunch* launch) {
    *data = QkvNormRopeCacheTilingData{};
    return Tiling(in, platform, data).run(launch);
}

}  // namespace npu_rope
