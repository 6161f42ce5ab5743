#include "op_host/qk_square_sums_tiling.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "csrc/core/dtype.h"
#include "csrc/core/tensor_rules.h"
#include "op_host/ub_layout.h"
#include "op_host/work_split.h"

namespace npu_rope {
namespace {

constexpr const char* kOp = "qk_square_sums";

constexpr int64_t kLongestWholeHead = 8192;  // elements; longer heads are processed in chunks
constexpr int64_t kChunk = 8192;             // elements, or a little less
constexpr int64_t kChunkGranule = 16;        // a multiple of 16 elements has whole 32-byte blocks in every type
constexpr int64_t kMaxBlockTokens = 256;     // tokens whose sums are stored together
constexpr int64_t kMaxRows = 4095;           // of a tile: a DMA instruction copies at most 4095 rows
constexpr int64_t kMaxGatherLanes = 2048;    // lanes of one Gather, unless a row is longer
constexpr int64_t kLeastStoredTokens = 4;    // Ascend310P: a DMA stores at least 32 bytes
// The time in which the cores wait for each other, as bytes that a core reads. The heads of a token go to several cores
// only if this makes the longest share shorter by more.
constexpr int64_t kWaitBytes = 64 * 1024;

// The tokens and heads of a tile of the side with more heads.
struct Tile {
    int64_t tokens = 1, heads = 1;
};

// The layout of UB. QkSquareSumsTilingData explains the names.
struct Layout {
    Tile tile;
    int64_t levels = 0, gather_rows = 0, setup_lanes = 0, tail_offset = 0, temp_offset = 0;
    UbRegion inputs, outputs, work, gather_offsets;

    std::array<UbRegion*, 4> regions() { return {&inputs, &outputs, &work, &gather_offsets}; }
};

class Tiling {
public:
    Tiling(const QkSquareSumsTilingInput& in, const Platform& platform, QkSquareSumsTilingData* data)
        : in_(in), platform_(platform), data_(*data), common_(data->common), item_bytes_(dtype_bytes(in.dtype)) {}

    Check run(KernelLaunch* launch) {
        if (Check c = check_sizes(); !c.ok()) return c;
        is_long_ = in_.D > kLongestWholeHead;
        set_shape();
        if (Check c = split(); !c.ok()) return c;
        if (!set_block()) return internal_error(kOp, "block", "have enough tokens for a DMA", "fewer");
        const std::optional<Layout> layout = is_long_ ? layout_of_chunks() : first_fitting_layout();
        if (!layout) return internal_error(kOp, "tile", "fit into UB", "none that does");
        set_layout(*layout);
        const bool is_split = common_.head_parts > 1;
        launch->tiling_key = static_cast<uint64_t>((is_long_ ? kSquareSumsLong : kSquareSumsRows) +
                                                   (is_split ? kSquareSumsSplitRows - kSquareSumsRows : 0));
        launch->block_dim = static_cast<uint32_t>(common_.row_parts * common_.head_parts);
        if (is_split) {
            data_.part_pitch = round_up(2 * in_.S, kUbBlockBytes / 4);
            launch->workspace_bytes = common_.head_parts * data_.part_pitch * 4;
            launch->cores_wait = true;
        }
        return {};
    }

private:
    Check check_sizes() const {
        for (int k = 0; k < 2; ++k)
            if (in_.N[k] > INT32_MAX / 2)
                return bad_value(kOp, k == 0 ? "q" : "k", formatted("have at most %d heads on an NPU", INT32_MAX / 2),
                                 std::to_string(in_.N[k]));
        return {};
    }

    bool is_310p() const { return platform_.arch == kArch310p; }
    int64_t head_bytes() const { return in_.D * item_bytes_; }
    int64_t heads() const { return common_.heads; }
    bool is_packed() const { return common_.copy_mode == kCopyPacked; }

    void set_shape() {
        common_.rows = common_.seq = in_.S;
        for (int k = 0; k < 2; ++k) std::copy(in_.x_stride[k], in_.x_stride[k] + 2, common_.side[k].x_stride + 1);
        set_heads(common_, {in_.N[0], in_.N[1]});
        data_.head_elements = in_.D;
        common_.copy_mode = kCopyBursts;
        if (is_long_) return;
        common_.head_size = to_int32(in_.D);
        common_.row_pitch = to_int32(round_up(in_.D, kUbBlockBytes / item_bytes_));
        if (is_310p() && head_bytes() % kUbBlockBytes != 0)
            common_.copy_mode = runs_are_long_enough() ? kCopyPacked : kCopyScalar;
    }

    // Whether a DMA, which copies at least 32 bytes, can copy each head, or all adjacent heads of a token.
    bool runs_are_long_enough() const {
        if (head_bytes() >= kUbBlockBytes) return true;
        for (int k = 0; k < 2; ++k)
            if (in_.N[k] > 0 && (in_.N[k] * head_bytes() < kUbBlockBytes || in_.x_stride[k][1] != in_.D)) return false;
        return true;
    }

    // ---- the cores' shares

