#include "op_host/rms_norm_tiling.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/core/dtype.h"
#include "op_host/rms_norm_tile.h"
#include "op_host/row_norm_tiling.h"
#include "op_host/work_split.h"

namespace npu_rope {
namespace {

// Elements. Longer rows, and rows for which no layout fits, are processed in chunks.
constexpr int64_t kLongestWholeRow = 16384;

// The dimensions before axis as [batch, token, head]. Adjacent dimensions that one stride covers are merged.
class Dimensions {
public:
    Dimensions(const RmsNormTilingInput& in, RmsNormTilingData* d) : shape_(in.shape), d_(*d) {
        RopeTilingHead& head = d->head;
        tensors_ = {{shape_.x_stride, head.side[0].x_stride}, {shape_.out_stride, head.side[0].out_stride}};
        if (in.adds) {
            tensors_.push_back({shape_.residual_stride, head.side[1].x_stride});
            tensors_.push_back({shape_.sum_stride, head.side[1].out_stride});
        }
        if (in.backward) tensors_.push_back({shape_.grad_stride, head.side[1].x_stride});
        d->scale_shared = is_shared();
        if (!d->scale_shared) tensors_.push_back({shape_.scale_stride, d->scale_stride});
    }

    // Returns false if there are more heads than a launch can number.
    bool merge() {
        for (int k = 0; k < kMaxOuterDims; ++k)
            if (shape_.outer[k] > 1) merge_with_last(k);
        // One dimension is tokens, two are tokens and heads.
        int64_t size[kMaxOuterDims] = {1, 1, 1};
        const int first = sizes_.size() == 3 ? 0 : 1;
        for (size_t i = 0; i < sizes_.size(); ++i) size[first + static_cast<int>(i)] = sizes_[i];
        for (size_t t = 0; t < tensors_.size(); ++t)
            for (size_t i = 0; i < sizes_.size(); ++i) tensors_[t].to[first + static_cast<int>(i)] = strides_[i][t];
        if (size[2] > INT32_MAX) return false;
        d_.head.rows = size[0] * size[1];
        d_.head.seq = size[1];
        d_.head.heads = d_.head.first_heads = i32(size[2]);
        return true;
    }

private:
    struct Strides {  // of one tensor: in the call, and in the kernel's struct
        const int64_t* from;
        int64_t* to;
    };

    bool is_shared() const {
        for (int k = 0; k < kMaxOuterDims; ++k)
            if (shape_.outer[k] > 1 && shape_.scale_stride[k] != 0) return false;
        return true;
    }

    // Merges dimension k with those before it if their strides allow it.
    void merge_with_last(int k) {
        std::vector<int64_t> strides;
        for (const Strides& t : tensors_) strides.push_back(t.from[k]);
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
    std::vector<Strides> tensors_;
    std::vector<int64_t> sizes_;
    std::vector<std::vector<int64_t>> strides_;
};

class Tiling {
public:
    Tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data)
        : in_(in), platform_(platform), d_(*data), head_(data->head), call_{&head_,
                                                                            ub_budget_bytes(platform),
                                                                            in.shape.n,
                                                                            dtype_bytes(in.dtype),
                                                                            dtype_bytes(in.scale_dtype),
                                                                            in.adds,
                                                                            in.backward} {}

    Check run(KernelLaunch* launch) {
        if (!Dimensions(in_, &d_).merge())
            return bad_value(in_.op, "x",
                             formatted("have at most %d rows in a dimension of its own on an NPU", INT32_MAX), "more");
        set_shape();
        std::optional<RmsNormLayout> layout;
        if (in_.shape.n <= kLongestWholeRow) {
            split_rows();
            layout = best_layout(call_, row_tiles(call_));
        }
        if (!layout) {
            split_chunks();
            layout = best_layout(call_, chunk_tiles(call_));
        }
        if (!layout) return internal_error(in_.op, "tile", "fit into UB", "none that does");
        set_layout(*layout);
        launch->tiling_key = layout->tile.chunk == 0 ? kRmsNormRows : kRmsNormLong;
        launch->block_dim = static_cast<uint32_t>(head_.row_parts * head_.head_parts);
        return {};
    }

private:
    void set_shape() {
        const RmsNormShape& s = in_.shape;
        d_.n = call_.n;
        call_.scale_shared = d_.scale_shared;
        std::copy(std::begin(s.inner), std::end(s.inner), d_.inner);
        std::copy(std::begin(s.scale_inner_stride), std::end(s.scale_inner_stride), d_.inner_stride);
        bool one = std::all_of(s.scale_inner_stride, s.scale_inner_stride + NPU_ROPE_MAX_NDIM,
                               [](int64_t stride) { return stride == 0; });
        d_.scale_kind = s.scale_is_dense ? kScaleDense : one ? kScaleOne : kScaleScattered;
        d_.stash = s.stash_dtype == NPU_ROPE_FLOAT16    ? kStashFloat16
                   : s.stash_dtype == NPU_ROPE_BFLOAT16 ? kStashBfloat16
                                                        : kStashFloat32;
        d_.inverse_n = static_cast<float>(1.0 / static_cast<double>(call_.n));
        d_.norm = row_norm_tiling(call_.n, s.epsilon, d_.stash, in_.dtype != NPU_ROPE_FLOAT16);
        head_.row_granule = head_.row_parts = head_.head_parts = 1;
        head_.index_words = 1;
        head_.planes = 1;
    }

