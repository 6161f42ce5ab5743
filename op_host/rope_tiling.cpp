#include "op_host/rope_tiling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/core/dtype.h"
#include "csrc/core/rope_check.h"
#include "csrc/core/rope_frequency.h"
#include "op_host/row_norm_tiling.h"
#include "op_host/work_split.h"

namespace npu_rope {
namespace {

constexpr int64_t kRunBytes = 8 * 1024;  // of one head's tokens, where these are adjacent
constexpr int64_t kLeastHeads = 4;       // of a unit, because each unit computes the tables of its tokens
constexpr int64_t kTableHeads = 2;       // cost of building one token's table, in head rotations
constexpr int64_t kBlockTokens = 16;     // tokens of one table, so that instructions are long
constexpr int64_t kBlockRows = 256;      // head rows of one table, if a unit has few heads
constexpr int64_t kMostTokens = 248;     // one repeat each, in whole blocks of 8
constexpr int64_t kMostRows = 4095;      // most blocks of one DMA instruction
constexpr int64_t kMostNormRows = 512;   // of a tile that is normalized; each row needs memory for its root

// The size of the most even parts of n that are not smaller than `least`.
int64_t even_share(int64_t n, int64_t least) { return ceil_div(n, std::max<int64_t>(1, n / least)); }

Check check_supported(const RopeTilingInput& in, const Platform& p) {
    if (in.dtype != NPU_ROPE_FLOAT32 && in.dtype != NPU_ROPE_FLOAT16 && in.dtype != NPU_ROPE_BFLOAT16)
        return bad_type(in.op, "%s must be float32, float16 or bfloat16 on an NPU but got %s.", in.x_name,
                        dtype_name(in.dtype));
    if (p.arch == kArch310p && in.dtype == NPU_ROPE_BFLOAT16)
        return bad_type(in.op, "%s must be float32 or float16 on Ascend310P but got bfloat16.", in.x_name);
    if (in.out_dtype == NPU_ROPE_BFLOAT16 && p.arch == kArch310p)
        return bad_type(in.op, "cache must be float32 or float16 on Ascend310P but got bfloat16.");
    if (in.shape.D > kRopeMaxHeadSize)
        return bad_value(in.op, "%s must have a head size of at most %d on an NPU but got %lld.", in.x_name,
                         kRopeMaxHeadSize, static_cast<long long>(in.shape.D));
    if (in.shape.heads() > INT32_MAX)
        return bad_value(in.op, "%s must have at most %d heads on an NPU but got %lld.", in.x_name, INT32_MAX,
                         static_cast<long long>(in.shape.heads()));
    return {};
}

// Whether `size` steps of `inner` are one step of `outer`.
bool follows(int64_t outer, int64_t size, int64_t inner) {
    int64_t reach;
    return !__builtin_mul_overflow(size, inner, &reach) && reach == outer;
}

// Merges batches and tokens where one stride covers both: a block's table may then span batches.
void merge_batches(const RopeTilingInput& in, RopeTilingHead* d, RotaryTableTiling* given) {
    const RopeShape& s = in.shape;
    d->rows = s.B * s.S;
    auto copy = [](auto& to, const auto& from) { std::copy(std::begin(from), std::end(from), std::begin(to)); };
    copy(d->pos_stride, s.pos_stride);
    copy(d->index_stride, s.row_stride);
    std::vector<int64_t*> of_tokens = {d->pos_stride, d->index_stride};  // strides of batch and token
    if (given) {
        copy(given->cos_stride, in.tables.cos_stride);
        copy(given->sin_stride, in.tables.sin_stride);
        if (!in.tables.has_ids) of_tokens.insert(of_tokens.end(), {given->cos_stride, given->sin_stride});
    }
    for (int k = 0; k < s.sides; ++k) {
        copy(d->side[k].x_stride, s.side[k].x_stride);
        copy(d->side[k].out_stride, s.side[k].out_stride);
        if (s.side[k].N == 1) d->side[k].x_stride[2] = d->side[k].out_stride[2] = s.D;
        of_tokens.push_back(d->side[k].x_stride);
        if (!in.scatters_side(k)) of_tokens.push_back(d->side[k].out_stride);
    }
    bool merged = s.B == 1 || s.S == 1 || std::all_of(of_tokens.begin(), of_tokens.end(), [&](const int64_t* stride) {
                      return follows(stride[0], s.S, stride[1]);
                  });
    d->seq = merged ? d->rows : s.S;
    for (int64_t* stride : of_tokens) {
        stride[1] = d->seq == 1 ? 0 : stride[s.S == 1 ? 0 : 1];
        if (merged) stride[0] = 0;
    }
    if (d->seq == 1) d->pos_stride[1] = 1;
}

class Tiling {
public:
    // computed, given: the source of the table; one of the two is NULL. norm: for a call that normalizes.
    Tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingHead* head, RopeTurns* computed,
           RotaryTableTiling* given, HeadNormTiling* norm = nullptr)
        : in_(in),
          shape_(in.shape),
          platform_(platform),
          d_(*head),
          computed_(computed),
          given_(given),
          norm_(norm),
          item_bytes_(dtype_bytes(in.dtype)),
          out_bytes_(dtype_bytes(in.out_dtype)) {}

