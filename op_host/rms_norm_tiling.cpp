#include "op_host/rms_norm_tiling.h"

#include <algorithm>
#include <vector>

#include "csrc/core/dtype.h"
#include "op_host/row_norm_tiling.h"
#include "op_host/work_split.h"

namespace npu_rope {
namespace {

constexpr int64_t kMostRows = 512;  // of a tile; each row needs memory for its root
constexpr int64_t kMostChunk = 4096;
constexpr int64_t kLeastChunk = 512;
constexpr int64_t kChunkGranule = 16;  // elements, whole blocks of every type
constexpr int64_t kIndexLanes = 2048;  // most lanes of one Gather, except for longer rows

using Strides = int64_t (&)[kRmsNormOuter];

// The dimensions before axis as [batch, token, head]. Neighbouring dimensions that one stride covers are
// merged.
class Dimensions {
public:
    Dimensions(const RmsNormTilingInput& in, RmsNormTilingData* d) : shape_(in.shape), d_(*d) {
        RopeTilingHead& head = d->head;
        tracks_ = {{shape_.x_stride, head.side[0].x_stride}, {shape_.out_stride, head.side[0].out_stride}};
        if (in.adds) {
            tracks_.push_back({shape_.residual_stride, head.side[1].x_stride});
            tracks_.push_back({shape_.sum_stride, head.side[1].out_stride});
        }
        if (in.backward) tracks_.push_back({shape_.grad_stride, head.side[1].x_stride});
        d->scale_shared = is_shared();
        if (!d->scale_shared) tracks_.push_back({shape_.scale_stride, d->scale_stride});
    }

    // Returns false if one dimension has more rows than a launch can number.
    bool join() {
        for (int k = 0; k < kRmsNormOuter; ++k)
            if (shape_.outer[k] > 1) join_one(k);
        // One dimension is tokens, two are tokens and heads.
        int64_t size[kRmsNormOuter] = {1, 1, 1};
        const int first = sizes_.size() == 3 ? 0 : 1;
        for (size_t i = 0; i < sizes_.size(); ++i) size[first + static_cast<int>(i)] = sizes_[i];
        for (size_t t = 0; t < tracks_.size(); ++t)
            for (size_t i = 0; i < sizes_.size(); ++i) tracks_[t].to[first + static_cast<int>(i)] = strides_[i][t];
        if (size[2] > INT32_MAX) return false;
        d_.head.rows = size[0] * size[1];
        d_.head.seq = size[1];
        d_.head.heads = d_.head.first_heads = i32(size[2]);
        return true;
    }

private:
    struct Track {
        const int64_t* from;
        int64_t* to;
    };

    bool is_shared() const {
        for (int k = 0; k < kRmsNormOuter; ++k)
            if (shape_.outer[k] > 1 && shape_.scale_stride[k] != 0) return false;
        return true;
    }

    // Merges dimension k with those before it if their strides allow it.
    void join_one(int k) {
        std::vector<int64_t> strides;
        for (const Track& t : tracks_) strides.push_back(t.from[k]);
        bool follows = !sizes_.empty();
        for (size_t t = 0; follows && t < strides.size(); ++t) {
            int64_t reach;
            follows = !__builtin_mul_overflow(shape_.outer[k], strides[t], &reach) && reach == strides_.back()[t];
        }
        if (follows) {
            sizes_.back() *= shape_.outer[k];
            strides_.back() = strides;
        } else {
            sizes_.push_back(shape_.outer[k]);
            strides_.push_back(strides);
        }
    }

    const RmsNormShape& shape_;
    RmsNormTilingData& d_;
    std::vector<Track> tracks_;
    std::vector<int64_t> sizes_;
    std::vector<std::vector<int64_t>> strides_;
};

class Tiling {
public:
    Tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data)
        : in_(in),
          platform_(platform),
          d_(*data),
          head_(data->head),
          n_(in.shape.n),
          x_bytes_(dtype_bytes(in.dtype)),
          out_bytes_(dtype_bytes(in.scale_dtype)) {}

