#include "csrc/core/qkv_norm_rope_cache_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/core/rope_frequency.h"
#include "csrc/core/tensor_rules.h"

namespace npu_rope {
namespace {

using LongLong = long long;

constexpr const char* kOp = "qkv_norm_rope_cache";
constexpr const char *kXName[3] = {"q", "k", "v"}, *kOutName[3] = {"q_out", "k_out", "v_out"},
                     *kCacheName[3] = {"q_out", "k_cache", "v_cache"}, *kScaleName[2] = {"q_scale", "k_scale"},
                     *kBiasName[2] = {"q_bias", "k_bias"}, *kQuantScaleName[3] = {"", "k_quant_scale", "v_quant_scale"},
                     *kQuantOffsetName[3] = {"", "k_quant_offset", "v_quant_offset"};

int32_t type_of_sums(const npu_rope_tensor& q) {
    return q.dtype == NPU_ROPE_FLOAT64 ? NPU_ROPE_FLOAT64 : NPU_ROPE_FLOAT32;
}

// The rules that rope_qk does not have.
class Rules : TensorRules {
public:
    Rules(const QkvTensors& t, const npu_rope_params& params, const QkvAttributes& attributes, QkvShape* shape)
        : TensorRules(kOp, t.known), tensors_(t), in_(t.in), params_(params), attributes_(attributes), shape_(*shape) {}

    Check check_all() {
        fill_q_and_k();
        if (in_.v)
            if (Check c = check_v(*in_.v); !c.ok()) return c;
        if (Check c = check_norm_attributes(); !c.ok()) return c;
        for (int side = 0; side < 2; ++side)
            if (Check c = check_norm(side); !c.ok()) return c;
        if (Check c = check_square_sums(); !c.ok()) return c;
        for (int side = 1; side < 3; ++side)
            if (Check c = check_quantizes(side); !c.ok()) return c;
        if (in_.cos || in_.sin)
            if (Check c = check_tables(); !c.ok()) return c;
        if (in_.slots)
            if (Check c = check_slots(*in_.slots); !c.ok()) return c;
        for (int side = 0; side < 3; ++side)
            if (Check c = check_out(side); !c.ok()) return c;
        // Only now all extents of the tensors are known to fit int64.
        for (int side = 0; side < 3 && known_ != Known::kLayout; ++side)
            if (Check c = check_disjoint(side); !c.ok()) return c;
        return in_.slots && known_ == Known::kValues ? check_slot_values() : Check{};
    }

private:
    const npu_rope_tensor* x(int side) const { return side == 0 ? in_.q : side == 1 ? in_.k : in_.v; }
    const npu_rope_tensor* out(int side) const {
        return side == 0 ? tensors_.out.q_out : side == 1 ? tensors_.out.k_out : tensors_.out.v_out;
    }
    const npu_rope_tensor* quant_scale(int side) const { return side == 1 ? in_.k_quant_scale : in_.v_quant_scale; }
    const npu_rope_tensor* quant_offset(int side) const { return side == 1 ? in_.k_quant_offset : in_.v_quant_offset; }
    bool out_is_cache(int side) const { return in_.slots && side > 0; }
    const char* out_name(int side) const { return (in_.slots ? kCacheName : kOutName)[side]; }

    void fill_q_and_k() {
        for (int k = 0; k < 2; ++k) {
            QkvSide& side = shape_.side[k];
            side.given = true;
            side.N = shape_.rope.side[k].N;
            side.D = shape_.rope.D;
            std::copy(shape_.rope.side[k].x_stride + 1, shape_.rope.side[k].x_stride + 3, side.x_stride);
        }
        shape_.pairs = rope_pairs(params_);
    }

    Check check_v(const npu_rope_tensor& v) {
        if (v.dtype != in_.q->dtype)
            return bad_type(op_, "v", formatted("have q's dtype %s", dtype_name(in_.q->dtype)), dtype_name(v.dtype));
        if (v.ndim != 3 || v.shape[0] != shape_.rope.S)
            return bad_value(op_, "v", formatted("have shape [S,N,D] = [%lld,N,D]", LongLong(shape_.rope.S)),
                             got_shape(v));
        if (Check c = check_memory("v", v); !c.ok()) return c;
        if (Check c = check_unit_stride("v", v); !c.ok()) return c;
        QkvSide& side = shape_.side[2];
        side.given = true;
        side.N = v.shape[1];
        side.D = v.shape[2];
        side.x_stride[0] = used_stride(v, 0);
        side.x_stride[1] = used_stride(v, 1);
        return {};
    }

