#include "csrc/core/rms_norm_check.h"

#include <algorithm>
#include <initializer_list>

namespace npu_rope {
namespace {

using Wide = long long;

class Rules : TensorRules {
public:
    Rules(const char* op, Known known, const RmsNormAttributes& a, RmsNormShape* s)
        : TensorRules(op, known), a_(a), s_(*s) {}

    Check forward(const RmsNormTensors& t) {
        if (Check c = check_inputs(*t.x, *t.scale); !c.ok() || !t.out) return c;
        const npu_rope_tensor &x = *t.x, &scale = *t.scale, &out = *t.out;
        if (Check c = check_result("out", out, "scale", scale.dtype, x); !c.ok()) return c;
        fill_outer(out, s_.out_stride);
        if (known_ == Known::kLayout) return {};
        if (!is_same_view(view_of(out), view_of(x)))
            if (Check c = check_apart("out", out, "be x itself or ", {{"x", &x}}); !c.ok()) return c;
        return check_apart("out", out, "be x itself or ", {{"scale", &scale}});
    }

    Check backward(const RmsNormBackwardTensors& t, bool sums) {
        if (Check c = check_inputs(*t.x, *t.scale); !c.ok()) return c;
        if (Check c = check_typed("grad", *t.grad, "scale", t.scale->dtype, *t.x); !c.ok()) return c;
        if (Check c = check_memory("grad", *t.grad); !c.ok()) return c;
        if (Check c = check_rows("grad", *t.grad); !c.ok()) return c;
        fill_outer(*t.grad, s_.grad_stride);
        if (!t.dx || !t.dscale) return {};
        if (Check c = check_result("dx", *t.dx, "x", t.x->dtype, *t.x); !c.ok()) return c;
        fill_outer(*t.dx, s_.out_stride);
        npu_rope_tensor dscale = *t.dscale;
        if (sums && dscale.dtype != NPU_ROPE_FLOAT32)
            return bad_type(op_, "dscale", "be float32", dtype_name(dscale.dtype));
        if (sums) dscale.dtype = t.scale->dtype;
        if (Check c = check_like("dscale", dscale, "scale", *t.scale); !c.ok()) return c;
        if (Check c = check_memory("dscale", *t.dscale); !c.ok()) return c;
        if (!is_dense_from(0, *t.dscale))
            return bad_value(op_, "dscale", "be contiguous", "strides " + shape_text(t.dscale->stride, t.dscale->ndim));
        if (known_ == Known::kLayout) return {};
        for (const NamedTensor& out : {NamedTensor{"dx", t.dx}, NamedTensor{"dscale", t.dscale}})
            if (Check c = check_apart(out.name, *out.tensor, "", {{"grad", t.grad}, {"x", t.x}, {"scale", t.scale}});
                !c.ok())
                return c;
        return check_apart("dscale", *t.dscale, "", {{"dx", t.dx}});
    }

    Check add(const AddRmsNormTensors& t) {
        if (Check c = check_inputs(*t.x, *t.scale); !c.ok()) return c;
        if (Check c = check_like("residual", *t.residual, "x", *t.x); !c.ok()) return c;
        if (Check c = check_memory("residual", *t.residual); !c.ok()) return c;
        if (Check c = check_rows("residual", *t.residual); !c.ok()) return c;
        fill_outer(*t.residual, s_.residual_stride);
        if (!t.out || !t.sum) return {};
        if (Check c = check_result("out", *t.out, "scale", t.scale->dtype, *t.x); !c.ok()) return c;
        fill_outer(*t.out, s_.out_stride);
        if (Check c = check_result("sum", *t.sum, "x", t.x->dtype, *t.x); !c.ok()) return c;
        fill_outer(*t.sum, s_.sum_stride);
        if (known_ == Known::kLayout) return {};
        constexpr const char* itself = "be x or residual itself or ";
        for (const NamedTensor& out : {NamedTensor{"out", t.out}, NamedTensor{"sum", t.sum}}) {
            for (const NamedTensor& in : {NamedTensor{"x", t.x}, NamedTensor{"residual", t.residual}})
                if (!is_same_view(view_of(*out.tensor), view_of(*in.tensor)))
                    if (Check c = check_apart(out.name, *out.tensor, itself, {in}); !c.ok()) return c;
            if (Check c = check_apart(out.name, *out.tensor, itself, {{"scale", t.scale}}); !c.ok()) return c;
        }
        return check_apart("out", *t.out, "", {{"sum", t.sum}});
    }

private:
    Check check_inputs(const npu_rope_tensor& x, const npu_rope_tensor& scale) {
        for (const NamedTensor& t : {NamedTensor{"x", &x}, NamedTensor{"scale", &scale}})
            if (!is_float(t.tensor->dtype))
                return bad_type(op_, t.name, "be float32, float16, bfloat16 or float64", dtype_name(t.tensor->dtype));
        if (x.ndim < 1 || x.ndim > NPU_ROPE_MAX_NDIM)
            return bad_value(op_, "x", formatted("have at least one dimension%s", x.ndim < 1 ? "" : " and at most 4"),
                             got_shape(x));
        if (Check c = check_attributes(x.ndim); !c.ok()) return c;
        if (!broadcasts(scale, x))
            return bad_value(op_, "scale", "be broadcastable to x's shape " + shape_text(x.shape, x.ndim),
                             got_shape(scale));
        if (Check c = check_memory("x", x); !c.ok()) return c;
        if (Check c = check_memory("scale", scale); !c.ok()) return c;
        if (Check c = check_rows("x", x); !c.ok()) return c;
        place(x);
        place_scale(scale, x.ndim);
        return {};
    }

