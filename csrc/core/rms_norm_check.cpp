#include "csrc/core/rms_norm_check.h"

#include <algorithm>
#include <iterator>

namespace npu_rope {
namespace {

class Rules : TensorRules {
public:
    Rules(const RmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* s)
        : TensorRules(t.op, t.known), tensors_(t), attributes_(a), shape_(*s) {}

    Check check_all() {
        const int32_t x_dtype = tensors_.x->dtype, scale_dtype = tensors_.scale->dtype;
        if (Check c = check_x_and_scale(*tensors_.x, *tensors_.scale); !c.ok()) return c;
        if (tensors_.adds)
            if (Check c = check_tensor("residual", *tensors_.residual, "x", x_dtype, shape_.residual_stride); !c.ok())
                return c;
        if (tensors_.backward)
            if (Check c = check_tensor("grad", *tensors_.grad, "scale", scale_dtype, shape_.grad_stride); !c.ok())
                return c;
        const bool has_x_dtype = tensors_.backward || tensors_.rounds_last;
        const char* like = has_x_dtype ? "x" : "scale";
        const int32_t out_dtype = has_x_dtype ? x_dtype : scale_dtype;
        if (tensors_.out)
            if (Check c = check_output(tensors_.out_name(), *tensors_.out, like, out_dtype, shape_.out_stride); !c.ok())
                return c;
        if (tensors_.sum)
            if (Check c = check_output("sum", *tensors_.sum, "x", x_dtype, shape_.sum_stride); !c.ok()) return c;
        if (tensors_.dscale)
            if (Check c = check_dscale(*tensors_.dscale); !c.ok()) return c;
        return known_ == Known::kLayout ? Check{} : check_overlap();
    }

private:
    Check check_x_and_scale(const npu_rope_tensor& x, const npu_rope_tensor& scale) {
        for (const NamedTensor& t : {NamedTensor{"x", &x}, NamedTensor{"scale", &scale}})
            if (!is_float(t.tensor->dtype) || (tensors_.rounds_last && t.tensor->dtype == NPU_ROPE_FLOAT64))
                return bad_type(op_, t.name,
                                tensors_.rounds_last ? "be float32, float16 or bfloat16"
                                                     : "be float32, float16, bfloat16 or float64",
                                dtype_name(t.tensor->dtype));
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
        fill_sizes(x);
        fill_scale(scale, x.ndim);
        return {};
    }

    Check check_attributes(int ndim) {
        if (attributes_.axis < -ndim || attributes_.axis >= ndim)
            return bad_value(op_, "axis", formatted("be in [%d, %d]", -ndim, ndim - 1),
                             std::to_string(attributes_.axis));
        axis_ = static_cast<int>(attributes_.axis < 0 ? attributes_.axis + ndim : attributes_.axis);
        if (Check c = check_epsilon(attributes_.epsilon); !c.ok()) return c;
        shape_.epsilon = static_cast<double>(static_cast<float>(attributes_.epsilon));
        shape_.stash_dtype = rms_norm_stash_dtype(attributes_.stash_type);
        if (shape_.stash_dtype < 0)
            return bad_value(op_, "stash_type", "be 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)",
                             std::to_string(attributes_.stash_type));
        return check_scale_offset(attributes_.scale_offset);
    }

    // Whether scale broadcasts to x's shape. With the last dimensions aligned, each size of scale must be 1 or x's
    // size.
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
        return view_of(t).empty() || npu_rope::is_dense_from(axis, t.ndim, t.shape, t.stride);
    }

    // Checks a tensor of x's shape with the dtype of the tensor `like`, and fills its strides.
    Check check_tensor(const char* name, const npu_rope_tensor& t, const char* like, int32_t dtype, int64_t* stride) {
        const npu_rope_tensor& x = *tensors_.x;
        if (t.dtype != dtype)
            return bad_type(op_, name, formatted("have %s's dtype %s", like, dtype_name(dtype)), dtype_name(t.dtype));
        if (t.ndim < 0 || t.ndim > NPU_ROPE_MAX_NDIM || !same_shape(t, x))
            return bad_value(op_, name, "have x's shape " + shape_text(x.shape, x.ndim), got_shape(t));
        if (Check c = check_memory(name, t); !c.ok()) return c;
        if (Check c = check_rows(name, t); !c.ok()) return c;
        fill_outer(t, stride);
        return {};
    }

