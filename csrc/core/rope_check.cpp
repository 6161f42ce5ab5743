#include "csrc/core/rope_check.h"

#include <algorithm>
#include <cmath>

#include "csrc/core/rope_frequency.h"
#include "csrc/core/tensor_rules.h"

namespace npu_rope {
namespace {

// The operator that errors of parameters name. The rules of parameters are the same for all operators.
constexpr const char* kParamsOp = "rope";

// ggml and CANN keep attributes in float32, so a value that is zero or infinite in float32 breaks these rules.
Check check_positive(const char* name, double v, const char* when = "") {
    float f = static_cast<float>(v);
    if (std::isfinite(f) && f > 0) return {};
    return bad_value(kParamsOp, name, std::string("be positive and finite") + when, NumberText(v).text);
}

Check check_finite(const char* name, double v) {
    if (std::isfinite(static_cast<float>(v))) return {};
    return bad_value(kParamsOp, name, "be finite", NumberText(v).text);
}

Check check_sections(const npu_rope_params& p) {
    bool has_negative = false, has_nonzero = false;
    for (int32_t section : p.sections) {
        has_negative |= section < 0;
        has_nonzero |= section != 0;
    }
    const int32_t* s = p.sections;
    if (has_negative)
        return bad_value(kParamsOp, "sections", "be four integers >= 0",
                         formatted("[%d, %d, %d, %d]", s[0], s[1], s[2], s[3]));
    if (has_nonzero && !rope_has_sections(p.mode))
        return bad_value(kParamsOp, "sections", formatted("be [0, 0, 0, 0] in mode %s", mode_name(p.mode)),
                         formatted("[%d, %d, %d, %d]", s[0], s[1], s[2], s[3]));
    if (rope_has_sections(p.mode) && s[0] == 0 && s[1] == 0 && s[2] == 0)
        return bad_value(kParamsOp, "sections", formatted("name time, height or width in mode %s", mode_name(p.mode)),
                         formatted("[%d, %d, %d, %d]", s[0], s[1], s[2], s[3]));
    return {};
}

Check check_yarn(const npu_rope_params& p) {
    const char* when = " when ext_factor is not 0";
    if (p.n_ctx_orig <= 0)
        return bad_value(kParamsOp, "n_ctx_orig", std::string("be positive") + when, std::to_string(p.n_ctx_orig));
    if (static_cast<float>(p.freq_base) == 1.0f)
        return bad_value(kParamsOp, "freq_base", std::string("differ from 1") + when, "1");
    if (Check c = check_positive("beta_fast", p.beta_fast, when); !c.ok()) return c;
    return check_positive("beta_slow", p.beta_slow, when);
}

// Checks the tensors of one call. Every message begins with the operator's name.
class Rules : TensorRules {
public:
    Rules(const RopeTensors& t, const npu_rope_params& p, RopeShape* s)
        : TensorRules(t.op, t.known), tensors_(t), params_(p), shape_(*s) {}

    Check check_all() {
        if (Check c = check_rotated_tensors(); !c.ok()) return c;
        if (Check c = check_positions(*tensors_.positions); !c.ok()) return c;
        if (tensors_.rows)
            if (Check c = check_rows(*tensors_.rows); !c.ok()) return c;
        if (tensors_.freq_factors)
            if (Check c = check_freq_factors(*tensors_.freq_factors); !c.ok()) return c;
        for (int k = 0; k < tensors_.sides; ++k)
            if (tensors_.out[k])
                if (Check c = tensors_.out_is_cache(k) ? check_cache(k) : check_out(k); !c.ok()) return c;
        return {};
    }

private:
    Check check_rotated_tensors() {
        for (int k = 0; k < tensors_.sides; ++k)
            if (Check c = check_x(k); !c.ok()) return c;
        return {};
    }

    Check check_x(int side) {
        const npu_rope_tensor& x = *tensors_.x[side];
        const char* name = tensors_.x_name[side];
        const npu_rope_tensor* like = side > 0 ? tensors_.x[0] : nullptr;
        if (Check c = check_rotated(name, x, "[B,S,N,D] or [S,N,D]", tensors_.x_name[0], like); !c.ok()) return c;
        fill_sizes(shape_, x, side);
        if (Check c = check_window(); !c.ok()) return c;
        return check_unit_stride(name, x);
    }

