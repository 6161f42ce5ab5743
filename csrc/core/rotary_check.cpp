#include "csrc/core/rotary_check.h"

namespace npu_rope {
namespace {

using LongLong = long long;  // the type of %lld

class Rules : TensorRules {
public:
    Rules(const RotaryTensors& t, const RotaryAttributes& a, RotaryShape* s)
        : TensorRules(t.op, t.known), tensors_(t), attributes_(a), shape_(*s), rope_shape_(s->rope) {}

    Check check_all() {
        for (int k = 0; k < tensors_.sides; ++k)
            if (Check c = check_x(k); !c.ok()) return c;
        if (Check c = check_table(tensors_.cos_name, *tensors_.cos, shape_.cos_stride); !c.ok()) return c;
        if (Check c = check_sin(); !c.ok()) return c;
        if (tensors_.position_ids)
            if (Check c = check_position_ids(*tensors_.position_ids); !c.ok()) return c;
        for (int k = 0; k < tensors_.sides; ++k)
            if (tensors_.out[k])
                if (Check c = check_out(k); !c.ok()) return c;
        return {};
    }

private:
    // ---- rotated tensors

    Check check_x(int side) {
        const npu_rope_tensor& x = *tensors_.x[side];
        const char* name = tensors_.x_name[side];
        const npu_rope_tensor* like = side > 0 ? tensors_.x[0] : nullptr;
        const char* shapes = tensors_.onnx ? "[B,N,S,D] or [B,S,hidden]" : "[B,S,N,D] or [S,N,D]";
        if (Check c = check_rotated(name, x, shapes, tensors_.x_name[0], like); !c.ok()) return c;
        if (!tensors_.onnx)
            fill_sizes(rope_shape_, x, side);
        else if (Check c = fill_onnx_sizes(x); !c.ok())
            return c;
        if (Check c = check_window(); !c.ok()) return c;
        return check_unit_stride(name, x);
    }

    Check fill_onnx_sizes(const npu_rope_tensor& x) {
        if (x.ndim == 3) {
            if (attributes_.num_heads <= 0)
                return bad_value(op_, "num_heads", "be positive where X has shape [B,S,hidden]",
                                 std::to_string(attributes_.num_heads));
            if (x.shape[2] % attributes_.num_heads != 0)
                return bad_value(op_, "num_heads",
                                 formatted("divide X's hidden size %lld", static_cast<LongLong>(x.shape[2])),
                                 std::to_string(attributes_.num_heads));
        }
        rope_shape_.B = x.shape[0];
        rope_shape_.S = x.shape[x.ndim == 3 ? 1 : 2];
        rope_shape_.side[0].N = x.ndim == 3 ? attributes_.num_heads : x.shape[1];
        rope_shape_.D = x.ndim == 3 ? x.shape[2] / attributes_.num_heads : x.shape[3];
        fill_onnx_strides(x, rope_shape_.side[0].x_stride);
        return {};
    }

    void fill_onnx_strides(const npu_rope_tensor& t, int64_t* stride) const {
        stride[0] = used_stride(t, 0);
        stride[1] = used_stride(t, t.ndim == 3 ? 1 : 2);
        stride[2] = t.ndim == 3 ? rope_shape_.D : used_stride(t, 1);
    }

    const char* name_of_width() const { return tensors_.onnx ? "rotary_embedding_dim" : "rotary_dim"; }

    Check check_window() {
        int64_t D = rope_shape_.D, width = attributes_.rotary_dim;
        if (width == 0 && (D <= 0 || D % 2 != 0))
            return bad_value(op_, "the head size", formatted("be even and positive where %s is 0", name_of_width()),
                             std::to_string(D));
        if (width < 0 || width % 2 != 0 || width > D)
            return bad_value(op_, name_of_width(),
                             formatted("be 0 or an even number up to the head size %lld", static_cast<LongLong>(D)),
                             std::to_string(width));
        shape_.rotary_dim = width ? width : D;
        if (shape_.rotary_dim > kMaxRotatedLanes)
            return bad_value(op_, width ? name_of_width() : "the head size",
                             formatted("be at most %lld%s", static_cast<LongLong>(kMaxRotatedLanes),
                                       width ? "" : " where it is the rotated width"),
                             std::to_string(shape_.rotary_dim));
        if (attributes_.offset < 0 || attributes_.offset % 2 != 0)
            return bad_value(op_, "offset", "be an even number >= 0", std::to_string(attributes_.offset));
        if (attributes_.offset > D - shape_.rotary_dim)
            return bad_value(op_, "offset",
                             formatted("be at most the head size %lld minus the rotated width %lld",
                                       static_cast<LongLong>(D), static_cast<LongLong>(shape_.rotary_dim)),
                             std::to_string(attributes_.offset));
        return {};
    }

    // ---- tables