    // ---- norm

    Check check_norm_attributes() {
        if (Check c = check_epsilon(attributes_.epsilon); !c.ok()) return c;
        if (Check c = check_scale_offset(attributes_.scale_offset); !c.ok()) return c;
        if (attributes_.ranks < 1 || attributes_.ranks > kMaxRanks)
            return bad_value(op_, "ranks", formatted("be in [1, %d]", kMaxRanks), std::to_string(attributes_.ranks));
        if (attributes_.ranks > 1 && !in_.square_sums)
            return bad_value(op_, "ranks", "be 1 without square_sums", std::to_string(attributes_.ranks));
        return {};
    }

    // A scale or a bias has one dimension, and q's type or float32.
    Check check_factor(const char* name, const npu_rope_tensor& t) {
        if (t.dtype != in_.q->dtype && t.dtype != NPU_ROPE_FLOAT32)
            return bad_type(op_, name,
                            formatted("have q's dtype %s%s", dtype_name(in_.q->dtype),
                                      in_.q->dtype == NPU_ROPE_FLOAT32 ? "" : " or float32"),
                            dtype_name(t.dtype));
        return {};
    }

    Check check_norm(int side) {
        const npu_rope_tensor* scale = side == 0 ? in_.q_scale : in_.k_scale;
        const npu_rope_tensor* bias = side == 0 ? in_.q_bias : in_.k_bias;
        const char *name = kScaleName[side], *bias_name = kBiasName[side];
        QkvSide& s = shape_.side[side];
        if (!scale)
            return bias ? bad_value(op_, bias_name, formatted("not be given without %s", name), "a tensor") : Check{};
        if (Check c = check_factor(name, *scale); !c.ok()) return c;
        const bool is_per_head = has_shape(*scale, {s.D});
        if (!is_per_head && !has_shape(*scale, {s.N * s.D}))
            return bad_value(op_, name,
                             formatted("have shape [D] = [%lld] or [N*D] = [%lld]", LongLong(s.D), LongLong(s.N * s.D)),
                             got_shape(*scale));
        s.norm = is_per_head && s.N != 1 ? QkvNorm::kHead : QkvNorm::kAllHeads;
        if (s.N == 1 && !in_.square_sums) s.norm = QkvNorm::kHead;
        if (Check c = check_memory(name, *scale); !c.ok()) return c;
        if (Check c = check_unit_stride(name, *scale); !c.ok()) return c;
        if (!bias) return {};
        if (Check c = check_factor(bias_name, *bias); !c.ok()) return c;
        if (bias->ndim != 1 || bias->shape[0] != scale->shape[0])
            return bad_value(op_, bias_name, formatted("have %s's shape [%lld]", name, LongLong(scale->shape[0])),
                             got_shape(*bias));
        if (Check c = check_memory(bias_name, *bias); !c.ok()) return c;
        return check_unit_stride(bias_name, *bias);
    }

    Check check_square_sums() {
        if (!in_.square_sums) return {};
        const npu_rope_tensor& sums = *in_.square_sums;
        for (int side = 0; side < 2; ++side)
            if (shape_.side[side].N > 0 && shape_.side[side].norm != QkvNorm::kAllHeads)
                return bad_value(
                    op_, "square_sums", "be given with scales [N*D] of q and k only",
                    formatted("%s %s", shape_.side[side].norm == QkvNorm::kHead ? "[D] as" : "no", kScaleName[side]));
        const int32_t dtype = type_of_sums(*in_.q);
        if (sums.dtype != dtype)
            return bad_type(op_, "square_sums", formatted("be %s", dtype_name(dtype)), dtype_name(sums.dtype));
        if (!has_shape(sums, {shape_.rope.S, 2}))
            return bad_value(op_, "square_sums", formatted("have shape [S,2] = [%lld, 2]", LongLong(shape_.rope.S)),
                             got_shape(sums));
        if (Check c = check_memory("square_sums", sums); !c.ok()) return c;
        shape_.square_sum_stride = used_stride(sums, 0);
        if (Check c = check_unit_stride("square_sums", sums); !c.ok() || known_ != Known::kValues) return c;
        return dtype == NPU_ROPE_FLOAT64 ? check_sum_values<double>(sums) : check_sum_values<float>(sums);
    }