    Check run(RopeLaunch* launch) {
        if (!Dimensions(in_, &d_).join())
            return bad_value(in_.op, "x",
                             formatted("have at most %d rows in a dimension of its own on an NPU", INT32_MAX), "more");
        set_shape();
        launch->tiling_key = kRmsNormRows;
        if (!set_rows()) {
            launch->tiling_key = kRmsNormLong;
            if (!set_long()) return internal_error(in_.op, "tile", "fit into UB", "none that does");
        }
        launch->block_dim = static_cast<uint32_t>(head_.row_parts * head_.head_parts);
        launch->workspace_bytes = 0;
        return {};
    }

private:
    void set_shape() {
        const RmsNormShape& s = in_.shape;
        d_.n = n_;
        std::copy(std::begin(s.inner), std::end(s.inner), d_.inner);
        std::copy(std::begin(s.scale_inner_stride), std::end(s.scale_inner_stride), d_.inner_stride);
        bool one = std::all_of(s.scale_inner_stride, s.scale_inner_stride + NPU_ROPE_MAX_NDIM,
                               [](int64_t stride) { return stride == 0; });
        d_.scale_kind = s.scale_is_dense ? kScaleDense : one ? kScaleOne : kScaleScattered;
        d_.stash = s.stash_dtype == NPU_ROPE_FLOAT16    ? kStashFloat16
                   : s.stash_dtype == NPU_ROPE_BFLOAT16 ? kStashBfloat16
                                                        : kStashFloat32;
        d_.inverse_n = static_cast<float>(1.0 / static_cast<double>(n_));
        d_.norm = row_norm_tiling(n_, s.epsilon, d_.stash, in_.dtype != NPU_ROPE_FLOAT16);
        head_.row_granule = head_.row_parts = head_.head_parts = 1;
        head_.index_words = 1;
        head_.planes = 1;
    }

    bool is_float() const { return x_bytes_ == 4; }
    int64_t heads() const { return head_.heads; }

    // ---- whole rows

    bool set_rows() {
        if (n_ > kMostChunk * 4) return false;
        head_.head_size = i32(n_);
        set_io();
        split(head_.io == kRopeIoScalar);
        int64_t part_rows = ceil_div(ceil_div(head_.rows, head_.row_granule), head_.row_parts) * head_.row_granule;
        int64_t part_heads = ceil_div(heads(), head_.head_parts);
        // UB has the order of rows in which more of them are adjacent in GM.
        head_.tokens_inner = heads() > 1 && head_.side[0].x_stride[1] == n_ && head_.side[0].x_stride[2] != n_;
        int64_t tokens_most = std::min(part_rows, head_.seq);
        int64_t row_bytes = int64_t{head_.row_pitch} * x_bytes_;
        int64_t target = tile_target(part_rows, part_heads, row_bytes);
        int64_t rows = std::clamp<int64_t>(ceil_div(target, row_bytes), 1, kMostRows);
        for (; rows >= 1; rows = rows > 4 ? rows * 3 / 4 : rows - 1)
            if (fits(rows, tokens_most, part_heads)) return true;
        return false;
    }

    void set_io() {
        bool whole_blocks = n_ * x_bytes_ % kUbBlock == 0 && n_ * out_bytes_ % kUbBlock == 0;
        int64_t least = std::min(x_bytes_, out_bytes_);
        head_.io = kRopeIoBurst;
        if (platform_.arch == kArch310p && !whole_blocks)
            head_.io = n_ * least < kUbBlock ? kRopeIoScalar : kRopeIoPacked;
        int64_t of_x = kUbBlock / x_bytes_, of_out = kUbBlock / out_bytes_;
        if (head_.io == kRopeIoPacked) of_x = of_out = std::max(of_x, of_out);
        head_.row_pitch = i32(round_up(n_, of_x));
        head_.out_pitch = i32(round_up(n_, of_out));
        d_.scale_pitch = i32(round_up(n_, kUbBlock / out_bytes_));
    }

    void split(bool in_one) {
        WorkSplit split;  // one core must own the scalar cache's lines
        if (!in_one) split = split_work(head_.rows, 1, heads(), n_ * x_bytes_, platform_.cores, 1, 0);
        head_.row_parts = i32(split.row_parts);
        head_.head_parts = i32(split.head_parts);
    }

    bool fits(int64_t rows, int64_t tokens_most, int64_t heads_most) {
        int64_t tokens, of_heads;
        if (head_.tokens_inner) {
            tokens = std::min(rows, tokens_most);
            of_heads = std::min(heads_most, rows / tokens);
        } else {
            of_heads = std::min(rows, heads_most);
            tokens = std::min(tokens_most, rows / of_heads);
        }
        head_.tile_tokens = head_.second_tokens = head_.block_tokens = i32(tokens);
        head_.tile_heads = i32(of_heads);
        set_buffers(tokens * of_heads);
        return ub_bytes() <= ub_budget_bytes(platform_);
    }

    void set_buffers(int64_t rows) {
        if (in_.backward) return set_gradient_buffers(rows);
        bool packed = head_.io == kRopeIoPacked;
        int64_t lanes = rows * head_.row_pitch, sides = packed ? rows * kUbBlock : 0;
        int64_t plain = std::max(lanes * x_bytes_, rows * head_.out_pitch * out_bytes_);
        head_.side_offset_bytes = i32(plain);
        head_.queue_bytes = i32(plain + sides);
        d_.sum_queue_bytes = i32(!in_.adds ? 0 : packed ? plain + sides : lanes * x_bytes_);
        bool in_place = is_float() && !packed;
        head_.temp_offset_bytes = in_place ? 0 : i32(conflict_free_offset(lanes * 4));
        int64_t temp = lanes * 4 + (packed && !is_float() ? lanes * x_bytes_ : 0);
        set_work(rows, temp);
        d_.stats_bytes = i32(4 * kRowNormStats * round_up(rows, kRowNormSlots));
        set_scale((d_.scale_shared ? 1 : rows) * int64_t{d_.scale_pitch});
    }