    Check check_table(const char* name, const npu_rope_tensor& t, int64_t* stride) {
        int32_t x_dtype = tensors_.x[0]->dtype;
        if (t.dtype != x_dtype && t.dtype != NPU_ROPE_FLOAT32)
            return bad_type(op_, name,
                            formatted("have %s's dtype %s%s", tensors_.x_name[0], dtype_name(x_dtype),
                                      x_dtype == NPU_ROPE_FLOAT32 ? "" : " or float32"),
                            dtype_name(t.dtype));
        if (Check c = tensors_.onnx ? check_onnx_table_shape(name, t, stride) : check_table_shape(name, t, stride);
            !c.ok())
            return c;
        if (Check c = check_memory(name, t); !c.ok()) return c;
        return check_unit_stride(name, t);
    }

    // A table is [S,W], [1 or B,S,W] or [1 or B,S,1,W]; for x without a batch it is [S,W] or [S,1,W]. W is the rotated
    // width or half of it.
    Check check_table_shape(const char* name, const npu_rope_tensor& t, int64_t* stride) {
        bool is_batched = tensors_.x[0]->ndim == 4;
        int64_t half = shape_.rotary_dim / 2, W = t.ndim >= 1 && t.ndim <= 4 ? t.shape[t.ndim - 1] : -1;
        if (tensors_.position_ids) return check_rows_shape(name, t, W == half || W == 2 * half, stride);
        bool valid_width = W == half || W == shape_.rotary_dim,
             is_per_batch = is_batched && t.ndim >= 3 && t.shape[0] == rope_shape_.B;
        bool is_for_all_batches = has_shape(t, {rope_shape_.S, W});
        if (is_batched)
            is_for_all_batches |= has_shape(t, {1, rope_shape_.S, W}) || has_shape(t, {1, rope_shape_.S, 1, W});
        else
            is_for_all_batches |= has_shape(t, {rope_shape_.S, 1, W});
        is_per_batch = is_per_batch && (has_shape(t, {rope_shape_.B, rope_shape_.S, W}) ||
                                        has_shape(t, {rope_shape_.B, rope_shape_.S, 1, W}));
        if (!valid_width || !(is_per_batch || is_for_all_batches)) {
            auto S = static_cast<LongLong>(rope_shape_.S), B = static_cast<LongLong>(rope_shape_.B),
                 pairs = static_cast<LongLong>(half);
            std::string got = got_shape(t);
            if (!is_batched)
                return bad_value(
                    op_, name,
                    formatted("have shape [S,W] or [S,1,W] with S = %lld and W = %lld or %lld", S, pairs, 2 * pairs),
                    got);
            return bad_value(
                op_, name,
                formatted("have shape [S,W], [B,S,W] or [B,S,1,W] with S = %lld, B = %lld%s and W = %lld or %lld", S, B,
                          B == 1 ? "" : " or 1", pairs, 2 * pairs),
                got);
        }
        shape_.entry_per_lane = W != half;
        bool has_batch = is_batched && t.ndim >= 3;
        stride[0] = has_batch ? used_stride(t, 0) : 0;
        stride[1] = used_stride(t, has_batch ? 1 : 0);
        return {};
    }

    // With position_ids, which select rows, a table is [rows, W].
    Check check_rows_shape(const char* name, const npu_rope_tensor& t, bool valid_width, int64_t* stride) {
        if (t.ndim != 2 || !valid_width)
            return bad_value(
                op_, name,
                formatted("have shape [rows, W] with W = %lld or %lld where position_ids is given",
                          static_cast<LongLong>(shape_.rotary_dim / 2), static_cast<LongLong>(shape_.rotary_dim)),
                got_shape(t));
        shape_.entry_per_lane = t.shape[1] == shape_.rotary_dim;
        stride[0] = 0;
        stride[1] = used_stride(t, 0);
        return {};
    }

    // ONNX's table is [rows, W] with position_ids and [B,S,W] without. Only the first rotary_dim / 2 entries of a row
    // are read.
    Check check_onnx_table_shape(const char* name, const npu_rope_tensor& t, int64_t* stride) {
        auto S = static_cast<LongLong>(rope_shape_.S), B = static_cast<LongLong>(rope_shape_.B),
             pairs = static_cast<LongLong>(shape_.rotary_dim / 2);
        shape_.entry_per_lane = false;
        if (tensors_.position_ids) {
            if (t.ndim != 2 || t.shape[1] < pairs)
                return bad_value(op_, name,
                                 formatted("have shape [rows, W] with W >= %lld where position_ids is given", pairs),
                                 got_shape(t));
            stride[0] = 0;
            stride[1] = used_stride(t, 0);
            return {};
        }
        if (t.ndim != 3 || t.shape[0] != rope_shape_.B || t.shape[1] != rope_shape_.S || t.shape[2] < pairs)
            return bad_value(
                op_, name,
                formatted("have shape [B,S,W] = [%lld, %lld, W] with W >= %lld where position_ids is not given", B, S,
                          pairs),
                got_shape(t));
        stride[0] = used_stride(t, 0);
        stride[1] = used_stride(t, 1);
        return {};
    }

