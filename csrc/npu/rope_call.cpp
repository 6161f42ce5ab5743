#include "csrc/npu/rope_call.h"

#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

int32_t narrow(const char* name, int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX) raise_on(bad_value("rope", name, "be in the int32 range", std::to_string(v)));
    return static_cast<int32_t>(v);
}

}  // namespace

npu_rope_params params_of(const Attributes& a) {
    npu_rope_params p = {};
    if (a.sections.size() != 4)
        raise_on(bad_value("rope", "sections", "be four integers >= 0", formatted("%zu integers", a.sections.size())));
    for (size_t i = 0; i < 4; ++i) p.sections[i] = narrow("sections", a.sections[i]);
    p.n_dims = narrow("n_dims", a.n_dims);
    p.mode = narrow("mode", a.mode);
    p.n_ctx_orig = narrow("n_ctx_orig", a.n_ctx_orig);
    p.n_offs = narrow("n_offs", a.n_offs);
    p.freq_base = a.freq_base;
    p.freq_scale = a.freq_scale;
    p.ext_factor = a.ext_factor;
    p.attn_factor = a.attn_factor;
    p.beta_fast = a.beta_fast;
    p.beta_slow = a.beta_slow;
    return p;
}

int32_t angle_of(const Attributes& a) { return narrow("angle", a.angle); }

bool check_rope_call(RopeTensors t, const Attributes& a) {
    const npu_rope_params params = params_of(a);
    t.known = Known::kAddresses;
    TilingResult<RopeTilingData> tiled;
    raise_on(check_and_tile_rope(t, params, angle_of(a), a.forward, platform(t.op), &tiled));
    return tiled.has_elements();
}

}  // namespace npu_rope
