// rope's C entry: check everything, then compute.
#include "csrc/cpu/rope.h"

#include "csrc/capi/common.h"

namespace npu_rope {
namespace {

Check rope_entry(const npu_rope_tensor* x, const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                 const npu_rope_params* params, int32_t forward, int32_t angle, const npu_rope_tensor* out) {
    if (!x) return bad_value("rope", "x must be a tensor but got NULL.");
    if (!positions) return bad_value("rope", "positions must be a tensor but got NULL.");
    if (!params) return bad_value("rope", "params must be a struct but got NULL.");
    if (!out) return bad_value("rope", "out must be a tensor but got NULL.");
    RopeCall call;
    if (Check c = check_rope(*x, *positions, freq_factors, *params, angle, *out, &call.shape); !c.ok()) return c;
    const float* factors = freq_factors ? static_cast<const float*>(freq_factors->data) : nullptr;
    int64_t factor_stride = freq_factors ? freq_factors->stride[0] : 0;
    if (Check c = cached_rope_angles(*params, factors, factor_stride, angle, &call.angles); !c.ok()) return c;
    call.x = x->data;
    call.out = out->data;
    call.positions = positions->data;
    call.positions_are_int64 = positions->dtype == NPU_ROPE_INT64;
    call.dtype = x->dtype;
    call.mode = params->mode;
    call.n_dims = params->n_dims;
    call.n_offs = params->n_offs;
    call.forward = forward != 0;
    rope_cpu(call);
    return {};
}

}  // namespace
}  // namespace npu_rope

extern "C" {

npu_rope_params npu_rope_default_params(int32_t n_dims, npu_rope_mode mode) {
    npu_rope_params p = {};
    p.n_dims = n_dims;
    p.mode = mode;
    p.freq_base = 10000.0;
    p.freq_scale = 1.0;
    p.attn_factor = 1.0;
    p.beta_fast = 32.0;
    p.beta_slow = 1.0;
    return p;
}

npu_rope_status npu_rope_rope(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                              const npu_rope_tensor* freq_factors, const npu_rope_params* params, int32_t forward,
                              npu_rope_angle angle, const npu_rope_tensor* out) {
    return npu_rope::guarded(
        "rope", [&] { return npu_rope::rope_entry(x, positions, freq_factors, params, forward, angle, out); });
}

}  // extern "C"