    Check check_attributes(int ndim) {
        if (a_.axis < -ndim || a_.axis >= ndim)
            return bad_value(op_, "axis", formatted("be in [%d, %d]", -ndim, ndim - 1), std::to_string(a_.axis));
        axis_ = static_cast<int>(a_.axis < 0 ? a_.axis + ndim : a_.axis);
        if (Check c = check_epsilon(a_.epsilon); !c.ok()) return c;
        s_.epsilon = static_cast<double>(static_cast<float>(a_.epsilon));
        s_.stash_dtype = rms_norm_stash_dtype(a_.stash_type);
        if (s_.stash_dtype < 0)
            return bad_value(op_, "stash_type", "be 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)",
                             std::to_string(a_.stash_type));
        return {};
    }

    // Whether each of the scale's dimensions, counted from the last, is x's or 1.
    static bool broadcasts(const npu_rope_tensor& scale, const npu_rope_tensor& x) {
        if (scale.ndim < 0 || scale.ndim > x.ndim) return false;
        const int64_t* aligned = x.shape + (x.ndim - scale.ndim);
        for (int k = 0; k < scale.ndim; ++k)
            if (scale.shape[k] != 1 && scale.shape[k] != aligned[k]) return false;
        return true;
    }

    // A row's elements must be contiguous.
    Check check_rows(const char* name, const npu_rope_tensor& t) {
        if (is_dense_from(axis_, t)) return {};
        return bad_value(op_, name, "be contiguous in the normalized dimensions",
                         "strides " + shape_text(t.stride, t.ndim));
    }

    static bool is_dense_from(int axis, const npu_rope_tensor& t) {
        int64_t expected = 1;
        if (view_of(t).empty()) return true;
        for (int k = t.ndim - 1; k >= axis; --k) {
            if (t.shape[k] > 1 && t.stride[k] != expected) return false;
            expected *= t.shape[k];
        }
        return true;
    }

    // Checks that a tensor has the dtype of another one and x's shape.
    Check check_typed(const char* name, const npu_rope_tensor& t, const char* like, int32_t dtype,
                      const npu_rope_tensor& x) {
        if (t.dtype != dtype)
            return bad_type(op_, name, formatted("have %s's dtype %s", like, dtype_name(dtype)), dtype_name(t.dtype));
        if (t.ndim < 0 || t.ndim > NPU_ROPE_MAX_NDIM || !same_shape(t, x))
            return bad_value(op_, name, "have x's shape " + shape_text(x.shape, x.ndim), got_shape(t));
        return {};
    }

    Check check_result(const char* name, const npu_rope_tensor& out, const char* like, int32_t dtype,
                       const npu_rope_tensor& x) {
        if (Check c = check_typed(name, out, like, dtype, x); !c.ok()) return c;
        if (Check c = check_memory(name, out); !c.ok()) return c;
        if (Check c = check_rows(name, out); !c.ok()) return c;
        if (is_injective(view_of(out))) return {};
        return bad_value(op_, name, "not overlap itself", "strides " + shape_text(out.stride, out.ndim));
    }

    Check check_apart(const char* name, const npu_rope_tensor& out, const char* itself,
                      std::initializer_list<NamedTensor> others) {
        for (const NamedTensor& other : others)
            if (may_share_memory(view_of(out), view_of(*other.tensor)))
                return bad_value(op_, name, formatted("%sshare no memory with %s", itself, other.name),
                                 "memory that they share");
        return {};
    }

    // ---- strides