    Check run(RopeLaunch* launch) {
        merge_batches(in_, &d_, given_);
        set_shape();
        set_io();
        split();
        if (!set_tile()) {
            if (d_.io != kRopeIoPacked) return no_tile();
            d_.io = kRopeIoScalar;
            split();
            if (!set_tile()) return no_tile();
        }
        launch->block_dim = static_cast<uint32_t>(d_.row_parts * d_.head_parts);
        launch->tiling_key = static_cast<uint64_t>(key_);
        launch->workspace_bytes = 0;
        return computed_ ? set_frequencies() : Check{};
    }

private:
    Check no_tile() const { return {Check::kInternal, "[" + std::string(in_.op) + "] no tile fits into UB."}; }

    void set_shape() {
        const npu_rope_params& p = in_.params;
        int64_t pairs = rope_pairs(p);
        bool halves = p.mode != NPU_ROPE_MODE_NORMAL;
        d_.heads = i32(shape_.heads());
        d_.first_heads = i32(shape_.side[0].N);
        d_.head_size = i32(shape_.D);
        d_.row_pitch = i32(round_up(shape_.D, kUbBlock / item_bytes_));
        d_.out_pitch = i32(round_up(shape_.D, kUbBlock / out_bytes_));
        d_.n_offs = p.n_offs;
        d_.n_dims = i32(2 * pairs);
        d_.halves = halves;
        d_.has_factors = in_.has_factors;
        d_.cache_rows = shape_.cache_rows;
        d_.index_words = in_.rows_int64 ? 2 : 1;
        // With one entry per lane, each half of a table row must also start on a 32-byte border.
        int64_t half_unit = given_ && in_.tables.has_entry_a_lane ? kUbBlock / dtype_bytes(in_.tables.dtype) : 8;
        if (halves && p.n_offs % 8 == 0 && pairs % half_unit == 0) {
            key_ = kRopeHalves;
        } else if (!halves && item_bytes_ == 2 && platform_.arch != kArch310p) {
            key_ = kRopeSwapByShifts;
        } else {
            key_ = kRopeSwapByGather;
        }
        d_.lane_first = key_ == kRopeHalves ? 0 : p.n_offs / 8 * 8;
        d_.table_width = key_ == kRopeHalves ? i32(pairs) : i32(round_up(p.n_offs + d_.n_dims, 8)) - d_.lane_first;
        if (computed_) set_planes();
        if (given_) set_given();
        if (norm_) {
            norm_->norm = row_norm_tiling(shape_.D, in_.norm.epsilon, kStashFloat32, in_.dtype != NPU_ROPE_FLOAT16);
            norm_->rounds = in_.norm.rounds;
            norm_->swaps = key_ == kRopeSwapByShifts && !in_.norm.rounds;
            norm_->scatters = in_.scatters;
        }
        // UB has the order of rows in which more of them are adjacent in GM; rows of a cache are stored
        // token by token.
        int heads_meet = 0, tokens_meet = 0;
        for (int k = 0; k < shape_.sides; ++k)
            for (const int64_t* stride : {d_.side[k].x_stride, d_.side[k].out_stride}) {
                heads_meet += stride[2] == shape_.D;
                tokens_meet += stride[1] == shape_.D;
            }
        d_.tokens_inner = !in_.scatters && tokens_meet > heads_meet;
    }