    Check split() {
        const int64_t all = heads();
        WorkSplit best = split_work(in_.S, 1, all, head_bytes(), platform_.cores, all, 0);
        common_.row_granule = 1;
        if (is_310p()) {
            // Each share has enough tokens for the store of its sums.
            int64_t share = std::max(kLeastStoredTokens, ceil_div(in_.S, best.row_parts));
            while (!can_store(in_.S % share)) ++share;
            if (share > INT32_MAX)
                return bad_value(kOp, "q", formatted("have at most %d tokens for each core of an NPU", INT32_MAX),
                                 formatted("%lld for %d cores", static_cast<long long>(in_.S), platform_.cores));
            common_.row_granule = to_int32(share);
            best.row_parts = ceil_div(in_.S, share);
        } else {
            const WorkSplit by_heads = split_work(in_.S, 1, all, head_bytes(), platform_.cores, 1, 0);
            // After the wait, each core adds the parts of a share of the tokens, in the memory of one block.
            const bool fits = ceil_div(in_.S, by_heads.row_parts * by_heads.head_parts) <= kMaxBlockTokens;
            if (fits && longest_share_bytes(by_heads) + kWaitBytes < longest_share_bytes(best)) best = by_heads;
        }
        common_.row_parts = to_int32(best.row_parts);
        common_.head_parts = to_int32(best.head_parts);
        return {};
    }

    // As a double: q and k together may have more than 2^63 bytes.
    double longest_share_bytes(const WorkSplit& split) const {
        return static_cast<double>(ceil_div(in_.S, split.row_parts)) *
               static_cast<double>(ceil_div(heads(), split.head_parts)) * static_cast<double>(head_bytes());
    }

    // Whether a part of a number of tokens leaves a rest that a DMA can store.
    bool can_store(int64_t rest) const { return !is_310p() || in_.S < kLeastStoredTokens || !is_too_few(rest); }
    static bool is_too_few(int64_t tokens) { return tokens > 0 && tokens < kLeastStoredTokens; }

    int64_t share_tokens() const {
        return std::min(in_.S, ceil_div(ceil_div(in_.S, common_.row_granule), common_.row_parts) * common_.row_granule);
    }
    int64_t share_heads() const { return ceil_div(heads(), common_.head_parts); }

    // Sets the largest block whose rest, in each share, can be stored. Returns false if there is none.
    bool set_block() {
        const int64_t share = share_tokens(), last_share = in_.S % common_.row_granule;
        data_.stores_by_scalar = is_310p() && in_.S < kLeastStoredTokens;
        int64_t block = std::min(share, kMaxBlockTokens);
        while (!(can_store(share % block) && can_store(last_share % block))) --block;  // a block of 1 has no rest
        common_.block_tokens = to_int32(block);
        return can_store(block);
    }

    // ---- UB

    // The tiles, the preferred ones first: whole tokens, then parts of one token.
    std::vector<Tile> tiles() const {
        const int64_t most_heads = std::min(std::max(in_.N[0], in_.N[1]), share_heads());
        const int64_t row_bytes = common_.row_pitch * item_bytes_;
        const int64_t rows =
            std::clamp<int64_t>(target_tile_bytes(share_tokens(), share_heads(), row_bytes) / row_bytes, 1, kMaxRows);
        std::vector<Tile> tiles;
        for (int64_t tokens = rows / most_heads; tokens > 1; tokens = tokens * 3 / 4)
            tiles.push_back({std::min<int64_t>(tokens, common_.block_tokens), most_heads});
        if (most_heads <= kMaxRows) tiles.push_back({1, most_heads});
        for (int64_t heads = std::min(rows, most_heads); heads >= 1; heads = heads * 3 / 4) tiles.push_back({1, heads});
        return tiles;
    }

    std::optional<Layout> first_fitting_layout() {
        for (const Tile& tile : tiles()) {
            Layout layout = layout_of_rows(tile);
            if (fits(&layout)) return layout;
        }
        if (!is_packed()) return std::nullopt;
        common_.copy_mode = kCopyScalar;
        return first_fitting_layout();
    }

    bool fits(Layout* layout) const {
        // Parts of a token, in runs that a DMA cannot copy.
        const bool splits_run =
            is_packed() && head_bytes() < kUbBlockBytes && layout->tile.heads < std::max(in_.N[0], in_.N[1]);
        return !splits_run && place_regions(layout->regions()) <= ub_budget_bytes(platform_);
    }

    Layout layout_of_rows(const Tile& tile) const {
        const bool is_float = item_bytes_ == 4, in_place = is_float && !is_packed();
        const int64_t rows = tile.tokens * tile.heads, lanes = rows * common_.row_pitch;
        Layout layout;
        layout.tile = tile;
        layout.tail_offset = lanes * item_bytes_;
        set_buffers(&layout, layout.tail_offset + (is_packed() ? rows * kUbBlockBytes : 0),
                    ceil_div(share_heads(), tile.heads));
        int64_t temp_bytes = lanes / 2;  // the sums of blocks of 8 lanes
        layout.temp_offset = in_place ? 0 : 4 * lanes;
        if (is_packed()) {
            layout.gather_rows = std::clamp<int64_t>(kMaxGatherLanes / common_.row_pitch, 1, rows);
            const int64_t gather_lanes = layout.gather_rows * common_.row_pitch;
            layout.setup_lanes = round_up(std::max<int64_t>(gather_lanes, 16), 8);
            layout.gather_offsets.bytes = 4 * (2 * gather_lanes + 16);  // in both directions, and of a block
            if (!is_float) temp_bytes = lanes * item_bytes_;
        }
        add_rows(&layout, std::max(layout.temp_offset + temp_bytes, 4 * kRopeSetupLaneTemps * layout.setup_lanes));
        return layout;
    }

