// Shared parts of the operators' checks: properties of tensors, and rules that hold for any tensor. Header only, like
// check.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "csrc/core/check.h"
#include "csrc/core/dtype.h"
#include "csrc/core/strided.h"
#include "include/npu_rope.h"

namespace npu_rope {

// The most lanes of a head that a call rotates. The tables have int sizes.
constexpr int64_t kMaxRotatedLanes = int64_t{1} << 24;

// The data of tensors that the checks may read. The checks skip rules that need other data.
enum class Known {
    kValues,     // sizes, types, strides, addresses and values
    kAddresses,  // all except values, which the host cannot read in a device's memory
    kLayout      // only sizes, types and strides, as during tiling
};

inline bool is_float(int32_t d) { return d >= NPU_ROPE_FLOAT32 && d <= NPU_ROPE_FLOAT64; }
inline bool is_index(int32_t d) { return d == NPU_ROPE_INT32 || d == NPU_ROPE_INT64; }

// Formats a number as Python's "%g" does: printf's would write "-nan" for a negative NaN.
struct NumberText {
    char text[32];
    explicit NumberText(double v) {
        if (std::isnan(v)) v = std::nan("");
        std::snprintf(text, sizeof text, "%g", v);
    }
};

inline bool is_empty(const npu_rope_tensor& t) {
    for (int d = 0; d < t.ndim; ++d)
        if (t.shape[d] == 0) return true;
    return false;
}

// Returns the stride of dimension k, or 0 if the stride is unused and may be any number. empty: the result of
// is_empty(t), which a loop over the dimensions computes only once.
inline int64_t used_stride(const npu_rope_tensor& t, int k, bool empty) {
    return t.shape[k] > 1 && !empty ? t.stride[k] : 0;
}
inline int64_t used_stride(const npu_rope_tensor& t, int k) { return used_stride(t, k, is_empty(t)); }

// Formats a tensor's shape for an error, or only the number of dimensions if the struct cannot hold the shape.
inline std::string got_shape(const npu_rope_tensor& t) {
    if (t.ndim >= 0 && t.ndim <= NPU_ROPE_MAX_NDIM) return shape_text(t.shape, t.ndim);
    return std::to_string(t.ndim) + " dimensions";
}

inline StridedView view_of(const npu_rope_tensor& t) {
    StridedView v;
    v.base = reinterpret_cast<uintptr_t>(t.data);
    v.item_bytes = kDtypes[t.dtype].bytes;
    v.ndim = t.ndim;
    const bool empty = is_empty(t);
    for (int k = 0; k < t.ndim; ++k) {
        v.size[k] = t.shape[k];
        v.stride_bytes[k] = used_stride(t, k, empty) * v.item_bytes;
    }
    return v;
}

inline bool same_shape(const npu_rope_tensor& a, const npu_rope_tensor& b) {
    if (a.ndim != b.ndim) return false;
    for (int k = 0; k < a.ndim; ++k)
        if (a.shape[k] != b.shape[k]) return false;
    return true;
}

// The memory of a tensor as its sizes and strides describe it. One loop computes all properties, because each operator
// needs them of each tensor and the checks are a fifth of the time of a decode-sized call.
struct Memory {
    bool has_negative_size = false, is_empty = false;
    // Whether the size in bytes fits int64. A size of 0 counts as 1: then the product of any of the sizes fits, too.
    bool size_fits = true;
    // Whether low, high and high - low fit int64. The bytes of the tensor are [low, high), relative to its data. The
    // strides of an empty tensor are unused.
    bool extent_fits = true;
    int64_t low = 0, high;