    // The rotated window and the sections must fit a head.
    Check check_window() {
        auto D = static_cast<long long>(shape_.D);
        if (params_.n_dims > D)
            return bad_value(op_, "n_dims", formatted("be at most the head size %lld", D),
                             std::to_string(params_.n_dims));
        if (int64_t{params_.n_offs} + params_.n_dims > D)
            return bad_value(op_, "n_offs + n_dims", formatted("be at most the head size %lld", D),
                             std::to_string(static_cast<long long>(params_.n_offs) + params_.n_dims));
        if (params_.mode == NPU_ROPE_MODE_VISION && int64_t{2} * params_.n_dims != D)
            return bad_value(op_, "n_dims", "be half the head size in mode vision",
                             formatted("%d of %lld", params_.n_dims, D));
        if (params_.n_dims > kMaxRotatedLanes)
            return bad_value(op_, "n_dims", formatted("be at most %lld", static_cast<long long>(kMaxRotatedLanes)),
                             std::to_string(params_.n_dims));
        const int32_t* s = params_.sections;
        if (int64_t{s[0]} + s[1] + s[2] + s[3] > D)
            return bad_value(op_, "sections", formatted("add up to at most the head size %lld", D),
                             formatted("[%d, %d, %d, %d]", s[0], s[1], s[2], s[3]));
        return {};
    }

    Check check_position_values(const npu_rope_tensor& t) {
        constexpr int kMaxPositionDims = 3;
        int64_t size[kMaxPositionDims] = {1, 1, 1}, stride[kMaxPositionDims] = {};
        for (int k = 0, at = kMaxPositionDims - t.ndim; k < t.ndim && at >= 0; ++k, ++at) {
            size[at] = elements_to_read(t.shape[k], t.stride[k]);
            stride[at] = t.stride[k];
        }
        for (int64_t i = 0; i < size[0]; ++i)
            for (int64_t j = 0; j < size[1]; ++j)
                for (int64_t k = 0; k < size[2]; ++k) {
                    int64_t v = static_cast<const int64_t*>(t.data)[i * stride[0] + j * stride[1] + k * stride[2]];
                    if (v < INT32_MIN || v > INT32_MAX)
                        return bad_value(op_, "positions", "be in the int32 range", std::to_string(v));
                }
        return {};
    }

    Check check_positions(const npu_rope_tensor& t) {
        if (!is_index(t.dtype)) return bad_type(op_, "positions", "be int32 or int64", dtype_name(t.dtype));
        if (Check c = rope_has_sections(params_.mode) ? check_plane_shape(t) : check_position_shape(t); !c.ok())
            return c;
        return t.dtype == NPU_ROPE_INT64 && known_ == Known::kValues ? check_position_values(t) : Check{};
    }

    Check check_position_shape(const npu_rope_tensor& t) {
        bool is_batched = tensors_.x[0]->ndim == 4, is_per_batch = is_batched && has_shape(t, {shape_.B, shape_.S});
        bool is_for_all_batches = is_batched && has_shape(t, {1, shape_.S});
        if (!has_shape(t, {shape_.S}) && !is_per_batch && !is_for_all_batches)
            return position_shape_error(t, is_batched);
        if (Check c = check_memory("positions", t); !c.ok()) return c;
        shape_.pos_stride[0] = is_per_batch && shape_.B > 1 ? t.stride[0] : 0;
        shape_.pos_stride[1] = shape_.S > 1 ? t.stride[t.ndim - 1] : 0;
        return {};
    }