    // No sum is negative. A sum may be infinite or NaN, as the squares may be: a NaN passes to the results.
    template <typename T>
    Check check_sum_values(const npu_rope_tensor& sums) {
        auto* values = static_cast<const T*>(sums.data);
        for (int64_t s = 0; s < elements_to_read(shape_.rope.S, shape_.square_sum_stride); ++s)
            for (int side = 0; side < 2; ++side) {
                const double sum = values[s * shape_.square_sum_stride + side];
                if (sum < 0)
                    return bad_value(op_, "square_sums", "not be negative",
                                     formatted("%s at index [%lld, %d]", NumberText(sum).text, LongLong(s), side));
            }
        return {};
    }

    // ---- tables

    Check check_table(const char* name, const npu_rope_tensor& t) {
        if (t.dtype != in_.q->dtype && t.dtype != NPU_ROPE_FLOAT32) return check_factor(name, t);
        const int64_t pairs = shape_.pairs;
        if (t.ndim != 2 || (t.shape[1] != pairs && t.shape[1] != 2 * pairs))
            return bad_value(op_, name,
                             formatted("have shape [P,W] with W = %lld or %lld", LongLong(pairs), LongLong(2 * pairs)),
                             got_shape(t));
        if (Check c = check_memory(name, t); !c.ok()) return c;
        return check_unit_stride(name, t);
    }

    Check check_tables() {
        if (!in_.cos) return bad_value(op_, "cos", "be given with sin", "None");
        if (!in_.sin) return bad_value(op_, "sin", "be given with cos", "None");
        if (in_.freq_factors) return bad_value(op_, "freq_factors", "not be given with cos and sin", "a tensor");
        const npu_rope_tensor &cos = *in_.cos, &sin = *in_.sin;
        if (Check c = check_table("cos", cos); !c.ok()) return c;
        if (sin.dtype != cos.dtype)
            return bad_type(op_, "sin", formatted("have cos's dtype %s", dtype_name(cos.dtype)), dtype_name(sin.dtype));
        if (sin.ndim != 2 || !same_shape(sin, cos))
            return bad_value(op_, "sin", formatted("have cos's shape %s", shape_text(cos.shape, cos.ndim).c_str()),
                             got_shape(sin));
        if (Check c = check_table("sin", sin); !c.ok()) return c;
        shape_.entry_per_lane = cos.shape[1] == 2 * shape_.pairs;
        shape_.table_rows = cos.shape[0];
        shape_.cos_stride = used_stride(cos, 0);
        shape_.sin_stride = used_stride(sin, 0);
        if (!in_.positions) {
            if (shape_.table_rows >= shape_.rope.S) return {};
            return bad_value(op_, "cos", formatted("have a row for each of %lld tokens", LongLong(shape_.rope.S)),
                             got_shape(cos));
        }
        if (shape_.rope.S > 0 && shape_.table_rows == 0) return bad_value(op_, "cos", "have a row", got_shape(cos));
        return known_ == Known::kValues ? check_table_positions(*in_.positions) : Check{};
    }

    Check check_table_positions(const npu_rope_tensor& t) {
        const int axes = rope_has_sections(params_.mode) ? kRopeAxes : 1;
        for (int axis = 0; axis < axes; ++axis)
            for (int64_t s = 0; s < elements_to_read(shape_.rope.S, shape_.rope.pos_stride[1]); ++s) {
                const int64_t at = shape_.rope.axis_offset[axis] + s * shape_.rope.pos_stride[1];
                const int64_t row = index_at(t.data, t.dtype == NPU_ROPE_INT64, at);
                if (row < 0 || row >= shape_.table_rows)
                    return bad_value(op_, "positions",
                                     formatted("be rows 0 to %lld of cos", LongLong(shape_.table_rows - 1)),
                                     std::to_string(row));
            }
        return {};
    }

    // ---- outputs

    Check check_slots(const npu_rope_tensor& slots) {
        if (!is_index(slots.dtype)) return bad_type(op_, "slots", "be int32 or int64", dtype_name(slots.dtype));
        if (!has_shape(slots, {shape_.rope.S}))
            return bad_value(op_, "slots", formatted("have shape [S] = [%lld]", LongLong(shape_.rope.S)),
                             got_shape(slots));
        if (Check c = check_memory("slots", slots); !c.ok()) return c;
        shape_.slot_stride = used_stride(slots, 0);
        return {};
    }