    Check check_output(const char* name, const npu_rope_tensor& t, const char* like, int32_t dtype, int64_t* stride) {
        if (Check c = check_tensor(name, t, like, dtype, stride); !c.ok()) return c;
        if (is_injective(view_of(t))) return {};
        return bad_value(op_, name, "not overlap itself", "strides " + shape_text(t.stride, t.ndim));
    }

    Check check_dscale(npu_rope_tensor dscale) {
        if (tensors_.adds_to_float32_dscale && dscale.dtype != NPU_ROPE_FLOAT32)
            return bad_type(op_, "dscale", "be float32", dtype_name(dscale.dtype));
        if (tensors_.adds_to_float32_dscale) dscale.dtype = tensors_.scale->dtype;  // compare only the shape below
        if (Check c = check_like("dscale", dscale, "scale", *tensors_.scale); !c.ok()) return c;
        if (Check c = check_memory("dscale", *tensors_.dscale); !c.ok()) return c;
        if (is_dense_from(0, dscale)) return {};
        return bad_value(op_, "dscale", "be contiguous", "strides " + shape_text(dscale.stride, dscale.ndim));
    }

    // Outputs must share no memory with each other or with inputs. An output of a forward operator may be x itself or
    // the residual itself.
    Check check_overlap() {
        const char* alternative = tensors_.backward ? ""
                                  : tensors_.adds   ? "be x or residual itself or "
                                                    : "be x itself or ";
        for (const NamedTensor& out :
             {NamedTensor{tensors_.out_name(), tensors_.out}, {"sum", tensors_.sum}, {"dscale", tensors_.dscale}}) {
            if (!out.tensor) continue;
            for (const NamedTensor& in :
                 {NamedTensor{"grad", tensors_.grad}, {"x", tensors_.x}, {"residual", tensors_.residual}})
                if (in.tensor && (tensors_.backward || !is_same_view(view_of(*out.tensor), view_of(*in.tensor))))
                    if (Check c = check_disjoint(out, alternative, in); !c.ok()) return c;
            if (Check c = check_disjoint(out, "", {"scale", tensors_.scale}); !c.ok()) return c;
        }
        if (tensors_.out && tensors_.sum) return check_disjoint({"out", tensors_.out}, "", {"sum", tensors_.sum});
        return tensors_.out && tensors_.dscale ? check_disjoint({"dscale", tensors_.dscale}, "", {"dx", tensors_.out})
                                               : Check{};
    }

    // alternative: the start of the message's rule, such as "be x itself or "; empty if the output may not be an input.
    Check check_disjoint(const NamedTensor& out, const char* alternative, const NamedTensor& other) {
        if (!may_share_memory(view_of(*out.tensor), view_of(*other.tensor))) return {};
        return bad_value(op_, out.name, formatted("%sshare no memory with %s", alternative, other.name),
                         "overlapping memory");
    }

    // ---- strides

    void fill_sizes(const npu_rope_tensor& x) {
        for (int64_t& size : shape_.outer) size = 1;
        for (int64_t& size : shape_.inner) size = 1;
        shape_.rows = shape_.n = 1;
        for (int k = 0; k < axis_; ++k) shape_.rows *= shape_.outer[kMaxOuterDims - axis_ + k] = x.shape[k];
        for (int k = axis_; k < x.ndim; ++k) shape_.n *= shape_.inner[NPU_ROPE_MAX_NDIM - x.ndim + k] = x.shape[k];
        fill_outer(x, shape_.x_stride);
    }

    void fill_outer(const npu_rope_tensor& t, int64_t* stride) const {
        for (int k = 0; k < kMaxOuterDims; ++k) stride[k] = 0;
        for (int k = 0; k < axis_; ++k) stride[kMaxOuterDims - axis_ + k] = used_stride(t, k);
    }

