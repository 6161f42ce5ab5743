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

// Elements of dscale that share a line of 512 bytes in GM. No two cores write into one line.
constexpr int64_t kSumsGranule = 128;

// Longest row, in elements, that a kernel may process as a whole. Longer rows, and rows for which no layout fits UB,
// are processed in chunks.
constexpr int64_t kLongestWholeRow = 16384;

// The dimensions before `axis` as [batch, token, head]. Adjacent dimensions are merged if one stride covers both.
class Dimensions {
public:
    Dimensions(const RmsNormTilingInput& in, RmsNormTilingData* data) : shape_(in.shape), data_(*data) {
        CommonTiling& common = data->common;
        tensors_ = {{shape_.x_stride, common.side[0].x_stride}, {shape_.out_stride, common.side[0].out_stride}};
        if (in.adds) {
            tensors_.push_back({shape_.residual_stride, common.side[1].x_stride});
            tensors_.push_back({shape_.sum_stride, common.side[1].out_stride});
        }
        if (in.backward) tensors_.push_back({shape_.grad_stride, common.side[1].x_stride});
        data->scale_shared = is_shared();
        if (!data->scale_shared) tensors_.push_back({shape_.scale_stride, data->scale_stride});
    }

    // Merges dimensions and sets the sizes and strides. Returns false if the number of heads exceeds int32.
    bool merge() {
        for (int k = 0; k < kMaxOuterDims; ++k)
            if (shape_.outer[k] > 1) add_dimension(k);
        // A single dimension becomes tokens. Two dimensions become tokens and heads.
        int64_t size[kMaxOuterDims] = {1, 1, 1};
        const int first = sizes_.size() == 3 ? 0 : 1;
        for (size_t i = 0; i < sizes_.size(); ++i) size[first + static_cast<int>(i)] = sizes_[i];
        for (size_t t = 0; t < tensors_.size(); ++t)
            for (size_t i = 0; i < sizes_.size(); ++i) tensors_[t].to[first + static_cast<int>(i)] = strides_[i][t];
        if (size[2] > INT32_MAX) return false;
        data_.common.rows = size[0] * size[1];
        data_.common.seq = size[1];
        set_heads(data_.common, {size[2]});
        return true;
    }

private:
    // The strides of one tensor.
    struct Strides {
        const int64_t* from;  // in the call
        int64_t* to;          // in the tiling data
    };

    bool is_shared() const {
        for (int k = 0; k < kMaxOuterDims; ++k)
            if (shape_.outer[k] > 1 && shape_.scale_stride[k] != 0) return false;
        return true;
    }

    // Adds dimension k. Merges it with the previous dimension if one stride covers both in every tensor.
    void add_dimension(int k) {
        std::vector<int64_t> strides;
        for (const Strides& t : tensors_) strides.push_back(t.from[k]);
        bool can_merge = !sizes_.empty();
        for (size_t t = 0; can_merge && t < strides.size(); ++t) {
            int64_t reach;
            can_merge = !__builtin_mul_overflow(shape_.outer[k], strides[t], &reach) && reach == strides_.back()[t];
        }
        if (can_merge) {
            sizes_.back() *= shape_.outer[k];
            strides_.back() = strides;
        } else {
            sizes_.push_back(shape_.outer[k]);
            strides_.push_back(strides);
        }
    }

    const RmsNormShape& shape_;
    RmsNormTilingData& data_;
    std::vector<Strides> tensors_;
    std::vector<int64_t> sizes_;                 // of the merged dimensions
    std::vector<std::vector<int64_t>> strides_;  // [merged dimension][tensor of tensors_], in elements
};

class Tiling {
public:
    Tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data)
        : in_(in), platform_(platform), data_(*data), common_(data->common), call_{&common_,
                                                                                   ub_budget_bytes(platform),
                                                                                   in.shape.n,
                                                                                   dtype_bytes(in.dtype),
                                                                                   dtype_bytes(in.scale_dtype),
                                                                                   in.adds,
                                                                                   in.backward} {}

    Check run(KernelLaunch* launch) {
        if (!Dimensions(in_, &data_).merge())
            return bad_value(
                in_.op, "x",
                formatted("have at most %d rows in a dimension that cannot be merged with another on an NPU",
                          INT32_MAX),
                "more");
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
        launch->block_dim = static_cast<uint32_t>(common_.row_parts * common_.head_parts);
        if (in_.backward && in_.deterministic && launch->block_dim > 1) order_sums(launch);
        return {};
    }

