// Norms of tensors with more dimensions than the C interface has: the rules that need all of them, and the dimensions
// joined to fewer. Header only, for both registrations with torch. npu_rope/rms_norm_calls.py repeats it for arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/strided.h"

namespace npu_rope {

// The sizes and strides of a tensor, to which the arrays belong.
struct Dims {
    int64_t ndim = 0;
    const int64_t *size = nullptr, *stride = nullptr;

    std::string shape() const { return shape_text(size, static_cast<int>(ndim)); }
    bool has_shape_of(const Dims& other) const {
        return std::equal(size, size + ndim, other.size, other.size + other.ndim);
    }
    bool is_dense_from(int64_t first) const {
        const bool empty = std::find(size, size + ndim, 0) != size + ndim;
        return empty || npu_rope::is_dense_from(std::max<int64_t>(first, 0), ndim, size, stride);
    }
};

// A call's dimensions, joined. Four are enough, except for scales that lack every other dimension of x.
struct JoinedDims {
    int64_t axis = 0;
    std::vector<int64_t> x, scale;
};

// Checks axis and scale, and fills *joined. Neighbouring dimensions are joined if both are normalized or neither is,
// and if the scale varies along both or along neither.
inline Check join_norm_dims(const char* op, const Dims& x, const Dims& scale, int64_t axis, JoinedDims* joined) {
    const int64_t lacks = x.ndim - scale.ndim;
    if (axis < -x.ndim || axis >= x.ndim)
        return bad_value(op, "axis", "be in [-" + std::to_string(x.ndim) + ", " + std::to_string(x.ndim - 1) + "]",
                         std::to_string(axis));
    bool broadcasts = lacks >= 0;
    for (int64_t k = 0; broadcasts && k < scale.ndim; ++k)
        broadcasts = scale.size[k] == 1 || scale.size[k] == x.size[lacks + k];
    if (!broadcasts) return bad_value(op, "scale", "be broadcastable to x's shape " + x.shape(), scale.shape());

    *joined = {};
    if (axis < 0) axis += x.ndim;
    bool begins = true, last_own = false;
    auto begin = [&] { joined->x.push_back(1), joined->scale.push_back(1); };
    for (int64_t k = 0; k < x.ndim; ++k) {
        if (k == axis) joined->axis = static_cast<int64_t>(joined->x.size()), begins = true;
        if (x.size[k] == 1) continue;
        const bool own = k >= lacks && scale.size[k - lacks] != 1;
        if (begins || own != last_own) begin();
        joined->x.back() *= x.size[k];
        if (own) joined->scale.back() *= x.size[k];
        begins = false;
        last_own = own;
    }
    if (static_cast<int64_t>(joined->x.size()) == joined->axis) begin();
    return {};
}

// Checks a tensor of x's shape. Inputs are copied where they are not contiguous; outputs cannot be.
inline Check check_norm_dims(const char* op, const char* name, const Dims& t, const Dims& x, bool is_output) {
    if (!t.has_shape_of(x)) return bad_value(op, name, "have x's shape " + x.shape(), t.shape());
    if (!is_output || t.is_dense_from(0)) return {};
    return bad_value(op, name, "be contiguous", "strides " + shape_text(t.stride, static_cast<int>(t.ndim)));
}

}  // namespace npu_rope