    void set_scale(int64_t elements) {
        d_.scale_bytes = i32(4 * elements);
        d_.scale_raw_bytes = i32(out_bytes_ == 4 ? 0 : out_bytes_ * elements);
    }

    void set_gradient_buffers(int64_t rows) {
        bool packed = head_.io == kRopeIoPacked;
        int64_t lanes = rows * head_.row_pitch, grad_lanes = rows * head_.out_pitch;
        int64_t x_queue = lanes * x_bytes_, grad_queue = grad_lanes * out_bytes_;
        if (packed) {
            head_.side_offset_bytes = i32(std::max(x_queue, grad_queue));
            x_queue = grad_queue = head_.side_offset_bytes + rows * kUbBlock;
        }
        head_.queue_bytes = i32(x_queue);
        d_.grad_queue_bytes = i32(grad_queue);
        bool in_place = is_float() && !packed, gathers_narrow = packed && std::min(x_bytes_, out_bytes_) < 4;
        d_.g_offset_bytes = in_place ? 0 : i32(conflict_free_offset(lanes * 4));
        head_.temp_offset_bytes = i32(conflict_free_offset(d_.g_offset_bytes + grad_lanes * 4));
        set_work(rows, lanes * 4 + (gathers_narrow ? lanes * 2 : 0));
        d_.stats_bytes = i32(4 * (kRowNormStats + kGradientStats) * round_up(rows, kRowNormSlots));
        set_scale(d_.scale_pitch);
        d_.dscale_bytes = i32(4 * (int64_t{head_.row_pitch} + kDscaleMore));
    }

    // temp: bytes behind temp_offset_bytes.
    void set_work(int64_t rows, int64_t temp) {
        const bool packed = head_.io == kRopeIoPacked;
        head_.index_rows = packed ? i32(std::clamp<int64_t>(kIndexLanes / head_.row_pitch, 1, rows)) : 0;
        int64_t index_lanes = int64_t{head_.index_rows} * head_.row_pitch;
        head_.setup_lanes = packed ? i32(round_up(std::max<int64_t>(index_lanes, 16), 8)) : 0;
        head_.index_bytes = packed ? i32(2 * 4 * (2 * index_lanes + 16)) : 0;
        int64_t setup = int64_t{4} * kRopeSetupLaneTemps * head_.setup_lanes;
        head_.work_bytes = i32(std::max(head_.temp_offset_bytes + temp, setup));
    }

    int64_t ub_bytes() const {
        return int64_t{4} * head_.queue_bytes + int64_t{4} * d_.sum_queue_bytes + int64_t{2} * d_.grad_queue_bytes +
               head_.work_bytes + d_.stats_bytes + d_.scale_bytes + d_.scale_raw_bytes + head_.index_bytes +
               d_.row_bytes + d_.dscale_bytes;
    }

    // ---- rows in chunks

    bool set_long() {
        head_.io = kRopeIoBurst;
        head_.tokens_inner = 0;
        head_.head_size = 0;
        head_.block_tokens = head_.tile_tokens = head_.second_tokens = head_.tile_heads = 1;
        head_.index_bytes = head_.index_rows = head_.setup_lanes = head_.temp_offset_bytes = 0;
        split(false);
        // UB can keep the row between the walks over it (backward: the sums of the scale's gradient), and the scale.
        struct Kept {
            bool row, scale;
        };
        for (Kept kept : {Kept{true, true}, Kept{true, false}, Kept{false, false}}) {
            if (kept.scale && !in_.backward && !d_.scale_shared) continue;
            for (int64_t chunk = kMostChunk; chunk >= kLeastChunk; chunk /= 2)
                if (fits_long(with_whole_end(chunk), kept.row, kept.scale)) return true;
        }
        return false;
    }

    // This chunk size or slightly less, so that the last chunk of a row has the 32 bytes of a DMA.
    int64_t with_whole_end(int64_t chunk) const {
        while (n_ % chunk != 0 && n_ % chunk < kUbBlock / 2) chunk -= kChunkGranule;
        return chunk;
    }