    // A token has four positions or three. If it has three, the first one is also the fourth.
    Check check_plane_shape(const npu_rope_tensor& t) {
        bool is_batched = tensors_.x[0]->ndim == 4;
        bool is_flat = has_shape(t, {4 * shape_.S});
        bool is_per_token = has_shape(t, {4, shape_.S}) || has_shape(t, {3, shape_.S});
        bool is_per_batch =
            is_batched && (has_shape(t, {4, shape_.B, shape_.S}) || has_shape(t, {3, shape_.B, shape_.S}));
        bool is_for_all_batches = is_batched && (has_shape(t, {4, 1, shape_.S}) || has_shape(t, {3, 1, shape_.S}));
        if (!is_flat && !is_per_token && !is_per_batch && !is_for_all_batches) {
            auto S = static_cast<long long>(shape_.S), B = static_cast<long long>(shape_.B);
            std::string got = got_shape(t);
            if (!is_batched)
                return bad_value(
                    op_, "positions",
                    formatted("have shape [4,S] = [4, %lld], [4*S] or [3,S] in mode %s", S, mode_name(params_.mode)),
                    got);
            return bad_value(
                op_, "positions",
                formatted("have shape [4,S] = [4, %lld], [4*S], [3,S], [4,B,S] = [4, %lld, %lld]%s in "
                          "mode %s",
                          S, B, S, B == 1 ? " or [3,B,S]" : ", [3,B,S], [4,1,S] or [3,1,S]", mode_name(params_.mode)),
                got);
        }
        if (Check c = check_memory("positions", t); !c.ok()) return c;
        shape_.pos_stride[0] = is_per_batch && shape_.B > 1 ? t.stride[1] : 0;
        shape_.pos_stride[1] = shape_.S > 1 ? t.stride[t.ndim - 1] : 0;
        int64_t step = (is_flat ? shape_.S : 1) * used_stride(t, 0);
        for (int axis = 0; axis < kRopeAxes; ++axis)
            shape_.axis_offset[axis] = is_flat || axis < t.shape[0] ? axis * step : 0;
        return {};
    }

    Check position_shape_error(const npu_rope_tensor& t, bool is_batched) {
        auto S = static_cast<long long>(shape_.S), B = static_cast<long long>(shape_.B);
        std::string got = got_shape(t);
        if (!is_batched) return bad_value(op_, "positions", formatted("have shape [S] = [%lld]", S), got);
        const char* shapes = B == 1 ? "have shape [S] = [%lld] or [B, S] = [%lld, %lld]"
                                    : "have shape [S] = [%lld], [B, S] = [%lld, %lld] or [1, S]";
        return bad_value(op_, "positions", formatted(shapes, S, B, S), got);
    }

    Check check_freq_factors(const npu_rope_tensor& t) {
        if (t.dtype != NPU_ROPE_FLOAT32) return bad_type(op_, "freq_factors", "be float32", dtype_name(t.dtype));
        int pairs = rope_pairs(params_);
        if (t.ndim != 1 || t.shape[0] < pairs)
            return bad_value(op_, "freq_factors",
                             formatted("have one dimension of at least n_dims%s = %d elements",
                                       pairs == params_.n_dims ? "" : "/2", pairs),
                             "shape " + got_shape(t));
        if (Check c = check_memory("freq_factors", t); !c.ok() || known_ != Known::kValues) return c;
        auto* f = static_cast<const float*>(t.data);
        for (int i = 0; i < pairs; ++i) {
            double v = f[i * t.stride[0]];
            if (!(std::isfinite(v) && v > 0))
                return bad_value(op_, "freq_factors", "be positive and finite",
                                 formatted("%s at index %d", NumberText(v).text, i));
        }
        return {};
    }

    Check check_out(int side) {
        const npu_rope_tensor &out = *tensors_.out[side], &x = *tensors_.x[side];
        const char* name = tensors_.out_name[side];
        const bool is_x = &out == &x;  // then all rules hold that x has passed
        if (!is_x)
            if (Check c = check_like(name, out, tensors_.x_name[side], x); !c.ok()) return c;
        StridedView view;
        if (Check c = check_written(name, out, &view, is_x); !c.ok()) return c;
        fill_strides(out, shape_.side[side].out_stride);
        shape_.side[side].in_place = known_ != Known::kLayout && (is_x || is_same_view(view, view_of(x)));
        return check_disjoint(side, view);
    }

    // An output must be its own input, or share no memory with any input or other output.
    Check check_disjoint(int side, const StridedView& out) {
        if (known_ == Known::kLayout) return {};
        const char* name = find_shared_tensor(
            tensors_, side, out, shape_.side[side].in_place,
            {{"positions", tensors_.positions}, {"rows", tensors_.rows}, {"freq_factors", tensors_.freq_factors}});
        if (!name) return {};
        const bool is_own_input = name == tensors_.x_name[side];
        return shared_memory_error(tensors_.out_name[side], name, is_own_input && !tensors_.out_is_cache(side));
    }

