#include "op_host/rope_tiling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "op_host/dtype.h"
#include "op_host/rope_check.h"
#include "op_host/rope_frequency.h"

namespace npu_rope {
namespace {

constexpr const char* kOp = "rope";

constexpr int64_t kBlock = 32;                 // bytes a DMA and a vector operand are aligned to
constexpr int64_t kTileBytes = 16 * 1024;      // a burst that uses the memory's bandwidth
constexpr int64_t kRunBytes = 8 * 1024;        // of one head's tokens, where those lie back to back
constexpr int64_t kLeastTileBytes = 4 * 1024;  // smaller ones only where nothing else fits
constexpr int64_t kLeastCoreBytes = 1024;      // of x: less is not worth a core
constexpr int64_t kLeastHeads = 4;             // a token's table is worth some heads
constexpr int64_t kTableHeads = 2;             // so many, in time
constexpr int64_t kBlockTokens = 16;           // tokens a table is made for, so that instructions are long
constexpr int64_t kBlockRows = 256;            // head rows that share a table, where heads are few
constexpr int64_t kMostTokens = 248;           // a repeat each, in whole blocks of 8
constexpr int64_t kMostRows = 4095;            // blocks of one DMA instruction
constexpr int64_t kBankGroups = 512;           // bytes after which UB's bank groups come again
constexpr int64_t kTilesPerCore = 4;           // so that copies and vectors overlap in short calls, too

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }
int32_t i32(int64_t n) { return static_cast<int32_t>(n); }
// One of the most even parts of n that are not below `least`.
int64_t even_share(int64_t n, int64_t least) { return ceil_div(n, std::max<int64_t>(1, n / least)); }

Check check_supported(const RopeTilingInput& in, const Platform& p) {
    if (in.dtype != NPU_ROPE_FLOAT32 && in.dtype != NPU_ROPE_FLOAT16 && in.dtype != NPU_ROPE_BFLOAT16)
        return bad_type(kOp, "x must be float32, float16 or bfloat16 on an NPU but got %s.", dtype_name(in.dtype));
    if (p.arch == kArch310p && in.dtype == NPU_ROPE_BFLOAT16)
        return bad_type(kOp, "x must be float32 or float16 on Ascend310P but got bfloat16.");
    if (in.D > kRopeMaxHeadSize)
        return bad_value(kOp, "x must have a head size of at most %d on an NPU but got %lld.", kRopeMaxHeadSize,
                         static_cast<long long>(in.D));
    if (in.N > INT32_MAX)
        return bad_value(kOp, "x must have at most %d heads on an NPU but got %lld.", INT32_MAX,
                         static_cast<long long>(in.N));
    return {};
}

// True where stepping `size` times by `inner` is one step by `outer`.
bool follows(int64_t outer, int64_t size, int64_t inner) {
    int64_t reach;
    return !__builtin_mul_overflow(size, inner, &reach) && reach == outer;
}

// Batches become tokens where one stride leads through both: a block's table may then span them.
void merge_batches(const RopeTilingInput& in, RopeTilingHead* d) {
    auto follow = [&](const int64_t* stride) { return follows(stride[0], in.S, stride[1]); };
    bool merged = in.B == 1 || in.S == 1 || (follow(in.x_stride) && follow(in.out_stride) && follow(in.pos_stride));
    int token = in.S == 1 ? 0 : 1;  // whose stride is the merged one
    d->rows = in.B * in.S;
    d->seq = merged ? d->rows : in.S;
    for (int k = 0; k < 3; ++k) d->x_stride[k] = in.x_stride[k];
    for (int k = 0; k < 3; ++k) d->out_stride[k] = in.out_stride[k];
    for (int k = 0; k < 2; ++k) d->pos_stride[k] = in.pos_stride[k];
    for (int64_t* stride : {d->x_stride, d->out_stride, d->pos_stride}) {
        stride[1] = d->seq == 1 ? 0 : stride[token];
        if (merged) stride[0] = 0;
    }
    if (in.N == 1) d->x_stride[2] = d->out_stride[2] = in.D;
    if (d->seq == 1) d->pos_stride[1] = 1;
}

class Tiling {
public:
    Tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data)
        : in_(in), platform_(platform), data_(*data), d_(data->head), item_bytes_(dtype_bytes(in.dtype)) {}

