// Shared parts of the registrations of rms_norm, rms_norm_backward and add_rms_norm: attributes, and tensors of any
// number of dimensions in the form that the C interface reads.
#pragma once

#include <array>
#include <vector>

#include "csrc/torch/rope_call.h"

namespace npu_rope {

using torch::stable::Tensor;

// Reads "int axis, float epsilon, int stash_type", the last arguments of the schemas.
inline PackedNorm read_norm(const StableIValue* s) {
    using torch::stable::detail::to;
    return {to<int64_t>(s[0]), to<double>(s[1]), to<int64_t>(s[2])};
}

inline Tensor as_doubles(const Tensor& t) { return torch::stable::to(t, torch::headeronly::ScalarType::Double); }

// A view of a contiguous tensor's memory with other sizes.
inline npu_rope_tensor viewed_as(const std::vector<int64_t>& sizes, npu_rope_tensor t) {
    t.ndim = static_cast<int32_t>(sizes.size());
    int64_t step = 1;
    for (int32_t k = t.ndim - 1; k >= 0; --k) {
        t.shape[k] = sizes[static_cast<size_t>(k)];
        t.stride[k] = step;
        step *= t.shape[k];
    }
    return t;
}

// ---- a call's tensors as the C interface reads them -------------------------------------------------------

class NormCall {
public:
    NormCall(const char* op, AtenTensorHandle x, AtenTensorHandle scale, int64_t axis)
        : op_(op), axis_(axis), x_(dims_of(x)), scale_(reference_to(scale)) {
        if (!is_joined()) return;
        raise_on(join_norm_dims(op, x_, dims_of(scale), axis, &joined_));
        if (joined_.x.size() > NPU_ROPE_MAX_NDIM) {
            scale_is_expanded_ = true;
            expand_scale();
            raise_on(join_norm_dims(op, x_, dims_of(scale_.get()), axis, &joined_));
        }
        scale_ = torch::stable::contiguous(scale_);
        axis_ = joined_.axis;
    }

    int64_t axis() const { return axis_; }
    // Whether the scale is expanded to x's sizes. The backward then sums the scale's gradient, with scale and grad in
    // double.
    bool scale_is_expanded() const { return scale_is_expanded_; }
    Tensor as_doubles_if_scale_is_expanded(AtenTensorHandle h) const {
        return scale_is_expanded_ ? as_doubles(reference_to(h)) : reference_to(h);
    }
    void convert_expanded_scale_to_double() {
        if (scale_is_expanded_) scale_ = as_doubles(scale_);
    }
    // The scale as the library reads it.
    const Tensor& scale_tensor() const { return scale_; }
    npu_rope_tensor scale() const { return view_like_scale(scale_.get()); }
    // A view of a tensor of the scale's sizes, such as its gradient.
    npu_rope_tensor view_like_scale(AtenTensorHandle h) const {
        return is_joined() ? viewed_as(joined_.scale, view_of(h)) : view_of(h);
    }

    // An input, or a copy of it if its rows are not contiguous; the object keeps the copy.
    npu_rope_tensor read(const char* name, AtenTensorHandle h) {
        const Dims t = dims_of(h);
        if (is_joined()) raise_on(check_norm_dims(op_, name, t, x_, /*is_output=*/false));
        if (!t.is_dense_from(is_joined() ? 0 : axis_ < 0 ? axis_ + t.ndim : axis_)) {
            copies_.push_back(torch::stable::contiguous(reference_to(h)));
            h = copies_.back().get();
        }
        return is_joined() ? viewed_as(joined_.x, view_of(h)) : view_of(h);
    }

    // An output, which cannot be a copy: the C interface checks its layout.
    npu_rope_tensor written(const char* name, AtenTensorHandle h) const {
        if (!is_joined()) return view_of(h);
        raise_on(check_norm_dims(op_, name, dims_of(h), x_, /*is_output=*/true));
        return viewed_as(joined_.x, view_of(h));
    }

private:
    bool is_joined() const { return x_.ndim > NPU_ROPE_MAX_NDIM; }

    void expand_scale() {
        using torch::stable::detail::from;
        const torch::headeronly::IntHeaderOnlyArrayRef sizes(x_.size, static_cast<size_t>(x_.ndim));
        std::array<StableIValue, 3> stack{from(scale_), from(sizes), from(false)};
        check(torch_call_dispatcher("aten::expand", "", stack.data(), TORCH_ABI_VERSION));
        scale_ = torch::stable::detail::to<Tensor>(stack[0]);
    }

    const char* op_;
    int64_t axis_;
    Dims x_;
    Tensor scale_;
    bool scale_is_expanded_ = false;
    JoinedDims joined_;
    std::vector<Tensor> copies_;
};

}  // namespace npu_rope
