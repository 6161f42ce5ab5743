// Normalize tensors with more dimensions than the C interface allows: check the rules that need all dimensions, and
// join dimensions. Header only, for registration and binding. npu_rope/rms_norm_calls.py has the same functions for
// arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/strided.h"

namespace npu_rope {

// The sizes and strides of a tensor. The tensor owns both arrays.
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

// The joined dimensions of a call. There are more than four only if the scale is broadcast along some dimensions of x
// that lie between others.
struct JoinedDims {
    int64_t axis = 0;
    std::vector<int64_t> x, scale;
};

// Checks axis and scale, and fills *joined. Two adjacent dimensions are joined if both or neither are normalized, and
// the scale varies along both or neither.
inline Check join_norm_dims(const char* op, const Dims& x, const Dims& scale, int64_t axis, JoinedDims* joined) {
    const int64_t missing_dims = x.ndim - scale.ndim;
    if (axis < -x.ndim || axis >= x.ndim)
        return bad_value(op, "axis", "be in [-" + std::to_string(x.ndim) + ", " + std::to_string(x.ndim - 1) + "]",
                         std::to_string(axis));
    bool is_broadcastable = missing_dims >= 0;
    for (int64_t k = 0; is_broadcastable && k < scale.ndim; ++k)
        is_broadcastable = scale.size[k] == 1 || scale.size[k] == x.size[missing_dims + k];
    if (!is_broadcastable) return bad_value(op, "scale", "be broadcastable to x's shape " + x.shape(), scale.shape());

    *joined = {};
    if (axis < 0) axis += x.ndim;
    bool starts_dim = true, last_varies = false;
    auto add_dim = [&] { joined->x.push_back(1), joined->scale.push_back(1); };
    for (int64_t k = 0; k < x.ndim; ++k) {
        if (k == axis) joined->axis = static_cast<int64_t>(joined->x.size()), starts_dim = true;
        if (x.size[k] == 1) continue;
        const bool varies = k >= missing_dims && scale.size[k - missing_dims] != 1;
        if (starts_dim || varies != last_varies) add_dim();
        joined->x.back() *= x.size[k];
        if (varies) joined->scale.back() *= x.size[k];
        starts_dim = false;
        last_varies = varies;
    }
    if (static_cast<int64_t>(joined->x.size()) == joined->axis) add_dim();
    return {};
}

// Checks a tensor of x's shape. Callers copy an input that is not contiguous; an output must be contiguous.
inline Check check_norm_dims(const char* op, const char* name, const Dims& t, const Dims& x, bool is_output) {
    if (!t.has_shape_of(x)) return bad_value(op, name, "have x's shape " + x.shape(), t.shape());
    if (!is_output || t.is_dense_from(0)) return {};
    return bad_value(op, name, "be contiguous", "strides " + shape_text(t.stride, static_cast<int>(t.ndim)));
}

}  // namespace npu_rope
