#include "op_host/rope_check.h"

#include <cmath>

#include "op_host/dtype.h"
#include "op_host/strided.h"

namespace npu_rope {
namespace {

constexpr const char* kOp = "rope";

bool is_float(int32_t d) { return d >= NPU_ROPE_FLOAT32 && d <= NPU_ROPE_FLOAT64; }
bool is_index(int32_t d) { return d == NPU_ROPE_INT32 || d == NPU_ROPE_INT64; }

// %g spells a negative NaN "-nan"; Python does not.
struct Number {
    char text[32];
    explicit Number(double v) {
        if (std::isnan(v)) v = std::nan("");
        std::snprintf(text, sizeof text, "%g", v);
    }
};

// Attributes are float32 to ggml, to CANN and to the tables: what float32 holds as zero or as
// infinity is zero or infinite.
Check check_positive(const char* name, double v, const char* when = "") {
    float f = static_cast<float>(v);
    if (std::isfinite(f) && f > 0) return {};
    return bad_value(kOp, "%s must be positive and finite%s but got %s.", name, when, Number(v).text);
}

Check check_finite(const char* name, double v) {
    if (std::isfinite(static_cast<float>(v))) return {};
    return bad_value(kOp, "%s must be finite but got %s.", name, Number(v).text);
}

Check check_sections(const npu_rope_params& p) {
    bool negative = false, any = false;
    for (int32_t s : p.sections) {
        negative |= s < 0;
        any |= s != 0;
    }
    const int32_t* s = p.sections;
    if (negative)
        return bad_value(kOp, "sections must be four numbers >= 0 but got [%d, %d, %d, %d].", s[0], s[1], s[2], s[3]);
    if (any && (p.mode == NPU_ROPE_MODE_NORMAL || p.mode == NPU_ROPE_MODE_NEOX))
        return bad_value(kOp, "sections must be [0, 0, 0, 0] in mode %s but got [%d, %d, %d, %d].", mode_name(p.mode),
                         s[0], s[1], s[2], s[3]);
    return {};
}

Check check_yarn(const npu_rope_params& p) {
    const char* when = " when ext_factor is not 0";
    if (p.n_ctx_orig <= 0) return bad_value(kOp, "n_ctx_orig must be positive%s but got %d.", when, p.n_ctx_orig);
    if (static_cast<float>(p.freq_base) == 1.0f)
        return bad_value(kOp, "freq_base must differ from 1%s but got 1.", when);
    if (Check c = check_positive("beta_fast", p.beta_fast, when); !c.ok()) return c;
    return check_positive("beta_slow", p.beta_slow, when);
}

// 0 where the stride names nothing: there it may hold any number.
int64_t stride_that_matters(const npu_rope_tensor& t, int k) {
    for (int d = 0; d < t.ndim; ++d)
        if (t.shape[d] == 0) return 0;
    return t.shape[k] > 1 ? t.stride[k] : 0;
}

// Shapes of more dimensions than a struct holds have no numbers to print.
std::string got_shape(const npu_rope_tensor& t) {
    if (t.ndim >= 0 && t.ndim <= NPU_ROPE_MAX_NDIM) return shape_text(t.shape, t.ndim);
    return std::to_string(t.ndim) + " dimensions";
}

StridedView view_of(const npu_rope_tensor& t) {
    StridedView v;
    v.base = reinterpret_cast<uintptr_t>(t.data);
    v.item_bytes = kDtypes[t.dtype].bytes;
    v.ndim = t.ndim;
    for (int k = 0; k < t.ndim; ++k) {
        v.size[k] = t.shape[k];
        v.stride_bytes[k] = stride_that_matters(t, k) * v.item_bytes;
    }
    return v;
}

bool same_shape(const npu_rope_tensor& a, const npu_rope_tensor& b) {
    if (a.ndim != b.ndim) return false;
    for (int k = 0; k < a.ndim; ++k)
        if (a.shape[k] != b.shape[k]) return false;
    return true;
}

// Neither the size nor the reach of the view may leave int64.
bool fits(const npu_rope_tensor& t) {
    int64_t bytes = checked_product(t.shape, t.ndim), reach = 0, span;
    if (bytes < 0 || __builtin_mul_overflow(bytes, kDtypes[t.dtype].bytes, &bytes)) return false;
    for (int k = 0; k < t.ndim; ++k) {
        int64_t stride = stride_that_matters(t, k);
        if (stride == INT64_MIN) return false;
        if (stride == 0) continue;
        if (__builtin_mul_overflow(t.shape[k] - 1, stride < 0 ? -stride : stride, &span)) return false;
        if (__builtin_add_overflow(reach, span, &reach)) return false;
    }
    return !__builtin_mul_overflow(reach, kDtypes[t.dtype].bytes, &reach);
}

Check check_memory(const char* name, const npu_rope_tensor& t) {
    for (int k = 0; k < t.ndim; ++k)
        if (t.shape[k] < 0)
            return bad_value(kOp, "%s must have sizes >= 0 but got %s.", name, shape_text(t.shape, t.ndim).c_str());
    if (!fits(t))
        return bad_value(kOp, "%s must have fewer than 2^63 bytes but got shape %s.", name,
                         shape_text(t.shape, t.ndim).c_str());
    if (view_of(t).empty()) return {};
    if (t.data == nullptr) return bad_value(kOp, "%s must have data but got NULL.", name);
    int64_t bytes = kDtypes[t.dtype].bytes;
    if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) != 0)
        return bad_value(kOp, "%s must be aligned to its %lld-byte elements but got an address that is not.", name,
                         static_cast<long long>(bytes));
    return {};
}