    void place(const npu_rope_tensor& x) {
        for (int64_t& size : s_.outer) size = 1;
        for (int64_t& size : s_.inner) size = 1;
        s_.rows = s_.n = 1;
        for (int k = 0; k < axis_; ++k) s_.rows *= s_.outer[kRmsNormOuter - axis_ + k] = x.shape[k];
        for (int k = axis_; k < x.ndim; ++k) s_.n *= s_.inner[NPU_ROPE_MAX_NDIM - x.ndim + k] = x.shape[k];
        fill_outer(x, s_.x_stride);
    }

    void fill_outer(const npu_rope_tensor& t, int64_t* stride) const {
        for (int k = 0; k < kRmsNormOuter; ++k) stride[k] = 0;
        for (int k = 0; k < axis_; ++k) stride[kRmsNormOuter - axis_ + k] = stride_that_matters(t, k);
    }

    // The scale has x's last dimensions. Rows that differ only in the others share it.
    void place_scale(const npu_rope_tensor& scale, int ndim) {
        const int lacks = ndim - scale.ndim;
        for (bool& shared : s_.scale_is_shared) shared = true;
        for (bool& shared : s_.scale_inner_is_shared) shared = true;
        for (int k = lacks; k < axis_; ++k) {
            s_.scale_stride[kRmsNormOuter - axis_ + k] = stride_that_matters(scale, k - lacks);
            s_.scale_is_shared[kRmsNormOuter - axis_ + k] = scale.shape[k - lacks] == 1;
        }
        for (int k = std::max(axis_, lacks); k < ndim; ++k) {
            s_.scale_inner_stride[NPU_ROPE_MAX_NDIM - ndim + k] = stride_that_matters(scale, k - lacks);
            s_.scale_inner_is_shared[NPU_ROPE_MAX_NDIM - ndim + k] = scale.shape[k - lacks] == 1;
        }
        int64_t expected = 1;
        s_.scale_is_dense = true;
        for (int k = NPU_ROPE_MAX_NDIM - 1; k >= 0; --k) {
            if (s_.inner[k] > 1 && s_.scale_inner_stride[k] != expected) s_.scale_is_dense = false;
            expected *= s_.inner[k];
        }
    }

    const RmsNormAttributes& a_;
    RmsNormShape& s_;
    int axis_ = 0;
};

// may_lack: the tensors are outputs that are still to be allocated.
Check missing(const char* op, std::initializer_list<NamedTensor> tensors, bool may_lack = false) {
    for (const NamedTensor& t : tensors)
        if (!t.tensor && !may_lack) return bad_value(op, t.name, "be a tensor", "NULL");
    return {};
}

Check check_backward(const RmsNormBackwardTensors& t, const RmsNormAttributes& a, bool sums, RmsNormShape* shape) {
    constexpr const char* op = "rms_norm_backward";
    if (Check c = missing(op, {{"grad", t.grad}, {"x", t.x}, {"scale", t.scale}}); !c.ok()) return c;
    if (Check c = missing(op, {{"dx", t.dx}, {"dscale", t.dscale}}, t.allocates); !c.ok()) return c;
    *shape = RmsNormShape{};
    return Rules(op, t.known, a, shape).backward(t, sums);
}

}  // namespace

int32_t rms_norm_stash_dtype(int64_t stash_type) {
    switch (stash_type) {
        case 1:
            return NPU_ROPE_FLOAT32;
        case 10:
            return NPU_ROPE_FLOAT16;
        case 11:
            return NPU_ROPE_FLOAT64;
        case 16:
            return NPU_ROPE_BFLOAT16;
        default:
            return -1;
    }
}

Check check_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape) {
    constexpr const char* op = "rms_norm";
    if (Check c = missing(op, {{"x", t.x}, {"scale", t.scale}}); !c.ok()) return c;
    if (Check c = missing(op, {{"out", t.out}}, t.allocates); !c.ok()) return c;
    *shape = RmsNormShape{};
    return Rules(op, t.known, a, shape).forward(t);
}

Check check_rms_norm_backward(const RmsNormBackwardTensors& t, const RmsNormAttributes& a, RmsNormShape* shape) {
    return check_backward(t, a, false, shape);
}

Check check_rms_norm_backward_sums(const RmsNormBackwardTensors& t, const RmsNormAttributes& a, RmsNormShape* shape) {
    return check_backward(t, a, true, shape);
}

Check check_add_rms_norm(const AddRmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape) {
    constexpr const char* op = "add_rms_norm";
    if (Check c = missing(op, {{"x", t.x}, {"residual", t.residual}, {"scale", t.scale}}); !c.ok()) return c;
    if (Check c = missing(op, {{"out", t.out}, {"sum", t.sum}}, t.allocates); !c.ok()) return c;
    *shape = RmsNormShape{};
    return Rules(op, t.known, a, shape).add(t);
}

}  // namespace npu_rope
