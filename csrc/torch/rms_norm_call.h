// Shared parts of the registrations of rms_norm and add_rms_norm: attributes, and tensors of any number of dimensions
// in the form that the C interface reads.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "csrc/torch/rope_call.h"

namespace npu_rope {

using torch::stable::Tensor;

// "int axis, float epsilon, int stash_type", the last arguments of the schemas.
struct NormAttributes {
    int64_t axis;
    double epsilon;
    int64_t stash_type;
    explicit NormAttributes(const StableIValue* s)
        : axis(torch::stable::detail::to<int64_t>(s[0])),
          epsilon(torch::stable::detail::to<double>(s[1])),
          stash_type(torch::stable::detail::to<int64_t>(s[2])) {}
};

inline Tensor borrowed(AtenTensorHandle h) {
    AtenTensorHandle same;
    check(aoti_torch_new_tensor_handle(h, &same));
    return Tensor(same);
}

inline Tensor as_doubles(const Tensor& t) { return torch::stable::to(t, torch::headeronly::ScalarType::Double); }

// ---- more dimensions than the C interface has ------------------------------------------------------------
//
// Neighbouring dimensions are merged if both or neither are normalized, and if the scale has both or shares both. Four
// such runs are enough, except for scales that lack every other dimension: these are expanded.

struct Runs {
    int64_t axis = 0;
    std::vector<int64_t> x, scale;
};

inline bool has_runs(const Sizes& x, const Sizes& scale, int64_t axis) {
    if (x.ndim <= NPU_ROPE_MAX_NDIM || axis < -x.ndim || axis >= x.ndim || scale.ndim > x.ndim) return false;
    for (int64_t k = 0; k < scale.ndim; ++k)
        if (scale.size[k] != 1 && scale.size[k] != x.size[x.ndim - scale.ndim + k]) return false;
    return true;
}

inline Runs runs_of(const Sizes& x, const Sizes& scale, int64_t axis) {
    if (axis < 0) axis += x.ndim;
    Runs runs;
    bool begins = true, last_own = false;
    auto begin = [&] { runs.x.push_back(1), runs.scale.push_back(1); };
    for (int64_t k = 0; k < x.ndim; ++k) {
        if (k == axis) runs.axis = static_cast<int64_t>(runs.x.size()), begins = true;
        if (x.size[k] == 1) continue;
        const int64_t at = k - (x.ndim - scale.ndim);
        const bool own = at >= 0 && scale.size[at] != 1;
        if (begins || own != last_own) begin();
        runs.x.back() *= x.size[k];
        if (own) runs.scale.back() *= x.size[k];
        begins = false;
        last_own = own;
    }
    if (static_cast<int64_t>(runs.x.size()) == runs.axis) begin();
    return runs;
}

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
        : op_(op), axis_(axis), scale_(borrowed(scale)) {
        const Sizes of_x(x), of_scale(scale);
        sizes_.assign(of_x.size, of_x.size + of_x.ndim);
        joined_ = has_runs(of_x, of_scale, axis);
        if (!joined_) return;
        runs_ = runs_of(of_x, of_scale, axis);
        if (runs_.x.size() > NPU_ROPE_MAX_NDIM) {
            is_expanded_ = true;
            expand_scale(of_x);
            runs_ = runs_of(of_x, Sizes(scale_.get()), axis);
        }
        scale_ = torch::stable::contiguous(scale_);
        axis_ = runs_.axis;
    }

    int64_t axis() const { return axis_; }
    // Whether the scale is expanded to x's sizes. Its gradient must then still be summed, so all tensors are double.
    bool is_expanded() const { return is_expanded_; }
    Tensor as_read(AtenTensorHandle h) const { return is_expanded_ ? as_doubles(borrowed(h)) : borrowed(h); }
    void widen_scale() {
        if (is_expanded_) scale_ = as_doubles(scale_);
    }
    // The scale's gradient has this tensor's sizes.
    const Tensor& scale_tensor() const { return scale_; }
    npu_rope_tensor scale() const { return of_scale(scale_.get()); }
    npu_rope_tensor of_scale(AtenTensorHandle h) const {
        return joined_ ? viewed_as(runs_.scale, view_of(h)) : view_of(h);
    }

    // An input, or a copy of it if its rows are not contiguous; the object keeps the copy.
    npu_rope_tensor read(const char* name, AtenTensorHandle h) {
        require_sizes(name, h);
        if (!lies_well(h)) {
            copies_.push_back(torch::stable::contiguous(borrowed(h)));
            h = copies_.back().get();
        }
        return joined_ ? viewed_as(runs_.x, view_of(h)) : view_of(h);
    }

    // An output, which cannot be a copy: the C interface checks its layout.
    npu_rope_tensor written(const char* name, AtenTensorHandle h) const {
        if (!joined_) return view_of(h);
        require_sizes(name, h);
        if (!lies_well(h)) fail(name, "must be contiguous where x has more than 4 dimensions.");
        return viewed_as(runs_.x, view_of(h));
    }

private:
    [[noreturn]] void fail(const char* name, const char* rule) const {
        throw std::runtime_error("[" + std::string(op_) + "] " + name + " " + rule);
    }

    // Tensors with merged dimensions must have x's sizes, which the C interface cannot check.
    void require_sizes(const char* name, AtenTensorHandle h) const {
        const Sizes s(h);
        if (joined_ && !std::equal(sizes_.begin(), sizes_.end(), s.size, s.size + s.ndim))
            fail(name, "must have x's shape.");
    }

    // Whether a tensor is dense from axis on or, with merged dimensions, in all dimensions.
    bool lies_well(AtenTensorHandle h) const {
        const Sizes s(h);
        const int64_t from = joined_ ? 0 : (axis_ < 0 ? axis_ + s.ndim : axis_);
        int64_t expected = 1;
        for (int64_t k = 0; k < s.ndim; ++k)
            if (s.size[k] == 0) return true;
        for (int64_t k = s.ndim - 1; k >= from && k >= 0; --k) {
            if (s.size[k] > 1 && s.stride[k] != expected) return false;
            expected *= s.size[k];
        }
        return true;
    }

    void expand_scale(const Sizes& x) {
        using torch::stable::detail::from;
        const torch::headeronly::IntHeaderOnlyArrayRef sizes(x.size, static_cast<size_t>(x.ndim));
        std::array<StableIValue, 3> stack{from(scale_), from(sizes), from(false)};
        check(torch_call_dispatcher("aten::expand", "", stack.data(), TORCH_ABI_VERSION));
        scale_ = torch::stable::detail::to<Tensor>(stack[0]);
    }

    const char* op_;
    int64_t axis_;
    std::vector<int64_t> sizes_;  // of x
    Tensor scale_;
    bool joined_ = false, is_expanded_ = false;
    Runs runs_;
    std::vector<Tensor> copies_;
};

}  // namespace npu_rope