    void split_rows() {
        head_.head_size = i32(call_.n);
        set_io();
        split();
        // Order the rows in UB so that more neighbours are adjacent in GM.
        const int64_t* stride = head_.side[0].x_stride;
        head_.tokens_inner = head_.heads > 1 && stride[1] == call_.n && stride[2] != call_.n;
    }

    void split_chunks() {
        head_.io = kRopeIoBurst;
        head_.tokens_inner = head_.head_size = 0;
        split();
    }

    void set_io() {
        const int64_t n = call_.n, x_bytes = call_.x_bytes, out_bytes = call_.out_bytes;
        bool whole_blocks = n * x_bytes % kUbBlock == 0 && n * out_bytes % kUbBlock == 0;
        head_.io = kRopeIoBurst;
        if (platform_.arch == kArch310p && !whole_blocks)
            head_.io = n * std::min(x_bytes, out_bytes) < kUbBlock ? kRopeIoScalar : kRopeIoPacked;
        int64_t of_x = kUbBlock / x_bytes, of_out = kUbBlock / out_bytes;
        if (head_.io == kRopeIoPacked) of_x = of_out = std::max(of_x, of_out);
        head_.row_pitch = i32(round_up(n, of_x));
        head_.out_pitch = i32(round_up(n, of_out));
        call_.scale_pitch = round_up(n, kUbBlock / out_bytes);
        d_.scale_pitch = i32(call_.scale_pitch);
    }

    void split() {
        WorkSplit split;
        if (head_.io != kRopeIoScalar)  // else one core: two must not write parts of one cache line
            split = split_work(head_.rows, 1, head_.heads, call_.n * call_.x_bytes, platform_.cores, 1, 0);
        head_.row_parts = i32(split.row_parts);
        head_.head_parts = i32(split.head_parts);
    }

    void set_layout(const RmsNormLayout& l) {
        head_.tile_tokens = head_.second_tokens = head_.block_tokens = i32(l.tile.tokens);
        head_.tile_heads = i32(l.tile.heads);
        head_.index_rows = i32(l.index_rows);
        head_.setup_lanes = i32(l.setup_lanes);
        head_.queue_bytes = i32(l.inputs.bytes / 2);
        head_.tail_offset_bytes = i32(l.tail_offset);
        head_.work_bytes = i32(l.work.bytes);
        head_.temp_offset_bytes = i32(l.temp_offset);
        head_.index_bytes = i32(l.index.bytes);
        d_.chunk = i32(l.tile.chunk);
        (in_.backward ? d_.dscale_stays : d_.row_stays) = l.tile.keeps_row;
        d_.scale_stays = l.tile.keeps_scale;
        d_.levels = i32(l.levels);
        d_.scale_raw_bytes = i32(l.raw_scale.bytes);
        d_.scale_bytes = i32(l.scale.bytes);
        d_.stats_bytes = i32(l.stats.bytes);
        d_.sum_queue_bytes = i32(l.residuals.bytes / 2);
        d_.row_bytes = i32(l.row.bytes);
        d_.grad_queue_bytes = i32(l.grads.bytes / 2);
        d_.g_offset_bytes = i32(l.g_offset);
        d_.dscale_bytes = i32(l.dscale.bytes);
    }

    const RmsNormTilingInput& in_;
    const Platform& platform_;
    RmsNormTilingData& d_;
    RopeTilingHead& head_;
    RmsNormTileCall call_;
};

// Whether the scale has one element for each element of a row and all rows share it.
bool all_rows_share_scale(const RmsNormShape& s) {
    for (int k = 0; k < kMaxOuterDims; ++k)
        if (s.outer[k] > 1 && !s.scale_is_shared[k]) return false;
    return s.scale_is_dense;
}

Check check_one_scale(const RmsNormTilingInput& in, const char* soc) {
    if (in.shape.rows == 0 || in.shape.n == 0 || all_rows_share_scale(in.shape)) return {};
    int first = 0;
    while (first < NPU_ROPE_MAX_NDIM - 1 && in.shape.inner[first] == 1) ++first;
    return bad_value(in.op, "scale",
                     formatted("have the elements of one row, %s, for all rows and be contiguous on %s",
                               shape_text(in.shape.inner + first, NPU_ROPE_MAX_NDIM - first).c_str(), soc),
                     "one that lacks some of them, differs between rows or has gaps");
}

}  // namespace

Check check_rms_norm_on_chip(const RmsNormTilingInput& in, const Platform& platform) {
    if (in.backward)
        if (Check c = check_one_scale(in, platform.soc); !c.ok()) return c;
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
                      KernelLaunch* launch) {
    *data = RmsNormTilingData{};
    return Tiling(in, platform, data).run(launch);
}

Check check_and_tile_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, const Platform& platform,
                              TilingResult<RmsNormTilingData>* tiled) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    const RmsNormTilingInput in = rms_norm_tiling_input(t, shape);
    if (Check c = check_rms_norm_on_chip(in, platform); !c.ok()) return c;
    if (shape.rows == 0 || shape.n == 0) return {};
    return rms_norm_tiling(in, platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