    void set_given() {
        const GivenTables& t = in_.tables;
        given_->table_rows = t.rows;
        given_->has_ids = t.has_ids;
        given_->row = t.has_entry_a_lane ? d_.n_dims : d_.n_dims / 2;
        given_->pitch = i32(round_up(given_->row, kUbBlock / dtype_bytes(t.dtype)));
        given_->backward = !in_.forward;
        if (key_ == kRopeHalves) d_.table_width = given_->row;
    }

    // Sets the planes of positions. Axes with the same positions in memory share a plane; axes that rotate no pair
    // have none.
    void set_planes() {
        d_.planes = 1;
        if (!rope_has_sections(in_.params.mode)) return;
        std::vector<RopePairRule> rules = rope_pair_rules(in_.params);
        int plane_of[kRopeAxes];
        d_.planes = 0;
        for (int axis = 0; axis < kRopeAxes; ++axis) {
            plane_of[axis] = -1;
            bool turns = std::any_of(rules.begin(), rules.end(), [&](const RopePairRule& r) { return r.axis == axis; });
            if (!turns) continue;
            int64_t offset = shape_.pos_axis[axis];
            int64_t* known = std::find(d_.plane_offset, d_.plane_offset + d_.planes, offset);
            plane_of[axis] = static_cast<int>(known - d_.plane_offset);
            if (plane_of[axis] == d_.planes) d_.plane_offset[d_.planes++] = offset;
        }
        for (int32_t lane = 0; lane < d_.table_width; ++lane)
            computed_->plane_lanes[plane_of[rules[pair_of_lane(lane)].axis]][lane / 64] |= uint64_t{1} << lane % 64;
    }

    // The pair of a table lane. Lanes outside the window are clamped to the nearest lane inside, as in the kernel.
    size_t pair_of_lane(int32_t lane) const {
        if (key_ == kRopeHalves) return static_cast<size_t>(lane);
        int32_t inside = std::clamp(lane + d_.lane_first - d_.n_offs, 0, d_.n_dims - 1);
        return static_cast<size_t>(d_.halves ? inside % (d_.n_dims / 2) : inside / 2);
    }

    bool heads_meet() const {
        bool meet = true;
        for (int k = 0; k < shape_.sides; ++k)
            meet = meet && d_.side[k].x_stride[2] == shape_.D && d_.side[k].out_stride[2] == shape_.D;
        return meet;
    }
    int64_t head_bytes() const { return shape_.D * item_bytes_; }
    int64_t heads() const { return d_.heads; }

    void set_io() {
        d_.io = kRopeIoBurst;
        bool whole_blocks = head_bytes() % kUbBlock == 0 && shape_.D * out_bytes_ % kUbBlock == 0;
        if (platform_.arch != kArch310p || whole_blocks) return;
        // Adjacent heads of a token form one run, even if a head is short.
        int64_t fewest = shape_.sides == 2 ? std::min(shape_.side[0].N, shape_.side[1].N) : shape_.side[0].N;
        bool run_is_enough = head_bytes() >= kUbBlock || (heads_meet() && fewest * head_bytes() >= kUbBlock);
        d_.io = run_is_enough && !in_.scatters ? kRopeIoPacked : kRopeIoScalar;
        if (head_bytes() < kUbBlock) d_.tokens_inner = 0;
    }

    // Number of rows whose total size is a multiple of 32 bytes, if out's rows are adjacent and their size is not.
    int64_t granule() const {
        int64_t granule = 1;
        for (int k = 0; k < shape_.sides && d_.io == kRopeIoPacked && heads_meet(); ++k) {
            int64_t row = shape_.side[k].N * shape_.D;
            if (d_.side[k].out_stride[1] == row)
                granule = std::max(granule, kUbBlock / std::gcd(kUbBlock, row * item_bytes_));
        }
        return granule;
    }

    // Chooses the split with the least work for the busiest core; a token's table counts as kTableHeads heads.
    void split() {
        d_.row_granule = i32(granule());
        d_.row_parts = d_.head_parts = 1;
        if (d_.io == kRopeIoScalar) return;  // one core must own the scalar cache's lines
        double bytes = static_cast<double>(d_.rows) * static_cast<double>(heads() * head_bytes());
        int64_t parts = worthwhile_cores(bytes, platform_.cores);
        int64_t most_head_parts =
            d_.io == kRopeIoPacked ? 1 : std::max<int64_t>(1, std::min(parts, heads() / kLeastHeads));
        WorkSplit split = split_work(d_.rows, d_.row_granule, heads(), parts, most_head_parts, kTableHeads);
        d_.row_parts = i32(split.row_parts);
        d_.head_parts = i32(split.head_parts);
    }