private:
    // Adds the sums of dscale of the cores in a fixed order. Each core stores its sums in the workspace; a block of 32
    // bytes for each core follows, for the turns of Ascend310P.
    void order_sums(KernelLaunch* launch) {
        data_.sums_pitch = round_up(call_.n, kSumsGranule);
        launch->tiling_key += kRmsNormOrderedRows - kRmsNormRows;
        launch->workspace_bytes =
            launch->block_dim * (data_.sums_pitch * static_cast<int64_t>(sizeof(float)) + kUbBlockBytes);
        launch->cores_wait = true;
    }

    void set_shape() {
        const RmsNormShape& s = in_.shape;
        data_.n = call_.n;
        call_.scale_shared = data_.scale_shared;
        std::copy(std::begin(s.inner), std::end(s.inner), data_.inner);
        std::copy(std::begin(s.scale_inner_stride), std::end(s.scale_inner_stride), data_.inner_stride);
        bool is_one_element = std::all_of(s.scale_inner_stride, s.scale_inner_stride + NPU_ROPE_MAX_NDIM,
                                          [](int64_t stride) { return stride == 0; });
        data_.scale_kind = s.scale_is_dense ? kScaleDense : is_one_element ? kScaleOne : kScaleScattered;
        data_.stash = s.stash_dtype == NPU_ROPE_FLOAT16    ? kStashFloat16
                      : s.stash_dtype == NPU_ROPE_BFLOAT16 ? kStashBfloat16
                                                           : kStashFloat32;
        data_.inverse_n = static_cast<float>(1.0 / static_cast<double>(call_.n));
        data_.norm = row_norm_tiling(call_.n, s.epsilon, data_.stash, in_.dtype != NPU_ROPE_FLOAT16);
        common_.row_granule = common_.row_parts = common_.head_parts = 1;
    }

    void split_rows() {
        common_.head_size = to_int32(call_.n);
        set_copy_mode();
        split();
        // Choose the order in UB in which more rows are adjacent in GM.
        const int64_t* stride = common_.side[0].x_stride;
        common_.tokens_inner = common_.heads > 1 && stride[1] == call_.n && stride[2] != call_.n;
    }

    void split_chunks() {
        common_.copy_mode = kCopyBursts;
        common_.tokens_inner = common_.head_size = 0;
        split();
    }

    void set_copy_mode() {
        const int64_t n = call_.n, x_bytes = call_.x_bytes, out_bytes = call_.out_bytes;
        bool whole_blocks = n * x_bytes % kUbBlockBytes == 0 && n * out_bytes % kUbBlockBytes == 0;
        common_.copy_mode = kCopyBursts;
        if (platform_.arch == kArch310p && !whole_blocks)
            common_.copy_mode = n * std::min(x_bytes, out_bytes) < kUbBlockBytes ? kCopyScalar : kCopyPacked;
        int64_t x_block_items = kUbBlockBytes / x_bytes, out_block_items = kUbBlockBytes / out_bytes;
        if (common_.copy_mode == kCopyPacked)
            x_block_items = out_block_items = std::max(x_block_items, out_block_items);
        common_.row_pitch = to_int32(round_up(n, x_block_items));
        common_.out_pitch = to_int32(round_up(n, out_block_items));
        call_.scale_pitch = round_up(n, kUbBlockBytes / out_bytes);
        data_.scale_pitch = to_int32(call_.scale_pitch);
    }

    void split() {
        WorkSplit split;
        if (common_.copy_mode != kCopyScalar)  // else one core, because two cores must not write to one cache line
            split = split_work(common_.rows, 1, common_.heads, call_.n * call_.x_bytes, platform_.cores, 1, 0);
        common_.row_parts = to_int32(split.row_parts);
        common_.head_parts = to_int32(split.head_parts);
    }

    void set_layout(const RmsNormLayout& layout) {
        set_common_layout(common_, layout);
        common_.tile_tokens[1] = common_.block_tokens = to_int32(layout.tile.tokens);
        data_.chunk = to_int32(layout.tile.chunk);
        (in_.backward ? data_.keeps_dscale : data_.keeps_row) = layout.tile.keeps_row;
        data_.keeps_scale = layout.tile.keeps_scale;
        data_.levels = to_int32(layout.levels);
        data_.scale_raw_bytes = to_int32(layout.raw_scale.bytes);
        data_.scale_bytes = to_int32(layout.scale.bytes);
        data_.stats_bytes = to_int32(layout.stats.bytes);
        data_.sum_queue_bytes = to_int32(layout.residuals.bytes / 2);
        data_.row_bytes = to_int32(layout.row.bytes);
        data_.grad_queue_bytes = to_int32(layout.grads.bytes / 2);
        data_.g_offset_bytes = to_int32(layout.g_offset);
        data_.dscale_bytes = to_int32(layout.dscale.bytes);
    }

    const RmsNormTilingInput& in_;
    const Platform& platform_;
    RmsNormTilingData& data_;
    CommonTiling& common_;
    RmsNormTileCall call_;
};

// Whether all rows share the scale and the scale has an element for each element of a row.
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
                              TilingResult<RmsNormTilingData>* tiled, bool deterministic) {
    RmsNormShape shape;
    if (Check c = check_rms_norm(t, a, &shape); !c.ok()) return c;
    RmsNormTilingInput in = rms_norm_tiling_input(t, shape);
    in.deterministic = deterministic;
    if (Check c = check_rms_norm_on_chip(in, platform); !c.ok()) return c;
    if (shape.rows == 0 || shape.n == 0) return {};
    return rms_norm_tiling(in, platform, &tiled->data, &tiled->launch);
}

}  // namespace npu_rope