    Check run(RopeLaunch* launch) {
        merge_batches(in_, &d_);
        set_shape();
        set_io();
        split();
        if (!set_tile()) {
            if (d_.io != kRopeIoPacked) return {Check::kInternal, "[rope] no tile fits into UB."};
            d_.io = kRopeIoScalar;
            split();
            if (!set_tile()) return {Check::kInternal, "[rope] no tile fits into UB."};
        }
        launch->block_dim = static_cast<uint32_t>(d_.row_parts * d_.head_parts);
        launch->tiling_key = static_cast<uint64_t>(key_);
        launch->workspace_bytes = 0;
        return set_frequencies();
    }

private:
    void set_shape() {
        const npu_rope_params& p = in_.params;
        int64_t half = p.n_dims / 2;
        bool neox = p.mode == NPU_ROPE_MODE_NEOX;
        d_.heads = i32(in_.N);
        d_.head_size = i32(in_.D);
        d_.row_pitch = i32(round_up(in_.D, kBlock / item_bytes_));
        d_.n_offs = p.n_offs;
        d_.n_dims = p.n_dims;
        d_.neox = neox;
        d_.has_factors = in_.has_factors;
        if (neox && p.n_offs % 8 == 0 && half % 8 == 0) {
            key_ = kRopeHalves;
        } else if (!neox && item_bytes_ == 2 && platform_.arch != kArch310p) {
            key_ = kRopeSwapByShifts;
        } else {
            key_ = kRopeSwapByGather;
        }
        d_.lane_first = key_ == kRopeHalves ? 0 : p.n_offs / 8 * 8;
        d_.table_width = key_ == kRopeHalves ? i32(half) : i32(round_up(p.n_offs + p.n_dims, 8)) - d_.lane_first;
        // Rows are kept in UB in the order in which more of them lie back to back in GM.
        int heads_meet = (d_.x_stride[2] == in_.D) + (d_.out_stride[2] == in_.D);
        int tokens_meet = (d_.x_stride[1] == in_.D) + (d_.out_stride[1] == in_.D);
        d_.tokens_inner = tokens_meet > heads_meet;
    }

    bool heads_meet() const { return d_.x_stride[2] == in_.D && d_.out_stride[2] == in_.D; }
    int64_t head_bytes() const { return in_.D * item_bytes_; }

    void set_io() {
        d_.io = kRopeIoBurst;
        if (platform_.arch != kArch310p || head_bytes() % kBlock == 0) return;
        // Whole heads of a token are a run then, however short a head.
        bool run_is_enough = head_bytes() >= kBlock || (heads_meet() && in_.N * head_bytes() >= kBlock);
        d_.io = run_is_enough ? kRopeIoPacked : kRopeIoScalar;
        if (head_bytes() < kBlock) d_.tokens_inner = 0;
    }

    // Rows whose bytes are together a multiple of 32, where out's rows lie back to back and are not.
    int64_t granule() const {
        int64_t row_bytes = in_.N * head_bytes();
        if (d_.io != kRopeIoPacked || !heads_meet() || d_.out_stride[1] != in_.N * in_.D) return 1;
        return kBlock / std::gcd(kBlock, row_bytes);
    }

    // The split whose busiest core has the least to do; a token's table counts as some heads.
    void split() {
        d_.row_granule = i32(granule());
        d_.row_parts = d_.head_parts = 1;
        if (d_.io == kRopeIoScalar) return;  // the scalar cache's lines must have one owner
        int64_t groups = ceil_div(d_.rows, d_.row_granule);
        double bytes = static_cast<double>(d_.rows) * static_cast<double>(in_.N * head_bytes());
        auto parts = static_cast<int64_t>(
            std::max(1.0, std::min(static_cast<double>(platform_.cores), bytes / kLeastCoreBytes)));
        int64_t most_head_parts =
            d_.io == kRopeIoPacked ? 1 : std::max<int64_t>(1, std::min(parts, in_.N / kLeastHeads));
        double least = 0;
        for (int64_t head_parts = 1; head_parts <= most_head_parts; ++head_parts) {
            int64_t row_parts = std::min(groups, parts / head_parts);
            double work = static_cast<double>(ceil_div(groups, row_parts) * d_.row_granule) *
                          static_cast<double>(ceil_div(in_.N, head_parts) + kTableHeads);
            if (head_parts > 1 && work >= least) continue;
            least = work;
            d_.row_parts = i32(row_parts);
            d_.head_parts = i32(head_parts);
        }
    }

    // The first of the wanted shapes that fits: long bursts and tables of many tokens, the bursts
    // first to give way, then the tables.
    bool set_tile() {
        int64_t part_rows =
            std::min(d_.rows, ceil_div(ceil_div(d_.rows, d_.row_granule), d_.row_parts) * d_.row_granule);
        heads_most_ = ceil_div(in_.N, d_.head_parts);
        tokens_most_ = std::min({part_rows, d_.seq, kMostTokens});
        double share = static_cast<double>(part_rows) * static_cast<double>(heads_most_ * head_bytes());
        auto target = static_cast<int64_t>(std::min<double>(kTileBytes, share / kTilesPerCore));
        target = std::max(target, kLeastTileBytes);
        // Few heads leave much of the time to the table: longer instructions for it then.
        int64_t most_tokens = std::clamp(kBlockRows / heads_most_, kBlockTokens, 4 * kBlockTokens);
        for (int64_t tokens = most_tokens; tokens >= 1; tokens /= 2) {
            int64_t least = tokens == 1 ? 0 : kLeastTileBytes;
            if (d_.tokens_inner ? fit_token_runs(target, least, tokens) : fit_token_rows(target, least, tokens))
                return true;
        }
        return false;
    }

