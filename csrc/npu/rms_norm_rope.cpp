// rms_norm_rope for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rms_norm_rope.py; the functions here call the kernel.
#include <tuple>

#include "csrc/npu/rope_call.h"
#include "op_host/rms_norm_rope_tiling.h"

namespace {

using namespace npu_rope;

struct Sides {
    const at::Tensor &q, &k, &q_scale, &k_scale;
};

struct Call {
    Attributes attributes;
    double epsilon;
    bool intermediate_rounding;
};

// Checks the call: raises ValueError or TypeError for a broken rule. Returns whether there are elements to process.
bool check_rms_norm_rope_call(RmsNormRopeTensors t, const Call& norm_call) {
    t.rope.known = Known::kAddresses;
    const npu_rope_params params = params_of(norm_call.attributes);
    const HeadNormAttributes norm{norm_call.epsilon, norm_call.intermediate_rounding};
    TilingResult<RmsNormRopeTilingData> tiled;
    raise_on(
        check_and_tile_rms_norm_rope(t, params, angle_of(norm_call.attributes), norm, platform(t.rope.op), &tiled));
    return tiled.has_elements();
}

// rows: NULL, or the row of the cache k_out for each token's keys.
void launch(const Sides& s, const at::Tensor& positions, const at::Tensor* rows, const OptionalTensor& factors,
            const Call& norm_call, const at::Tensor& q_out, const at::Tensor& k_out) {
    using T = LaunchTensor;
    LaunchTensors tensors("rms_norm_rope", {{"q", &s.q, T::kUnitStride, &q_out},
                                            {"k", &s.k, T::kUnitStride, &k_out},
                                            {"q_scale", &s.q_scale, T::kContiguous},
                                            {"k_scale", &s.k_scale, T::kContiguous},
                                            {"positions", &positions},
                                            {"rows", rows, T::kInt64},
                                            {"freq_factors", given(factors), T::kContiguous},
                                            {"cache", rows ? &k_out : nullptr},
                                            {"q_out", &q_out},
                                            {"k_out", &k_out}});
    auto v = [&](size_t i) { return tensors.view(i); };
    const bool has_elements = check_rms_norm_rope_call(
        rows ? rms_norm_rope_set_rows_tensors(v(0), v(1), v(2), v(3), v(4), v(5), v(6), v(8), v(7))
             : rms_norm_rope_tensors(v(0), v(1), v(2), v(3), v(4), v(6), v(8), v(9)),
        norm_call);
    if (!has_elements) return;
    // aclnn takes no tensor without elements. If one side is empty, the launch has the other side twice, and one of the
    // two results is discarded.
    if (s.q.numel() == 0) {
        const Sides keys{s.k, s.k, s.k_scale, s.k_scale};
        return launch(keys, positions, rows, factors, norm_call, at::empty_like(s.k), k_out);
    }
    if (s.k.numel() == 0) {
        const Sides queries{s.q, s.q, s.q_scale, s.q_scale};
        return launch(queries, positions, nullptr, factors, norm_call, q_out, at::empty_like(s.q));
    }
    tensors.copy_inputs();
    const Attributes& a = norm_call.attributes;
    const at::IntArrayRef sections(a.sections), strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRmsNormRope, tensors[0], tensors[1], tensors[2], tensors[3], tensors[4],
                    tensors.optional(5), tensors.optional(6), tensors.optional(7),
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), norm_call.epsilon, norm_call.intermediate_rounding,
                    tensors[8], tensors[9]);
}

#define NPU_ROPE_CALL_PARAMETERS                                                                                   \
    int64_t n_dims, int64_t rope_mode, int64_t n_ctx_orig, double freq_base, double freq_scale, double ext_factor, \
        double attn_factor, double beta_fast, double beta_slow, at::OptionalIntArrayRef sections, int64_t n_offs,  \
        double epsilon, bool intermediate_rounding, int64_t angle
#define NPU_ROPE_CALL \
    Call { NPU_ROPE_ATTRIBUTES, epsilon, intermediate_rounding }

constexpr bool forward = true;  // NPU_ROPE_ATTRIBUTES uses this name; the operator has no other direction

std::tuple<at::Tensor, at::Tensor> rms_norm_rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& q_scale,
                                                 const at::Tensor& k_scale, const at::Tensor& positions,
                                                 const OptionalTensor& freq_factors, NPU_ROPE_CALL_PARAMETERS) {
    at::Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
    launch({q, k, q_scale, k_scale}, positions, nullptr, freq_factors, NPU_ROPE_CALL, q_out, k_out);
    return {q_out, k_out};
}

void rms_norm_rope_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& q_scale, const at::Tensor& k_scale,
                       const at::Tensor& positions, const OptionalTensor& freq_factors, NPU_ROPE_CALL_PARAMETERS,
                       const at::Tensor& q_out, const at::Tensor& k_out) {
    launch({q, k, q_scale, k_scale}, positions, nullptr, freq_factors, NPU_ROPE_CALL, q_out, k_out);
}

at::Tensor rms_norm_rope_set_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& q_scale,
                                  const at::Tensor& k_scale, const at::Tensor& positions, const at::Tensor& rows,
                                  const at::Tensor& cache, const OptionalTensor& freq_factors,
                                  NPU_ROPE_CALL_PARAMETERS) {
    at::Tensor q_out = at::empty(q.sizes(), q.options());
    launch({q, k, q_scale, k_scale}, positions, &rows, freq_factors, NPU_ROPE_CALL, q_out, cache);
    return q_out;
}

void rms_norm_rope_set_rows_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& q_scale,
                                const at::Tensor& k_scale, const at::Tensor& positions, const at::Tensor& rows,
                                const at::Tensor& cache, const OptionalTensor& freq_factors, NPU_ROPE_CALL_PARAMETERS,
                                const at::Tensor& q_out) {
    launch({q, k, q_scale, k_scale}, positions, &rows, freq_factors, NPU_ROPE_CALL, q_out, cache);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rms_norm_rope", &rms_norm_rope);
    m.impl("rms_norm_rope_out", &rms_norm_rope_out);
    m.impl("rms_norm_rope_set_rows", &rms_norm_rope_set_rows);
    m.impl("rms_norm_rope_set_rows_out", &rms_norm_rope_set_rows_out);
}