    explicit Memory(const npu_rope_tensor& t) : high(kDtypes[t.dtype].bytes) {
        const int64_t item = high;
        int64_t bytes = item, span, extent;
        bool overflows = false, size_overflows = false;
        for (int k = 0; k < t.ndim; ++k) {
            const int64_t size = t.shape[k];
            has_negative_size |= size < 0;
            is_empty |= size == 0;
            if (size <= 1) continue;
            size_overflows |= __builtin_mul_overflow(bytes, size, &bytes);
            overflows |= __builtin_mul_overflow(size - 1, t.stride[k], &span);
            overflows |= __builtin_mul_overflow(span, item, &span);
            int64_t* end = span < 0 ? &low : &high;
            overflows |= __builtin_add_overflow(*end, span, end);
        }
        overflows |= __builtin_sub_overflow(high, low, &extent);
        size_fits = !size_overflows;
        extent_fits = is_empty || !overflows;
    }
};

// Whether all sizes are equal, except possibly the number of heads, which is the last but one.
inline bool same_shape_except_heads(const npu_rope_tensor& a, const npu_rope_tensor& b) {
    if (a.ndim != b.ndim) return false;
    for (int k = 0; k < a.ndim; ++k)
        if (k != a.ndim - 2 && a.shape[k] != b.shape[k]) return false;
    return true;
}

inline bool has_shape(const npu_rope_tensor& t, std::initializer_list<int64_t> shape) {
    return t.ndim == static_cast<int32_t>(shape.size()) && std::equal(shape.begin(), shape.end(), t.shape);
}

// Fills stride with the strides of B, S and N of a [B,S,N,D] or [S,N,D] tensor.
inline void fill_strides(const npu_rope_tensor& t, int64_t* stride) {
    const bool is_batched = t.ndim == 4, empty = is_empty(t);
    stride[0] = is_batched ? used_stride(t, 0, empty) : 0;
    stride[1] = used_stride(t, is_batched + 0, empty);
    stride[2] = used_stride(t, is_batched + 1, empty);
}

struct NamedTensor {
    const char* name;
    const npu_rope_tensor* tensor;  // may be NULL
};

// The rotated tensors of a call as the caller passes them, with their names in error messages.
struct RotatedTensors {
    const char* op;
    int sides;  // 2: queries and keys
    const char* x_name[2];
    const npu_rope_tensor* x[2];
    const char* out_name[2];
    const npu_rope_tensor* out[2];
    Known known = Known::kValues;
    bool out_may_be_null = false;  // not allocated yet
};

// Returns an error if an input, a tensor of `required` or an output is NULL. The error names the first NULL in this
// order.
inline Check check_given(const RotatedTensors& t, std::initializer_list<NamedTensor> required) {
    auto missing = [&](const char* name) { return bad_value(t.op, name, "be a tensor", "NULL"); };
    for (int k = 0; k < t.sides; ++k)
        if (!t.x[k]) return missing(t.x_name[k]);
    for (const NamedTensor& other : required)
        if (!other.tensor) return missing(other.name);
    for (int k = 0; k < t.sides; ++k)
        if (!t.out[k] && !t.out_may_be_null) return missing(t.out_name[k]);
    return {};
}

// Rules for any tensor of a call. Each check returns an error that names the operator and the tensor `name`.
class TensorRules {
public:
    TensorRules(const char* op, Known known) : op_(op), known_(known) {}