    // rows has each token's row in the cache, or -1 for a token that is not stored.
    Check check_rows(const npu_rope_tensor& t) {
        if (!is_index(t.dtype)) return bad_type(op_, "rows", "be int32 or int64", dtype_name(t.dtype));
        bool is_batched = tensors_.x[0]->ndim == 4, is_per_batch = is_batched && has_shape(t, {shape_.B, shape_.S});
        if (!(has_shape(t, {shape_.S}) && shape_.B == 1) && !is_per_batch) {
            auto S = static_cast<long long>(shape_.S), B = static_cast<long long>(shape_.B);
            if (!is_batched) return bad_value(op_, "rows", formatted("have shape [S] = [%lld]", S), got_shape(t));
            if (B == 1)
                return bad_value(op_, "rows", formatted("have shape [B, S] = [1, %lld] or [S] = [%lld]", S, S),
                                 got_shape(t));
            return bad_value(op_, "rows", formatted("have shape [B, S] = [%lld, %lld]", B, S), got_shape(t));
        }
        if (Check c = check_memory("rows", t); !c.ok()) return c;
        shape_.row_stride[0] = is_per_batch && shape_.B > 1 ? t.stride[0] : 0;
        shape_.row_stride[1] = shape_.S > 1 ? t.stride[t.ndim - 1] : 0;
        return {};
    }

    Check check_cache(int side) {
        const npu_rope_tensor &cache = *tensors_.out[side], &x = *tensors_.x[side];
        RopeSide& side_of_cache = shape_.side[side];
        bool may_narrow = tensors_.cache_may_be_narrower && x.dtype == NPU_ROPE_FLOAT32;
        bool narrows = may_narrow && (cache.dtype == NPU_ROPE_FLOAT16 || cache.dtype == NPU_ROPE_BFLOAT16);
        if (cache.dtype != x.dtype && !narrows)
            return bad_type(op_, "cache",
                            formatted("have %s's dtype %s%s", tensors_.x_name[side], dtype_name(x.dtype),
                                      may_narrow ? ", float16 or bfloat16" : ""),
                            dtype_name(cache.dtype));
        auto N = static_cast<long long>(side_of_cache.N), D = static_cast<long long>(shape_.D);
        if (cache.ndim != 3 || cache.shape[1] != N || cache.shape[2] != D)
            return bad_value(op_, "cache", formatted("have shape [R,N,D] = [R, %lld, %lld]", N, D), got_shape(cache));
        StridedView view;
        if (Check c = check_written("cache", cache, &view); !c.ok()) return c;
        shape_.cache_rows = cache.shape[0];
        side_of_cache.out_stride[0] = 0;
        side_of_cache.out_stride[1] = used_stride(cache, 0);
        side_of_cache.out_stride[2] = used_stride(cache, 1);
        if (Check c = check_disjoint(side, view); !c.ok()) return c;
        return check_row_values();
    }

    // Each row must be in the cache, and no two tokens may have the same row.
    Check check_row_values() {
        if (known_ != Known::kValues) return {};
        const npu_rope_tensor& t = *tensors_.rows;
        const int64_t B = elements_to_read(shape_.B, shape_.row_stride[0]);
        const int64_t S = elements_to_read(shape_.S, shape_.row_stride[1]);
        std::vector<int64_t> seen;
        seen.reserve(static_cast<size_t>(B * S));
        bool rising = true;
        for (int64_t b = 0; b < B; ++b)
            for (int64_t i = 0; i < S; ++i) {
                int64_t at = b * shape_.row_stride[0] + i * shape_.row_stride[1];
                int64_t row = index_at(t.data, t.dtype == NPU_ROPE_INT64, at);
                if (row < -1 || row >= shape_.cache_rows)
                    return bad_value(
                        op_, "rows",
                        formatted("be -1 or a row of the cache's %lld", static_cast<long long>(shape_.cache_rows)),
                        std::to_string(row));
                if (row < 0) continue;
                rising = rising && (seen.empty() || seen.back() < row);
                seen.push_back(row);
            }
        if (rising) return {};
        std::sort(seen.begin(), seen.end());
        auto repeated = std::adjacent_find(seen.begin(), seen.end());
        if (repeated == seen.end()) return {};
        return bad_value(op_, "rows", "differ from each other",
                         formatted("%lld twice", static_cast<long long>(*repeated)));
    }