    Check check_out(int side) {
        const npu_rope_tensor* y = out(side);
        if (!y) {
            if (!x(side) || (tensors_.out_may_be_null && !out_is_cache(side))) return {};
            return bad_value(op_, out_name(side), "be a tensor", "NULL");
        }
        if (!x(side))
            return bad_value(op_, out_name(side), formatted("not be given without %s", kXName[side]), "a tensor");
        if (Check c = out_is_cache(side) ? check_cache(side, *y) : check_tensor(side, *y); !c.ok()) return c;
        shape_.side[side].out_dtype = y->dtype;
        return out_is_cache(side) ? check_quantization(side) : Check{};
    }

    Check check_tensor(int side, const npu_rope_tensor& y) {
        QkvSide& s = shape_.side[side];
        if (Check c = check_like(out_name(side), y, kXName[side], *x(side)); !c.ok()) return c;
        StridedView view;
        if (Check c = check_written(out_name(side), y, &view); !c.ok()) return c;
        s.out_stride[0] = used_stride(y, 0);
        s.out_stride[2] = used_stride(y, 1);
        s.in_place = known_ != Known::kLayout && is_same_view(view, view_of(*x(side)));
        return {};
    }

    Check check_cache(int side, const npu_rope_tensor& cache) {
        const char* name = out_name(side);
        QkvSide& s = shape_.side[side];
        const int32_t d = cache.dtype;
        if (d != in_.q->dtype && d != NPU_ROPE_FLOAT32 && d != NPU_ROPE_FLOAT16 && d != NPU_ROPE_BFLOAT16 &&
            d != NPU_ROPE_INT8)
            return bad_type(op_, name,
                            in_.q->dtype == NPU_ROPE_FLOAT64 ? "be float64, float32, float16, bfloat16 or int8"
                                                             : "be float32, float16, bfloat16 or int8",
                            dtype_name(d));
        const bool is_paged = cache.ndim == 4;
        if ((cache.ndim != 3 && !is_paged) || cache.shape[cache.ndim - 2] != s.N || cache.shape[cache.ndim - 1] != s.D)
            return bad_value(op_, name,
                             formatted("have shape [rows,N,D] = [rows, %lld, %lld] or [blocks, block_size, %lld, %lld]",
                                       LongLong(s.N), LongLong(s.D), LongLong(s.N), LongLong(s.D)),
                             got_shape(cache));
        StridedView view;
        if (Check c = check_written(name, cache, &view); !c.ok()) return c;
        s.block_size = is_paged ? std::max<int64_t>(cache.shape[1], 1) : 1;
        s.cache_rows = is_paged ? cache.shape[0] * cache.shape[1] : cache.shape[0];
        s.out_stride[0] = used_stride(cache, 0);
        s.out_stride[1] = is_paged ? used_stride(cache, 1) : 0;
        s.out_stride[2] = used_stride(cache, is_paged ? 2 : 1);
        return {};
    }

    // Only a cache can be quantized, and only the cache of a tensor that is given.
    Check check_quantizes(int side) {
        const char* missing = !in_.slots ? "slots" : !x(side) ? kXName[side] : nullptr;
        if (!missing) return {};
        const std::string rule = formatted("not be given without %s", missing);
        if (quant_scale(side)) return bad_value(op_, kQuantScaleName[side], rule, "a tensor");
        return quant_offset(side) ? bad_value(op_, kQuantOffsetName[side], rule, "a tensor") : Check{};
    }