    // Chooses the first shape that fits. The preferred shapes have long bursts and tables of many tokens; the search
    // shortens the bursts first, then the tables.
    bool set_tile() {
        int64_t part_rows =
            std::min(d_.rows, ceil_div(ceil_div(d_.rows, d_.row_granule), d_.row_parts) * d_.row_granule);
        int64_t unit_heads = ceil_div(heads(), d_.head_parts);
        heads_most_ = std::min(unit_heads, std::max(shape_.side[0].N, shape_.side[shape_.sides - 1].N));
        tokens_most_ = std::min({part_rows, d_.seq, kMostTokens});
        double share = static_cast<double>(part_rows) * static_cast<double>(unit_heads * head_bytes());
        auto target = static_cast<int64_t>(std::min<double>(kTileBytes, share / kTilesPerCore));
        target = std::max(target, kLeastTileBytes);
        // With few heads the table takes much of the time; more tokens per table give it longer instructions.
        int64_t most_tokens = std::clamp(kBlockRows / unit_heads, kBlockTokens, 4 * kBlockTokens);
        // For normalized heads the vector unit takes as long as the memory: build fewer tables if the tile stays whole.
        int64_t whole = std::max<int64_t>(1, std::min(ceil_div(target, heads_most_ * row_bytes()), tokens_most_));
        if (norm_ && !d_.tokens_inner && fits(whole, heads_most_, 2 * most_tokens)) return true;
        for (int64_t tokens = most_tokens; tokens >= 1; tokens /= 2) {
            int64_t least = tokens == 1 ? 0 : kLeastTileBytes;
            if (d_.tokens_inner ? fit_token_runs(target, least, tokens) : fit_token_rows(target, least, tokens))
                return true;
        }
        return false;
    }

    int64_t row_bytes() const { return d_.row_pitch * item_bytes_; }

    // Tries whole token rows up to the target size, then one row, then parts of a row.
    bool fit_token_rows(int64_t target, int64_t least, int64_t block_tokens) {
        int64_t most = std::max<int64_t>(1, std::min(ceil_div(target, heads_most_ * row_bytes()), tokens_most_));
        for (int64_t tokens = most; tokens >= 1; --tokens) {
            if (tokens < most && tokens * heads_most_ * row_bytes() < least) return false;
            if (fits(tokens, heads_most_, block_tokens)) return true;
        }
        int64_t chunks = std::max<int64_t>(2, heads_most_ * row_bytes() / (kTileBytes + row_bytes()));
        for (int64_t heads = heads_most_; heads > 1; ++chunks) {
            heads = ceil_div(heads_most_, chunks);
            if (heads * row_bytes() < std::min(least, heads_most_ * row_bytes())) return false;
            if (fits(1, heads, block_tokens)) return true;
        }
        return false;
    }

    // Tries runs of one head's tokens, for the number of heads that fills the target size.
    bool fit_token_runs(int64_t target, int64_t least, int64_t block_tokens) {
        int64_t run = even_share(tokens_most_, std::max(block_tokens, kRunBytes / row_bytes()));
        int64_t most = std::max<int64_t>(1, target / row_bytes());
        for (int64_t rows = most; rows >= 1; rows = rows * 3 / 4) {
            if (rows < most && rows * row_bytes() < least) return false;
            int64_t tokens = std::min(rows, run);
            if (fits(tokens, std::min(heads_most_, rows / tokens), block_tokens)) return true;
        }
        return false;
    }

    // Every run of a packed tile, also that of the last heads, must have the 32 bytes of a DMA.
    bool runs_are_enough(int64_t tile_heads) const {
        if (d_.io != kRopeIoPacked || head_bytes() >= kUbBlock) return true;
        for (int k = 0; k < shape_.sides; ++k) {
            int64_t heads = shape_.side[k].N, last = heads % tile_heads == 0 ? tile_heads : heads % tile_heads;
            if (std::min(tile_heads, last) * head_bytes() < kUbBlock) return false;
        }
        return true;
    }