    Check check_memory(const char* name, const npu_rope_tensor& t) {
        const Memory memory(t);
        if (memory.has_negative_size) return bad_value(op_, name, "have sizes >= 0", shape_text(t.shape, t.ndim));
        if (!memory.size_fits)
            return bad_value(
                op_, name,
                memory.is_empty ? "have fewer than 2^63 bytes if its sizes of 0 were 1" : "have fewer than 2^63 bytes",
                "shape " + shape_text(t.shape, t.ndim));
        if (!memory.extent_fits)
            return bad_value(op_, name, "extend over fewer than 2^63 bytes", "strides " + shape_text(t.stride, t.ndim));
        if (known_ == Known::kLayout || memory.is_empty) return {};
        if (t.data == nullptr) return bad_value(op_, name, "have data", "NULL");
        int64_t bytes = kDtypes[t.dtype].bytes;
        if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) != 0)
            return bad_value(op_, name,
                             formatted("be aligned to its %lld-byte elements", static_cast<long long>(bytes)),
                             "an address that is not");
        const auto base = reinterpret_cast<intptr_t>(t.data);
        int64_t end;
        if (__builtin_add_overflow(base, memory.low, &end) || __builtin_add_overflow(base, memory.high, &end))
            return bad_value(op_, name, "have addresses of at most 63 bits", "strides " + shape_text(t.stride, t.ndim));
        return {};
    }

    Check check_unit_stride(const char* name, const npu_rope_tensor& t) {
        if (t.shape[t.ndim - 1] <= 1 || t.stride[t.ndim - 1] == 1 || is_empty(t)) return {};
        return bad_value(op_, name, "have unit stride in its last dimension", std::to_string(t.stride[t.ndim - 1]));
    }

    // A rotated tensor must be a float tensor of three or four dimensions. If `like` is not NULL, the tensor must have
    // the sizes of `like`, except the number of heads. shapes: the allowed shapes for the message.
    Check check_rotated(const char* name, const npu_rope_tensor& x, const char* shapes, const char* like_name,
                        const npu_rope_tensor* like) {
        if (!is_float(x.dtype))
            return bad_type(op_, name, "be float32, float16, bfloat16 or float64", dtype_name(x.dtype));
        if (x.ndim != 3 && x.ndim != 4) return bad_value(op_, name, std::string("have shape ") + shapes, got_shape(x));
        if (like && x.dtype != like->dtype)
            return bad_type(op_, name, formatted("have %s's dtype %s", like_name, dtype_name(like->dtype)),
                            dtype_name(x.dtype));
        if (like && !same_shape_except_heads(x, *like))
            return bad_value(op_, name,
                             formatted("have %s's shape %s except for the heads", like_name,
                                       shape_text(like->shape, like->ndim).c_str()),
                             shape_text(x.shape, x.ndim));
        return check_memory(name, x);
    }

    // Returns the name of the first tensor that shares memory with `out`, the output of `side`, against the rules, or
    // NULL. The candidates are the side's own input unless the call is in place, the other side's input, the outputs of
    // earlier sides, and `others`.
    static const char* find_shared_tensor(const RotatedTensors& t, int side, const StridedView& out, bool in_place,
                                          std::initializer_list<NamedTensor> others) {
        auto shares = [&](const npu_rope_tensor* other) { return other && may_share_memory(out, view_of(*other)); };
        if (!in_place && shares(t.x[side])) return t.x_name[side];
        for (int k = 0; k < t.sides; ++k) {
            if (k != side && shares(t.x[k])) return t.x_name[k];
            if (k < side && shares(t.out[k])) return t.out_name[k];
        }
        for (const NamedTensor& other : others)
            if (shares(other.tensor)) return other.name;
        return nullptr;
    }

    // Returns the error of an output that shares memory with `other`. may_be_other: whether it may be `other` itself.
    Check shared_memory_error(const char* name, const char* other, bool may_be_other) {
        std::string rule = std::string("share no memory with ") + other;
        if (may_be_other) rule = formatted("be %s itself or ", other) + rule;
        return bad_value(op_, name, rule, "overlapping memory");
    }

    // Checks the epsilon of a norm, which all back ends keep in float32.
    Check check_epsilon(double epsilon) {
        const float in_float32 = static_cast<float>(epsilon);
        if (in_float32 >= 0 && !std::isinf(in_float32)) return {};
        return bad_value(op_, "epsilon", "be >= 0 and finite in float32", NumberText(epsilon).text);
    }

    // Checks the number that a norm adds to its scale in float32.
    Check check_scale_offset(double scale_offset) {
        if (std::isfinite(static_cast<float>(scale_offset))) return {};
        return bad_value(op_, "scale_offset", "be finite in float32", NumberText(scale_offset).text);
    }

    // An output must have x's dtype and shape.
    Check check_like(const char* name, const npu_rope_tensor& out, const char* x_name, const npu_rope_tensor& x) {
        if (out.dtype != x.dtype)
            return bad_type(op_, name, formatted("have %s's dtype %s", x_name, dtype_name(x.dtype)),
                            dtype_name(out.dtype));
        if (out.ndim < 0 || out.ndim > NPU_ROPE_MAX_NDIM || !same_shape(out, x))
            return bad_value(op_, name, formatted("have %s's shape %s", x_name, shape_text(x.shape, x.ndim).c_str()),
                             got_shape(out));
        return {};
    }

    // Checks memory and strides of an output. Sets *view to the output's view. was_read: the output is an input whose
    // memory and last stride were checked.
    Check check_written(const char* name, const npu_rope_tensor& out, StridedView* view, bool was_read = false) {
        if (!was_read) {
            if (Check c = check_memory(name, out); !c.ok()) return c;
            if (Check c = check_unit_stride(name, out); !c.ok()) return c;
        }
        *view = view_of(out);
        if (is_injective(*view)) return {};
        return bad_value(op_, name, "not overlap itself", "strides " + shape_text(out.stride, out.ndim));
    }

protected:
    const char* op_;
    Known known_;
};

}  // namespace npu_rope