    // An int8 cache needs a factor; other caches have neither factor nor offset.
    Check check_quantization(int side) {
        const npu_rope_tensor *scale = quant_scale(side), *offset = quant_offset(side);
        const char *name = kQuantScaleName[side], *offset_name = kQuantOffsetName[side];
        QkvSide& s = shape_.side[side];
        if (s.out_dtype != NPU_ROPE_INT8) {
            const std::string rule = formatted("be given for an int8 %s only", out_name(side));
            if (scale) return bad_value(op_, name, rule, dtype_name(s.out_dtype));
            return offset ? bad_value(op_, offset_name, rule, dtype_name(s.out_dtype)) : Check{};
        }
        if (!scale) return bad_value(op_, name, formatted("be given for an int8 %s", out_name(side)), "None");
        if (Check c = check_quant_tensor(side, name, *scale); !c.ok()) return c;
        if (!offset) return {};
        if (offset->ndim < 1 || offset->ndim > NPU_ROPE_MAX_NDIM || !same_shape(*offset, *scale))
            return bad_value(op_, offset_name,
                             formatted("have %s's shape %s", name, shape_text(scale->shape, scale->ndim).c_str()),
                             got_shape(*offset));
        return check_quant_tensor(side, offset_name, *offset);
    }

    Check check_quant_tensor(int side, const char* name, const npu_rope_tensor& t) {
        QkvSide& s = shape_.side[side];
        if (t.dtype != NPU_ROPE_FLOAT32) return bad_type(op_, name, "be float32", dtype_name(t.dtype));
        const bool is_per_channel = has_shape(t, {s.N, s.D}), is_per_head = has_shape(t, {s.N});
        if (!is_per_channel && !is_per_head && !has_shape(t, {1}))
            return bad_value(op_, name,
                             formatted("have shape [1], [N] = [%lld] or [N,D] = [%lld, %lld]", LongLong(s.N),
                                       LongLong(s.N), LongLong(s.D)),
                             got_shape(t));
        if (Check c = check_memory(name, t); !c.ok()) return c;
        if (!view_of(t).empty() && !is_dense_from(0, t.ndim, t.shape, t.stride))
            return bad_value(op_, name, "be contiguous", "strides " + shape_text(t.stride, t.ndim));
        s.quant_stride[0] = is_per_channel ? s.D : is_per_head && s.N > 1 ? 1 : 0;
        s.quant_stride[1] = is_per_channel ? 1 : 0;
        return {};
    }

    // An output is its own input, or shares no memory with any tensor of the call.
    Check check_disjoint(int side) {
        if (!out(side)) return {};
        const StridedView y = view_of(*out(side));
        auto shares = [&](const npu_rope_tensor* other) { return other && may_share_memory(y, view_of(*other)); };
        for (int k = 0; k < 3; ++k) {
            const bool is_own = k == side && !out_is_cache(side);
            if (!(is_own && shape_.side[side].in_place) && shares(x(k)))
                return shared_memory_error(out_name(side), kXName[k], is_own);
            if (k < side && shares(out(k))) return shared_memory_error(out_name(side), out_name(k), false);
        }
        const NamedTensor others[] = {{"q_scale", in_.q_scale},
                                      {"k_scale", in_.k_scale},
                                      {"q_bias", in_.q_bias},
                                      {"k_bias", in_.k_bias},
                                      {"square_sums", in_.square_sums},
                                      {"positions", in_.positions},
                                      {"freq_factors", in_.freq_factors},
                                      {"cos", in_.cos},
                                      {"sin", in_.sin},
                                      {"slots", in_.slots},
                                      {"k_quant_scale", in_.k_quant_scale},
                                      {"k_quant_offset", in_.k_quant_offset},
                                      {"v_quant_scale", in_.v_quant_scale},
                                      {"v_quant_offset", in_.v_quant_offset}};
        for (const NamedTensor& other : others)
            if (shares(other.tensor)) return shared_memory_error(out_name(side), other.name, false);
        return {};
    }

    // Each slot is -1 or a row of each cache, and no two tokens have the same one.
    Check check_slot_values() {
        const npu_rope_tensor& slots = *in_.slots;
        const int64_t k_rows = shape_.side[1].cache_rows;
        const int64_t v_rows = shape_.side[2].given ? shape_.side[2].cache_rows : k_rows;
        const int64_t rows = std::min(k_rows, v_rows);
        const char* cache = k_rows == v_rows ? "the cache" : k_rows < v_rows ? kCacheName[1] : kCacheName[2];
        const int64_t S = elements_to_read(shape_.rope.S, shape_.slot_stride);
        std::vector<int64_t> seen;
        seen.reserve(static_cast<size_t>(S));
        for (int64_t s = 0; s < S; ++s) {
            const int64_t slot = index_at(slots.data, slots.dtype == NPU_ROPE_INT64, s * shape_.slot_stride);
            if (slot < -1 || slot >= rows)
                return bad_value(op_, "slots", formatted("be -1 or a row of %s's %lld", cache, LongLong(rows)),
                                 std::to_string(slot));
            if (slot >= 0) seen.push_back(slot);
        }
        if (!std::is_sorted(seen.begin(), seen.end())) std::sort(seen.begin(), seen.end());
        auto repeated = std::adjacent_find(seen.begin(), seen.end());
        if (repeated == seen.end()) return {};
        return bad_value(op_, "slots", "differ from each other", formatted("%lld twice", LongLong(*repeated)));
    }