    bool fits(int64_t tokens, int64_t heads, int64_t block_tokens) {
        if (tokens * heads > (norm_ ? kMostNormRows : kMostRows) || !runs_are_enough(heads)) return false;
        d_.tile_tokens = i32(tokens);
        d_.tile_heads = i32(heads);
        int64_t block = round_up(even_share(tokens_most_, std::max(block_tokens, tokens)), tokens);
        d_.block_tokens = i32(std::min(block, kMostTokens / tokens * tokens));
        d_.second_tokens = d_.tile_tokens;
        if (shape_.sides == 2) {
            // The number of the second side's tokens that fills the same buffer, in even parts of a block.
            int64_t most = tokens * heads / std::clamp<int64_t>(shape_.side[1].N, 1, heads);
            d_.second_tokens = i32(ceil_div(d_.block_tokens, ceil_div(d_.block_tokens, most)));
        }
        d_.token_slots = i32(round_up(d_.block_tokens, 32));
        set_buffers(tokens * heads);
        return ub_bytes() <= ub_budget_bytes(platform_);
    }

    void set_buffers(int64_t rows) {
        bool packed = d_.io == kRopeIoPacked, gathers = key_ == kRopeSwapByGather;
        int64_t lanes = rows * d_.row_pitch, width = d_.table_width, slots = d_.token_slots;
        d_.side_offset_bytes = i32(lanes * item_bytes_);
        d_.queue_bytes = i32(lanes * item_bytes_ + (packed ? rows * kUbBlock : 0));
        // Offset the second operand by half the bank groups to avoid bank conflicts.
        bool float_rows = item_bytes_ == 2 || out_bytes_ == 2 || packed;
        d_.temp_offset_bytes = float_rows ? i32(round_up(lanes * 4, kUbBankGroups) + kUbBankGroups / 2) : 0;
        int64_t most_index_lanes = d_.row_pitch <= 256 ? 2048 : 1024;
        d_.index_rows = gathers || packed ? i32(std::clamp<int64_t>(most_index_lanes / d_.row_pitch, 1, rows)) : 0;
        int64_t index_lanes = int64_t{d_.index_rows} * d_.row_pitch;
        d_.index_bytes = i32(4 * (index_lanes * (gathers + 2 * packed) + (packed ? 16 : 0)));
        d_.setup_lanes = i32(round_up(std::max({index_lanes, width, int64_t{16}}), 8));
        int64_t rows_bytes = d_.temp_offset_bytes + lanes * 4;
        int64_t table_temps = 4 * (kRopeTableTemps * d_.block_tokens * width + kRopeTokenTemps * slots);
        int64_t setup_temps =
            4 * (kRopeSetupPairTemps * round_up(d_.n_dims / 2, 8) + kRopeSetupLaneTemps * d_.setup_lanes);
        d_.lane_bytes = i32(4 * width * 4);
        d_.source_bytes = i32(slots * d_.planes * (in_.positions_int64 ? 8 : 4));
        if (given_) {
            int64_t entries = int64_t{d_.block_tokens} * given_->pitch;
            table_temps = 4 * entries;
            setup_temps = 4 * kRopeSetupLaneTemps * d_.setup_lanes;
            d_.lane_bytes = key_ == kRopeHalves ? 0 : i32(3 * width * 4);
            d_.source_bytes = i32(2 * entries * dtype_bytes(in_.tables.dtype));
        }
        if (norm_) {
            int64_t slots = round_up(rows, kRowNormSlots);
            norm_->stats_bytes = i32(4 * kRowNormStats * slots);
            norm_->factor_bytes = norm_->swaps ? i32(4 * slots) : 0;
            norm_->scale_bytes = i32(4 * 2 * d_.row_pitch * (1 + norm_->swaps));
            norm_->scale_raw_bytes = i32(item_bytes_ == 4 ? 0 : item_bytes_ * 2 * d_.row_pitch);
        }
        d_.work_bytes = i32(std::max({rows_bytes, table_temps, setup_temps}));
        int64_t one_table = d_.block_tokens * width * 4;
        d_.cos_offset_bytes = i32(round_up(one_table, kUbBankGroups) + kUbBankGroups / 2);
        d_.table_bytes = i32(d_.cos_offset_bytes + one_table);
    }

    int64_t ub_bytes() const {
        int64_t of_norm =
            norm_ ? norm_->stats_bytes + norm_->factor_bytes + norm_->scale_bytes + norm_->scale_raw_bytes : 0;
        return int64_t{4} * d_.queue_bytes + d_.work_bytes + d_.table_bytes + d_.lane_bytes + d_.source_bytes +
               d_.index_bytes + of_norm;
    }