    int64_t row_bytes() const { return d_.row_pitch * item_bytes_; }

    // Whole token rows, as many as make the target; then one; then parts of one.
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

    // Runs of one head's tokens, of as many heads as make the target.
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

    // Every run of a packed tile, the last heads' too, must have a DMA's 32 bytes.
    bool runs_are_enough(int64_t heads) const {
        if (d_.io != kRopeIoPacked || head_bytes() >= kBlock) return true;
        int64_t last = in_.N % heads == 0 ? heads : in_.N % heads;
        return std::min(heads, last) * head_bytes() >= kBlock;
    }

    bool fits(int64_t tokens, int64_t heads, int64_t block_tokens) {
        if (tokens * heads > kMostRows || !runs_are_enough(heads)) return false;
        d_.tile_tokens = i32(tokens);
        d_.tile_heads = i32(heads);
        int64_t block = round_up(even_share(tokens_most_, std::max(block_tokens, tokens)), tokens);
        d_.block_tokens = i32(std::min(block, kMostTokens / tokens * tokens));
        d_.token_slots = i32(round_up(d_.block_tokens, 32));
        set_buffers(tokens * heads);
        return ub_bytes() <= ub_budget_bytes(platform_);
    }

    void set_buffers(int64_t rows) {
        bool packed = d_.io == kRopeIoPacked, gathers = key_ == kRopeSwapByGather;
        int64_t lanes = rows * d_.row_pitch, width = d_.table_width, slots = d_.token_slots;
        d_.side_offset_bytes = i32(lanes * item_bytes_);
        d_.queue_bytes = i32(lanes * item_bytes_ + (packed ? rows * kBlock : 0));
        // What two operands of an instruction are is half a turn of the bank groups apart.
        bool float_rows = item_bytes_ == 2 || packed;
        d_.temp_offset_bytes = float_rows ? i32(round_up(lanes * 4, kBankGroups) + kBankGroups / 2) : 0;
        int64_t most_index_lanes = d_.row_pitch <= 256 ? 2048 : 1024;
        d_.index_rows = gathers || packed ? i32(std::clamp<int64_t>(most_index_lanes / d_.row_pitch, 1, rows)) : 0;
        int64_t index_lanes = int64_t{d_.index_rows} * d_.row_pitch;
        d_.index_bytes = i32(4 * (index_lanes * (gathers + 2 * packed) + (packed ? 16 : 0)));
        d_.setup_lanes = i32(round_up(std::max({index_lanes, width, int64_t{16}}), 8));
        int64_t rows_bytes = d_.temp_offset_bytes + lanes * 4;
        int64_t table_temps = 4 * (kRopeTableTemps * d_.block_tokens * width + kRopeTokenTemps * slots);
        int64_t setup_temps =
            4 * (kRopeSetupPairTemps * round_up(d_.n_dims / 2, 8) + kRopeSetupLaneTemps * d_.setup_lanes);
        d_.work_bytes = i32(std::max({rows_bytes, table_temps, setup_temps}));
        int64_t one_table = d_.block_tokens * width * 4;
        d_.cos_offset_bytes = i32(round_up(one_table, kBankGroups) + kBankGroups / 2);
        d_.table_bytes = i32(d_.cos_offset_bytes + one_table);
        d_.lane_bytes = i32(4 * width * 4);
        d_.position_bytes = i32(slots * (in_.positions_int64 ? 8 : 4));
    }

    int64_t ub_bytes() const {
        return int64_t{4} * d_.queue_bytes + d_.work_bytes + d_.table_bytes + d_.lane_bytes + d_.position_bytes +
               d_.index_bytes;
    }

    Check set_frequencies() {
        d_.mscale = static_cast<float>(rope_mscale(in_.params));
        std::vector<long double> frequencies = rope_frequencies(in_.params, nullptr, 0);
        for (size_t i = 0; i < frequencies.size(); ++i) {
            double radians = std::fabs(static_cast<double>(frequencies[i]));
            if (Check c = check_rope_frequency(radians, static_cast<int64_t>(i)); !c.ok()) return c;
            long double turns = frequencies[i] / kTwoPi;
            // Whole turns mean nothing, unless a factor is still to divide them.
            if (!in_.has_factors) turns -= rintl(turns);
            if (!in_.forward) turns = -turns;
            data_.turns_hi[i] = static_cast<float>(turns);
            data_.turns_lo[i] = static_cast<float>(turns - static_cast<long double>(data_.turns_hi[i]));
        }
        return {};
    }

    const RopeTilingInput& in_;
    const Platform& platform_;
    RopeTilingData& data_;
    RopeTilingHead& d_;
    int64_t item_bytes_;
    int32_t key_ = 0;
    int64_t heads_most_ = 0, tokens_most_ = 0;  // of any unit
};

}  // namespace

Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, RopeLaunch* launch) {
    if (Check c = check_supported(in, platform); !c.ok()) return c;
    *data = RopeTilingData{};
    return Tiling(in, platform, data).run(launch);
}

}  // namespace npu_rope