    Check check_sin() {
        const npu_rope_tensor &sin = *tensors_.sin, &cos = *tensors_.cos;
        if (sin.dtype != cos.dtype)
            return bad_type(op_, tensors_.sin_name,
                            formatted("have %s's dtype %s", tensors_.cos_name, dtype_name(cos.dtype)),
                            dtype_name(sin.dtype));
        if (sin.ndim < 0 || sin.ndim > NPU_ROPE_MAX_NDIM || !same_shape(sin, cos))
            return bad_value(
                op_, tensors_.sin_name,
                formatted("have %s's shape %s", tensors_.cos_name, shape_text(cos.shape, cos.ndim).c_str()),
                got_shape(sin));
        return check_table(tensors_.sin_name, sin, shape_.sin_stride);
    }

    Check check_position_ids(const npu_rope_tensor& t) {
        if (!is_index(t.dtype)) return bad_type(op_, "position_ids", "be int64 or int32", dtype_name(t.dtype));
        if (!has_shape(t, {rope_shape_.B, rope_shape_.S}))
            return bad_value(op_, "position_ids",
                             formatted("have shape [B, S] = [%lld, %lld]", static_cast<LongLong>(rope_shape_.B),
                                       static_cast<LongLong>(rope_shape_.S)),
                             got_shape(t));
        if (rope_shape_.B * rope_shape_.S > 0 && tensors_.cos->shape[0] == 0)
            return bad_value(op_, tensors_.cos_name, "have a row where position_ids is given",
                             got_shape(*tensors_.cos));
        if (Check c = check_memory("position_ids", t); !c.ok()) return c;
        rope_shape_.pos_stride[0] = used_stride(t, 0);
        rope_shape_.pos_stride[1] = used_stride(t, 1);
        if (known_ != Known::kValues) return {};
        int64_t rows = tensors_.cos->shape[0];
        const int64_t B = elements_to_read(rope_shape_.B, rope_shape_.pos_stride[0]);
        const int64_t S = elements_to_read(rope_shape_.S, rope_shape_.pos_stride[1]);
        for (int64_t b = 0; b < B; ++b)
            for (int64_t i = 0; i < S; ++i) {
                int64_t at = b * rope_shape_.pos_stride[0] + i * rope_shape_.pos_stride[1];
                int64_t row = index_at(t.data, t.dtype == NPU_ROPE_INT64, at);
                if (row < 0 || row >= rows)
                    return bad_value(
                        op_, "position_ids",
                        formatted("be rows 0 to %lld of %s", static_cast<LongLong>(rows - 1), tensors_.cos_name),
                        std::to_string(row));
            }
        return {};
    }

    // ---- outputs

    Check check_out(int side) {
        const npu_rope_tensor &out = *tensors_.out[side], &x = *tensors_.x[side];
        if (Check c = check_like(tensors_.out_name[side], out, tensors_.x_name[side], x); !c.ok()) return c;
        StridedView view;
        if (Check c = check_written(tensors_.out_name[side], out, &view); !c.ok()) return c;
        if (tensors_.onnx)
            fill_onnx_strides(out, rope_shape_.side[side].out_stride);
        else
            fill_strides(out, rope_shape_.side[side].out_stride);
        rope_shape_.side[side].in_place = known_ != Known::kLayout && is_same_view(view, view_of(x));
        if (known_ == Known::kLayout) return {};
        const char* name = find_shared_tensor(tensors_, side, view, rope_shape_.side[side].in_place,
                                              {{tensors_.cos_name, tensors_.cos},
                                               {tensors_.sin_name, tensors_.sin},
                                               {"position_ids", tensors_.position_ids}});
        return name ? shared_memory_error(tensors_.out_name[side], name, name == tensors_.x_name[side]) : Check{};
    }

    const RotaryTensors& tensors_;
    const RotaryAttributes& attributes_;
    RotaryShape& shape_;
    RopeShape& rope_shape_;
};

}  // namespace

RotaryTensors rotary_mul_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos, const npu_rope_tensor* sin,
                                 const npu_rope_tensor* out, const npu_rope_tensor* position_ids) {
    return {{"rotary_mul", 1, {"x"}, {x}, {"out"}, {out}}, "cos", cos, "sin", sin, position_ids};
}

RotaryTensors rotary_mul_qk_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* cos,
                                    const npu_rope_tensor* sin, const npu_rope_tensor* q_out,
                                    const npu_rope_tensor* k_out) {
    return {{"rotary_mul_qk", 2, {"q", "k"}, {q, k}, {"q_out", "k_out"}, {q_out, k_out}}, "cos", cos, "sin", sin};
}

RotaryTensors rotary_embedding_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos_cache,
                                       const npu_rope_tensor* sin_cache, const npu_rope_tensor* position_ids,
                                       const npu_rope_tensor* y) {
    RotaryTensors t = {{"rotary_embedding", 1, {"X"}, {x}, {"Y"}, {y}}, "cos_cache", cos_cache, "sin_cache", sin_cache};
    t.onnx = true;
    t.position_ids = position_ids;
    return t;
}

Check check_rotary(const RotaryTensors& t, const RotaryAttributes& a, RotaryShape* shape) {
    if (Check c = check_given(t, {{t.cos_name, t.cos}, {t.sin_name, t.sin}}); !c.ok()) return c;
    *shape = RotaryShape{};
    shape->rope.sides = t.sides;
    return Rules(t, a, shape).check_all();
}

}  // namespace npu_rope