Check check_unit_stride(const char* name, const npu_rope_tensor& t) {
    if (t.shape[t.ndim - 1] <= 1 || t.stride[t.ndim - 1] == 1 || view_of(t).empty()) return {};
    return bad_value(kOp, "%s must have unit stride in its last dimension but got %lld.", name,
                     static_cast<long long>(t.stride[t.ndim - 1]));
}

Check check_x(const npu_rope_tensor& x, const npu_rope_params& p) {
    if (!is_float(x.dtype))
        return bad_type(kOp, "x must be float32, float16, bfloat16 or float64 but got %s.", dtype_name(x.dtype));
    if (x.ndim != 3 && x.ndim != 4)
        return bad_value(kOp, "x must have shape [B,S,N,D] or [S,N,D] but got %s.", got_shape(x).c_str());
    if (Check c = check_memory("x", x); !c.ok()) return c;
    auto D = static_cast<long long>(x.shape[x.ndim - 1]);
    if (p.n_dims > D) return bad_value(kOp, "n_dims must be at most the head size %lld but got %d.", D, p.n_dims);
    if (int64_t{p.n_offs} + p.n_dims > D)
        return bad_value(kOp, "n_offs + n_dims must be at most the head size %lld but got %lld.", D,
                         static_cast<long long>(p.n_offs) + p.n_dims);
    return check_unit_stride("x", x);
}

template <typename T>
Check check_position_values(const npu_rope_tensor& t, const RopeShape& s) {
    auto* p = static_cast<const T*>(t.data);
    int64_t batches = s.pos_stride[0] == 0 ? (s.B > 0) : s.B;
    for (int64_t b = 0; b < batches; ++b)
        for (int64_t i = 0; i < s.S; ++i) {
            int64_t v = p[b * s.pos_stride[0] + i * s.pos_stride[1]];
            if (v < INT32_MIN || v > INT32_MAX)
                return bad_value(kOp, "positions must be in the int32 range but got %lld.", static_cast<long long>(v));
        }
    return {};
}

Check check_positions(const npu_rope_tensor& t, const npu_rope_tensor& x, RopeShape* s) {
    if (!is_index(t.dtype)) return bad_type(kOp, "positions must be int32 or int64 but got %s.", dtype_name(t.dtype));
    bool by_token = t.ndim == 1 && t.shape[0] == s->S;
    bool by_batch = x.ndim == 4 && t.ndim == 2 && t.shape[0] == s->B && t.shape[1] == s->S;
    if (!by_token && !by_batch) {
        auto S = static_cast<long long>(s->S), B = static_cast<long long>(s->B);
        std::string got = got_shape(t);
        if (x.ndim == 3) return bad_value(kOp, "positions must have shape [S] = [%lld] but got %s.", S, got.c_str());
        return bad_value(kOp, "positions must have shape [S] = [%lld] or [B, S] = [%lld, %lld] but got %s.", S, B, S,
                         got.c_str());
    }
    if (Check c = check_memory("positions", t); !c.ok()) return c;
    s->pos_stride[0] = by_batch && s->B > 1 ? t.stride[0] : 0;
    s->pos_stride[1] = s->S > 1 ? t.stride[t.ndim - 1] : 0;
    return t.dtype == NPU_ROPE_INT64 ? check_position_values<int64_t>(t, *s) : Check{};
}

Check check_freq_factors(const npu_rope_tensor& t, const npu_rope_params& p) {
    if (t.dtype != NPU_ROPE_FLOAT32)
        return bad_type(kOp, "freq_factors must be float32 but got %s.", dtype_name(t.dtype));
    int pairs = p.n_dims / 2;
    if (t.ndim != 1 || t.shape[0] < pairs)
        return bad_value(kOp,
                         "freq_factors must have one dimension of at least n_dims/2 = %d elements but got shape %s.",
                         pairs, got_shape(t).c_str());
    if (Check c = check_memory("freq_factors", t); !c.ok()) return c;
    auto* f = static_cast<const float*>(t.data);
    for (int i = 0; i < pairs; ++i) {
        double v = f[i * t.stride[0]];
        if (!(std::isfinite(v) && v > 0))
            return bad_value(kOp, "freq_factors must be positive and finite but got %s at index %d.", Number(v).text,
                             i);
    }
    return {};
}