    // Aligns the scale with x's last dimensions. All rows along a dimension share the scale if the scale
    // lacks that dimension or has size 1 in it.
    void fill_scale(const npu_rope_tensor& scale, int ndim) {
        const int missing_dims = ndim - scale.ndim;
        for (bool& shared : shape_.scale_is_shared) shared = true;
        for (bool& shared : shape_.scale_inner_is_shared) shared = true;
        for (int k = missing_dims; k < axis_; ++k) {
            shape_.scale_stride[kMaxOuterDims - axis_ + k] = used_stride(scale, k - missing_dims);
            shape_.scale_is_shared[kMaxOuterDims - axis_ + k] = scale.shape[k - missing_dims] == 1;
        }
        for (int k = std::max(axis_, missing_dims); k < ndim; ++k) {
            shape_.scale_inner_stride[NPU_ROPE_MAX_NDIM - ndim + k] = used_stride(scale, k - missing_dims);
            shape_.scale_inner_is_shared[NPU_ROPE_MAX_NDIM - ndim + k] = scale.shape[k - missing_dims] == 1;
        }
        int64_t expected = 1;
        shape_.scale_is_dense = true;
        for (int k = NPU_ROPE_MAX_NDIM - 1; k >= 0; --k) {
            if (shape_.inner[k] > 1 && shape_.scale_inner_stride[k] != expected) shape_.scale_is_dense = false;
            expected *= shape_.inner[k];
        }
    }

    const RmsNormTensors& tensors_;
    const RmsNormAttributes& attributes_;
    RmsNormShape& shape_;
    int axis_ = 0;
};

}  // namespace

int32_t rms_norm_stash_dtype(int64_t stash_type) {
    constexpr int64_t kOnnxTypes[] = {1, 10, 16, 11};  // in the order of npu_rope_dtype
    const auto* found = std::find(std::begin(kOnnxTypes), std::end(kOnnxTypes), stash_type);
    return found == std::end(kOnnxTypes) ? -1 : static_cast<int32_t>(found - kOnnxTypes);
}

RmsNormTensors rms_norm_tensors(const npu_rope_tensor* x, const npu_rope_tensor* scale, const npu_rope_tensor* out) {
    return {"rms_norm", x, scale, out, nullptr, nullptr, nullptr, nullptr};
}

RmsNormTensors rms_norm_rounded_last_tensors(const npu_rope_tensor* x, const npu_rope_tensor* scale,
                                             const npu_rope_tensor* out) {
    RmsNormTensors t = rms_norm_tensors(x, scale, out);
    t.op = "rms_norm_rounded_last";
    t.rounds_last = true;
    return t;
}

RmsNormTensors rms_norm_backward_tensors(const npu_rope_tensor* grad, const npu_rope_tensor* x,
                                         const npu_rope_tensor* scale, const npu_rope_tensor* dx,
                                         const npu_rope_tensor* dscale, bool adds_to_float32_dscale) {
    return {"rms_norm_backward", x, scale, dx, nullptr, nullptr, grad, dscale, false, true, adds_to_float32_dscale};
}

RmsNormTensors add_rms_norm_tensors(const npu_rope_tensor* x, const npu_rope_tensor* residual,
                                    const npu_rope_tensor* scale, const npu_rope_tensor* out,
                                    const npu_rope_tensor* sum) {
    return {"add_rms_norm", x, scale, out, residual, sum, nullptr, nullptr, /*adds=*/true};
}

Check check_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, RmsNormShape* shape) {
    const struct {
        NamedTensor named;
        bool required;
    } all[] = {{{"grad", t.grad}, t.backward},
               {{"x", t.x}, true},
               {{"residual", t.residual}, t.adds},
               {{"scale", t.scale}, true},
               {{t.out_name(), t.out}, !t.out_may_be_null},
               {{"sum", t.sum}, t.adds && !t.out_may_be_null},
               {{"dscale", t.dscale}, t.adds_to_float32_dscale && !t.out_may_be_null}};
    for (const auto& [named, required] : all)
        if (required && !named.tensor) return bad_value(t.op, named.name, "be a tensor", "NULL");
    *shape = RmsNormShape{};
    return Rules(t, a, shape).check_all();
}

}  // namespace npu_rope