    std::optional<Layout> layout_of_chunks() {
        // The last chunk of a head must have at least 32 bytes, the least size of a DMA.
        int64_t chunk = kChunk;
        while (in_.D % chunk != 0 && in_.D % chunk < kUbBlockBytes / 2) chunk -= kChunkGranule;
        data_.chunk = to_int32(chunk);
        Layout layout;
        set_buffers(&layout, chunk * item_bytes_ + kUbBlockBytes, share_heads() * ceil_div(in_.D, chunk));
        layout.temp_offset = 4 * chunk;
        add_rows(&layout, layout.temp_offset + round_up(chunk / 2, kUbBlockBytes));
        return fits(&layout) ? std::optional(layout) : std::nullopt;
    }

    // chunks: the largest number of tiles or chunks of a token.
    void set_buffers(Layout* layout, int64_t input_bytes, int64_t chunks) const {
        constexpr int64_t kLeastBytes = 4 * 64;  // ChunkSums fills 64 lanes
        layout->inputs.bytes = 2 * std::max(round_up(input_bytes, kUbBlockBytes), kLeastBytes);
        layout->outputs.bytes = 2 * (4 * round_up(2 * common_.block_tokens, 8) + kUbBlockBytes);
        layout->levels = 1;
        while (chunks >> layout->levels != 0) ++layout->levels;
    }

    // bytes: of the rows and temporaries, or of the setup.
    void add_rows(Layout* layout, int64_t bytes) const {
        constexpr int64_t kLaneSums = 64, kOffsets = 2 * 16, kLeastBytes = 4 * 64;
        const int64_t parts = common_.head_parts > 1 ? common_.head_parts * round_up(2 * common_.block_tokens, 8) : 0;
        layout->work.bytes = 4 * ((1 + layout->levels) * kLaneSums + kOffsets) +
                             round_up(std::max({bytes, 4 * parts, kLeastBytes}), kUbBlockBytes);
    }

    void set_layout(const Layout& layout) {
        set_common_layout(common_, layout);
        for (int k = 0; k < 2; ++k) {
            // This side fills the same buffer with its tokens. A tile with some heads of a token has one token.
            const int64_t heads = std::min(std::max<int64_t>(in_.N[k], 1), share_heads());
            const int64_t tokens = heads <= layout.tile.heads ? layout.tile.tokens * layout.tile.heads / heads : 1;
            common_.tile_tokens[k] = to_int32(std::min<int64_t>(tokens, common_.block_tokens));
        }
        data_.levels = to_int32(layout.levels);
        data_.out_bytes = to_int32(layout.outputs.bytes / 2);
    }

    const QkSquareSumsTilingInput& in_;
    const Platform& platform_;
    QkSquareSumsTilingData& data_;
    CommonTiling& common_;
    const int64_t item_bytes_;
    bool is_long_ = false;
};

// out is written in pieces of contiguous memory.
Check check_contiguous(const npu_rope_tensor& out) {
    if (is_dense_from(0, out.ndim, out.shape, out.stride)) return {};
    return bad_value(kOp, "out", "be contiguous on an NPU", "strides " + shape_text(out.stride, out.ndim));
}

}  // namespace

Check qk_square_sums_tiling(const QkSquareSumsTilingInput& in, const Platform& platform, QkSquareSumsTilingData* data,
                            KernelLaunch* launch) {
    *data = QkSquareSumsTilingData{};
    return Tiling(in, platform, data).run(launch);
}

Check check_and_tile_qk_square_sums(const QkSquareSumsTensors& t, const Platform& platform,
                                    TilingResult<QkSquareSumsTilingData>* tiled) {
    if (Check c = check_qk_square_sums(t.q, t.k, t.out, t.known, t.out_may_be_null); !c.ok()) return c;
    if (Check c = check_dtype_on_chip(kOp, "q", t.q->dtype, platform); !c.ok()) return c;
    if (t.out)
        if (Check c = check_contiguous(*t.out); !c.ok()) return c;
    QkSquareSumsTilingInput in;
    in.S = t.q->shape[0];
    in.D = t.q->shape[2];
    in.dtype = t.q->dtype;
    for (int k = 0; k < 2; ++k) {
        const npu_rope_tensor& x = k == 0 ? *t.q : *t.k;
        in.N[k] = x.shape[1];
        in.x_stride[k][0] = used_stride(x, 0);
        in.x_stride[k][1] = used_stride(x, 1);
    }
    if (in.S == 0 || in.D == 0 || in.N[0] + in.N[1] == 0) return {};
    return qk_square_sums_tiling(in, platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