    const QkvTensors& tensors_;
    const npu_rope_qkv_inputs& in_;
    const npu_rope_params& params_;
    const QkvAttributes& attributes_;
    QkvShape& shape_;
};

// The rules of q and k that rope_qk lacks: they have no batch.
Check check_ranks_of_heads(const char* op, const npu_rope_tensor* q, const npu_rope_tensor* k) {
    for (auto [name, x] : {std::pair{"q", q}, std::pair{"k", k}}) {
        if (!x) return bad_value(op, name, "be a tensor", "NULL");
        if (x->ndim != 3) return bad_value(op, name, "have shape [S,N,D]", got_shape(*x));
    }
    return {};
}

}  // namespace

Check check_qkv_norm_rope_cache(const QkvTensors& t, const npu_rope_params* params, const QkvAttributes& attributes,
                                QkvShape* shape) {
    const npu_rope_qkv_inputs& in = t.in;
    if (Check c = check_ranks_of_heads(kOp, in.q, in.k); !c.ok()) return c;
    // Tables without positions have a row for each token. For rope_qk's rules, the positions then are any [S], whose
    // values the rules do not read.
    int64_t any_row = 0;
    npu_rope_tensor rows_of_tokens{&any_row, NPU_ROPE_INT64, 1, {in.q->shape[0]}, {1}};
    const bool has_tables = in.cos || in.sin, takes_rows_of_tokens = has_tables && !in.positions;
    if (!has_tables && !in.positions) return bad_value(kOp, "positions", "be given without cos and sin", "None");
    if (takes_rows_of_tokens && params && rope_has_sections(params->mode))
        return bad_value(kOp, "positions", formatted("be given in mode %s", mode_name(params->mode)), "None");
    RopeTensors rope = rope_qk_tensors(in.q, in.k, takes_rows_of_tokens ? &rows_of_tokens : in.positions,
                                       in.freq_factors, nullptr, nullptr);
    rope.op = kOp;
    rope.known = takes_rows_of_tokens ? std::max(t.known, Known::kAddresses) : t.known;
    rope.out_may_be_null = true;
    *shape = QkvShape{};
    if (Check c = check_rope(rope, params, attributes.angle_policy, &shape->rope); !c.ok()) return c;
    return Rules(t, *params, attributes, shape).check_all();
}

Check check_qk_square_sums(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* out, Known known,
                           bool out_may_be_null) {
    constexpr const char* op = "qk_square_sums";
    if (Check c = check_ranks_of_heads(op, q, k); !c.ok()) return c;
    TensorRules rules(op, known);
    for (auto [name, x, like] : {std::tuple{"q", q, static_cast<const npu_rope_tensor*>(nullptr)}, {"k", k, q}}) {
        if (Check c = rules.check_rotated(name, *x, "[S,N,D]", "q", like); !c.ok()) return c;
        if (Check c = rules.check_unit_stride(name, *x); !c.ok()) return c;
    }
    if (!out) return out_may_be_null ? Check{} : bad_value(op, "out", "be a tensor", "NULL");
    if (out->dtype != type_of_sums(*q))
        return bad_type(op, "out", formatted("be %s", dtype_name(type_of_sums(*q))), dtype_name(out->dtype));
    if (!has_shape(*out, {q->shape[0], 2}))
        return bad_value(op, "out", formatted("have shape [S,2] = [%lld, 2]", LongLong(q->shape[0])), got_shape(*out));
    StridedView view;
    if (Check c = rules.check_written("out", *out, &view); !c.ok()) return c;
    if (known == Known::kLayout) return {};
    for (auto [name, x] : {std::pair{"q", q}, std::pair{"k", k}})
        if (may_share_memory(view, view_of(*x))) return rules.shared_memory_error("out", name, false);
    return {};
}

}  // namespace npu_rope