Check check_out(const npu_rope_tensor& out, const npu_rope_tensor& x, const npu_rope_tensor& positions,
                const npu_rope_tensor* freq_factors, RopeShape* s) {
    if (out.dtype != x.dtype)
        return bad_type(kOp, "out must have x's dtype %s but got %s.", dtype_name(x.dtype), dtype_name(out.dtype));
    if (out.ndim < 0 || out.ndim > NPU_ROPE_MAX_NDIM || !same_shape(out, x))
        return bad_value(kOp, "out must have x's shape %s but got %s.", shape_text(x.shape, x.ndim).c_str(),
                         got_shape(out).c_str());
    if (Check c = check_memory("out", out); !c.ok()) return c;
    if (Check c = check_unit_stride("out", out); !c.ok()) return c;
    StridedView vo = view_of(out), vx = view_of(x);
    if (!is_injective(vo))
        return bad_value(kOp, "out must not overlap itself but got strides %s.",
                         shape_text(out.stride, out.ndim).c_str());
    s->in_place = is_same_view(vo, vx);
    const char* rule = "out must be x itself or share no memory with %s but got memory shared in part.";
    if (!s->in_place && may_share_memory(vo, vx)) return bad_value(kOp, rule, "x");
    if (may_share_memory(vo, view_of(positions))) return bad_value(kOp, rule, "positions");
    if (freq_factors && may_share_memory(vo, view_of(*freq_factors))) return bad_value(kOp, rule, "freq_factors");
    return {};
}

void fill_strides(const npu_rope_tensor& t, int64_t* stride) {
    bool batched = t.ndim == 4;
    stride[0] = batched ? stride_that_matters(t, 0) : 0;
    stride[1] = stride_that_matters(t, batched + 0);
    stride[2] = stride_that_matters(t, batched + 1);
}

}  // namespace

const char* mode_name(int32_t mode) {
    switch (mode) {
        case NPU_ROPE_MODE_NORMAL:
            return "normal";
        case NPU_ROPE_MODE_NEOX:
            return "neox";
        case NPU_ROPE_MODE_MROPE:
            return "mrope";
        case NPU_ROPE_MODE_VISION:
            return "vision";
        case NPU_ROPE_MODE_IMROPE:
            return "imrope";
    }
    return nullptr;
}

Check check_rope_params(const npu_rope_params& p) {
    if (p.n_dims <= 0 || p.n_dims % 2 != 0)
        return bad_value(kOp, "n_dims must be a positive even number but got %d.", p.n_dims);
    if (!mode_name(p.mode))
        return bad_value(
            kOp, "mode must be one of normal (0), neox (2), mrope (8), vision (24), imrope (40) but got %d.", p.mode);
    if (p.n_ctx_orig < 0) return bad_value(kOp, "n_ctx_orig must be >= 0 but got %d.", p.n_ctx_orig);
    if (Check c = check_positive("freq_base", p.freq_base); !c.ok()) return c;
    if (Check c = check_positive("freq_scale", p.freq_scale); !c.ok()) return c;
    if (Check c = check_finite("ext_factor", p.ext_factor); !c.ok()) return c;
    if (Check c = check_finite("attn_factor", p.attn_factor); !c.ok()) return c;
    if (p.ext_factor != 0)
        if (Check c = check_yarn(p); !c.ok()) return c;
    if (Check c = check_sections(p); !c.ok()) return c;
    if (p.n_offs < 0 || p.n_offs % 2 != 0)
        return bad_value(kOp, "n_offs must be an even number >= 0 but got %d.", p.n_offs);
    return {};
}

Check check_rope_frequency(double largest, int64_t pair) {
    if (largest <= kMaxFrequency) return {};
    return bad_value(kOp, "frequencies must be at most 1e+09 radians per position but got %s for pair %lld.",
                     Number(largest).text, static_cast<long long>(pair));
}

Check check_rope(const npu_rope_tensor& x, const npu_rope_tensor& positions, const npu_rope_tensor* freq_factors,
                 const npu_rope_params& p, int32_t angle, const npu_rope_tensor& out, RopeShape* shape) {
    if (Check c = check_rope_params(p); !c.ok()) return c;
    if (p.mode != NPU_ROPE_MODE_NORMAL && p.mode != NPU_ROPE_MODE_NEOX)
        return bad_value(kOp, "mode must be normal (0) or neox (2) but got %s (%d).", mode_name(p.mode), p.mode);
    if (angle < NPU_ROPE_ANGLE_EXACT || angle > NPU_ROPE_ANGLE_GGML)
        return bad_value(kOp, "angle must be exact (0), f32 (1) or ggml (2) but got %d.", angle);
    if (Check c = check_x(x, p); !c.ok()) return c;
    bool batched = x.ndim == 4;
    shape->B = batched ? x.shape[0] : 1;
    shape->S = x.shape[batched + 0];
    shape->N = x.shape[batched + 1];
    shape->D = x.shape[batched + 2];
    if (Check c = check_positions(positions, x, shape); !c.ok()) return c;
    if (freq_factors)
        if (Check c = check_freq_factors(*freq_factors, p); !c.ok()) return c;
    if (Check c = check_out(out, x, positions, freq_factors, shape); !c.ok()) return c;
    fill_strides(x, shape->x_stride);
    fill_strides(out, shape->out_stride);
    return {};
}

}  // namespace npu_rope