    const RopeTensors& tensors_;
    const npu_rope_params& params_;
    RopeShape& shape_;
};

}  // namespace

const char* mode_name(int32_t mode) {
    constexpr struct {
        int32_t mode;
        const char* name;
    } kModes[] = {{NPU_ROPE_MODE_NORMAL, "normal"},
                  {NPU_ROPE_MODE_NEOX, "neox"},
                  {NPU_ROPE_MODE_MROPE, "mrope"},
                  {NPU_ROPE_MODE_VISION, "vision"},
                  {NPU_ROPE_MODE_IMROPE, "imrope"}};
    for (const auto& row : kModes)
        if (row.mode == mode) return row.name;
    return nullptr;
}

Check check_rope_params(const npu_rope_params& p) {
    if (p.n_dims <= 0 || p.n_dims % 2 != 0)
        return bad_value(kParamsOp, "n_dims", "be a positive even number", std::to_string(p.n_dims));
    if (!mode_name(p.mode))
        return bad_value(kParamsOp, "mode", "be one of normal (0), neox (2), mrope (8), vision (24), imrope (40)",
                         std::to_string(p.mode));
    if (p.n_ctx_orig < 0) return bad_value(kParamsOp, "n_ctx_orig", "be >= 0", std::to_string(p.n_ctx_orig));
    if (Check c = check_positive("freq_base", p.freq_base); !c.ok()) return c;
    if (Check c = check_positive("freq_scale", p.freq_scale); !c.ok()) return c;
    if (Check c = check_finite("ext_factor", p.ext_factor); !c.ok()) return c;
    if (Check c = check_finite("attn_factor", p.attn_factor); !c.ok()) return c;
    if (p.ext_factor != 0)
        if (Check c = check_yarn(p); !c.ok()) return c;
    if (Check c = check_sections(p); !c.ok()) return c;
    if (p.n_offs < 0 || p.n_offs % 2 != 0)
        return bad_value(kParamsOp, "n_offs", "be an even number >= 0", std::to_string(p.n_offs));
    if (p.n_offs != 0 && p.mode == NPU_ROPE_MODE_VISION)
        return bad_value(kParamsOp, "n_offs", "be 0 in mode vision", std::to_string(p.n_offs));
    return {};
}

Check check_rope_frequencies(const std::vector<Quad>& frequencies) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
        double radians = std::fabs(static_cast<double>(frequencies[i]));
        if (radians <= kMaxFrequency) continue;
        return bad_value(kParamsOp, "frequencies", "be at most 1e+09 radians per position",
                         formatted("%s for pair %lld", NumberText(radians).text, static_cast<long long>(i)));
    }
    return {};
}

RopeTensors rope_tensors(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                         const npu_rope_tensor* freq_factors, const npu_rope_tensor* out) {
    return {{"rope", 1, {"x"}, {x}, {"out"}, {out}}, positions, freq_factors};
}

RopeTensors rope_qk_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* positions,
                            const npu_rope_tensor* freq_factors, const npu_rope_tensor* q_out,
                            const npu_rope_tensor* k_out) {
    return {{"rope_qk", 2, {"q", "k"}, {q, k}, {"q_out", "k_out"}, {q_out, k_out}}, positions, freq_factors};
}

RopeTensors rope_set_rows_tensors(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                                  const npu_rope_tensor* rows, const npu_rope_tensor* freq_factors,
                                  const npu_rope_tensor* cache) {
    return {{"rope_set_rows", 1, {"x"}, {x}, {"cache"}, {cache}}, positions, freq_factors, true, rows};
}

Check check_rope(const RopeTensors& t, const npu_rope_params* p, int32_t angle_policy, RopeShape* shape) {
    const npu_rope_tensor* rows = t.scatters ? t.rows : t.positions;
    if (Check c = check_given(t, {{"positions", t.positions}, {"rows", rows}}); !c.ok()) return c;
    if (!p) return bad_value(t.op, "params", "be a struct", "NULL");
    if (Check c = check_rope_params(*p); !c.ok()) return c;
    if (angle_policy < NPU_ROPE_ANGLE_EXACT || angle_policy > NPU_ROPE_ANGLE_GGML)
        return bad_value(t.op, "angle", "be exact (0), f32 (1) or ggml (2)", std::to_string(angle_policy));
    *shape = RopeShape{};
    shape->sides = t.sides;
    return Rules(t, *p, shape).check_all();
}

}  // namespace npu_rope