    // Returns the number of elements of all chunks, or 0 if they cannot stay in UB.
    int64_t set_chunk(int64_t chunk) {
        d_.chunk = i32(chunk);
        int64_t chunks = ceil_div(n_, chunk), all = chunks * chunk;
        d_.levels = 1;
        while (chunks >> d_.levels != 0) ++d_.levels;
        return all > INT32_MAX / 8 ? 0 : all;
    }

    bool fits_long(int64_t chunk, bool row_stays, bool scale_stays) {
        const bool backward = in_.backward;
        (backward ? d_.dscale_stays : d_.row_stays) = row_stays;
        d_.scale_stays = scale_stays;
        int64_t all = set_chunk(chunk), row = row_stays ? all : chunk;
        if (all == 0 && (row_stays || scale_stays)) return false;
        head_.queue_bytes = i32(chunk * (backward ? x_bytes_ : std::max(x_bytes_, out_bytes_)) + kUbBlock);
        d_.sum_queue_bytes = in_.adds ? i32(chunk * x_bytes_ + kUbBlock) : 0;
        d_.grad_queue_bytes = backward ? i32(chunk * out_bytes_ + kUbBlock) : 0;
        constexpr int64_t kOffsets = 2 * 16, kLargest = 8;
        int64_t sums = ((1 + backward) * d_.levels + 1) * int64_t{kRowNormSlots};
        head_.work_bytes = i32(4 * ((2 + backward) * chunk + sums + kLargest + kOffsets));
        d_.row_bytes = backward ? 0 : i32(4 * row);
        d_.dscale_bytes = backward ? i32(4 * (row + kDscaleMore)) : 0;
        d_.stats_bytes = 4 * (kRowNormStats + backward * kGradientStats) * kRowNormSlots;
        d_.scale_bytes = i32(4 * (scale_stays ? all : chunk));
        d_.scale_raw_bytes = i32(out_bytes_ == 4 ? 0 : out_bytes_ * chunk);
        return ub_bytes() <= ub_budget_bytes(platform_);
    }

    const RmsNormTilingInput& in_;
    const Platform& platform_;
    RmsNormTilingData& d_;
    RopeTilingHead& head_;
    int64_t n_, x_bytes_, out_bytes_;
};

// Whether the scale has one element for each element of a row and all rows share it.
bool scale_is_of_each_row(const RmsNormShape& s) {
    for (int k = 0; k < kRmsNormOuter; ++k)
        if (s.outer[k] > 1 && !s.scale_is_shared[k]) return false;
    return s.scale_is_dense;
}

Check scale_of_each_row(const RmsNormTilingInput& in, const char* soc) {
    if (in.shape.rows == 0 || in.shape.n == 0 || scale_is_of_each_row(in.shape)) return {};
    int first = 0;
    while (first < NPU_ROPE_MAX_NDIM - 1 && in.shape.inner[first] == 1) ++first;
    return bad_value(in.op, "scale",
                     formatted("have the elements of one row, %s, for all rows and be contiguous on %s",
                               shape_text(in.shape.inner + first, NPU_ROPE_MAX_NDIM - first).c_str(), soc),
                     "one that lacks some, is another one for other rows or has gaps");
}

}  // namespace

Check check_rms_norm_on_chip(const RmsNormTilingInput& in, const Platform& platform) {
    if (in.backward)
        if (Check c = scale_of_each_row(in, platform.soc); !c.ok()) return c;
    if (Check c = check_dtype_on_chip(in.op, "x", in.dtype, platform); !c.ok()) return c;
    if (Check c = check_dtype_on_chip(in.op, "scale", in.scale_dtype, platform); !c.ok()) return c;
    const int32_t stash = in.shape.stash_dtype;
    if (Check c = check_device_epsilon(in.op, in.shape.epsilon, stash); !c.ok()) return c;
    if (check_dtype_on_chip(in.op, "stash_type", stash, platform).ok()) return {};
    return bad_value(in.op, "stash_type",
                     formatted("be %s on %s",
                               has_bfloat16(platform.arch) ? "1 (float32), 10 (float16) or 16 (bfloat16)"
                                                           : "1 (float32) or 10 (float16)",
                               platform.soc),
                     stash == NPU_ROPE_FLOAT64 ? "11 (float64)" : "16 (bfloat16)");
}

Check rms_norm_tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data,
                      RopeLaunch* launch) {
    *data = RmsNormTilingData{};
    return Tiling(in, platform, data).run(launch);
}

Check check_and_tile_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, const Platform& platform,
                              Tiled<RmsNormTilingData>* tiled) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    const RmsNormTilingInput in = rms_norm_tiling_input(t, shape);
    if (Check c = check_rms_norm_on_chip(in, platform); !c.ok()) return c;
    tiled->has_elements = shape.rows != 0 && shape.n != 0;
    return tiled->has_elements ? rms_norm_tiling(in, platform, &tiled->data, &tiled->launch) : Check{};
}

}  // namespace npu_rope