    Check set_frequencies() {
        d_.mscale = static_cast<float>(rope_mscale(in_.params));
        std::vector<long double> frequencies = rope_frequencies(in_.params, nullptr, 0);
        if (Check c = check_rope_frequencies(frequencies); !c.ok()) return c;
        for (size_t i = 0; i < frequencies.size(); ++i) {
            long double turns = frequencies[i] / kTwoPi;
            // Whole turns do not change the angle, unless the kernel still divides them by a factor.
            if (!in_.has_factors) turns -= rintl(turns);
            if (!in_.forward) turns = -turns;
            computed_->hi[i] = static_cast<float>(turns);
            computed_->lo[i] = static_cast<float>(turns - static_cast<long double>(computed_->hi[i]));
        }
        return {};
    }

    const RopeTilingInput& in_;
    const RopeShape& shape_;
    const Platform& platform_;
    RopeTilingHead& d_;
    RopeTurns* computed_;
    RotaryTableTiling* given_;
    HeadNormTiling* norm_;
    int64_t item_bytes_, out_bytes_;
    int32_t key_ = 0;
    int64_t heads_most_ = 0, tokens_most_ = 0;  // upper bounds for the tiles of any unit, on one side
};

}  // namespace

Check check_dtype_on_chip(const char* op, const char* name, int32_t dtype, const Platform& platform, const char* soc) {
    bool has_bfloat16 = platform.arch != kArch310p;
    if (dtype != NPU_ROPE_FLOAT64 && (dtype != NPU_ROPE_BFLOAT16 || has_bfloat16)) return {};
    return bad_type(op, "%s must be %s on %s but got %s.", name,
                    has_bfloat16 ? "float32, float16 or bfloat16" : "float32 or float16", soc, dtype_name(dtype));
}

RopeTilingInput rope_tiling_input(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params,
                                  bool forward) {
    RopeTilingInput in;
    in.op = t.op;
    in.x_name = t.x_name[0];
    in.shape = shape;
    in.dtype = t.x[0]->dtype;
    in.out_dtype = t.out[0]->dtype;
    in.positions_int64 = t.positions->dtype == NPU_ROPE_INT64;
    in.has_factors = t.freq_factors != nullptr;
    in.scatters = t.scatters;
    in.rows_int64 = t.rows && t.rows->dtype == NPU_ROPE_INT64;
    in.forward = forward;
    in.params = params;
    return in;
}

Check check_rope_on_chip(const RopeTensors& t, int32_t angle, const char* backend, const Platform& platform,
                         const char* soc) {
    if (angle != NPU_ROPE_ANGLE_EXACT)
        return bad_value(t.op, "angle must be exact (0) on backend %s but got %s.", backend,
                         angle == NPU_ROPE_ANGLE_F32 ? "f32" : "ggml");
    if (Check c = check_dtype_on_chip(t.op, t.x_name[0], t.x[0]->dtype, platform, soc); !c.ok()) return c;
    return check_dtype_on_chip(t.op, t.out_name[0], t.out[0]->dtype, platform, soc);
}

Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, RopeLaunch* launch) {
    if (Check c = check_supported(in, platform); !c.ok()) return c;
    *data = RopeTilingData{};
    return Tiling(in, platform, &data->head, &data->turns, nullptr).run(launch);
}

Check rms_norm_rope_tiling(const RopeTilingInput& in, const Platform& platform, RmsNormRopeTilingData* data,
                           RopeLaunch* launch) {
    if (Check c = check_supported(in, platform); !c.ok()) return c;
    if (Check c = check_device_epsilon("rms_norm_rope", in.norm.epsilon, NPU_ROPE_FLOAT32); !c.ok()) return c;
    *data = RmsNormRopeTilingData{};
    return Tiling(in, platform, &data->head, &data->turns, nullptr, &data->norm).run(launch);
}

Check rotary_tiling(const RopeTilingInput& in, const Platform& platform, RotaryTilingData* data, RopeLaunch* launch) {
    if (Check c = check_supported(in, platform); !c.ok()) return c;
    *data = RotaryTilingData{};
    return Tiling(in, platform, &data->head, nullptr, &data->table).run(launch);
}

}  // namespace npu_rope
