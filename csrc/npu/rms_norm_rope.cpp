// rms_norm_rope for NPU tensors, through torch_npu and aclnn. The schemas, fakes and gradients are in
// npu_rope/ops/rms_norm_rope.py; the functions here call the kernel.
#include <tuple>

#include "csrc/core/rope_frequency.h"
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

// Raises ValueError or TypeError for a broken rule; returns false if there is nothing to launch. Checks inputs in the
// form that readable() and contiguous() give them. rows: NULL, or the keys' rows in k_out, a cache.
bool accepts(const Sides& s, const at::Tensor& positions, const at::Tensor* rows, const OptionalTensor& factors,
             const Call& asked, const at::Tensor& q_out, const at::Tensor& k_out) {
    constexpr const char* op = "rms_norm_rope";
    std::vector<LaunchTensor> tensors = {{"q", &s.q},
                                         {"k", &s.k},
                                         {"q_scale", &s.q_scale},
                                         {"k_scale", &s.k_scale},
                                         {"positions", &positions},
                                         {"q_out", &q_out},
                                         {rows ? "cache" : "k_out", &k_out}};
    if (rows) tensors.push_back({"rows", rows});
    if (factors.has_value()) tensors.push_back({"freq_factors", &*factors});
    check_devices(op, tensors);
    std::vector<npu_rope_tensor> views;
    views.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& t = *tensors[i].tensor;
        const bool is_x = i < 2, is_vector = i == 2 || i == 3 || (factors.has_value() && i + 1 == tensors.size());
        const bool copied = is_x ? will_be_copied(t, i == 0 ? q_out : k_out) : is_vector && !t.is_contiguous();
        views.push_back(view_for_launch(t, copied, i));
    }
    const npu_rope_tensor* v = views.data();
    const npu_rope_tensor* of_factors = factors.has_value() ? &views.back() : nullptr;
    RmsNormRopeTensors t =
        rows ? rms_norm_rope_set_rows_tensors(v, v + 1, v + 2, v + 3, v + 4, v + 7, of_factors, v + 5, v + 6)
             : rms_norm_rope_tensors(v, v + 1, v + 2, v + 3, v + 4, of_factors, v + 5, v + 6);
    t.rope.known = Known::kAddresses;
    const npu_rope_params params = params_of(asked.attributes);
    const auto angle = static_cast<int32_t>(asked.attributes.angle);
    RopeShape shape;
    raise_on(check_rms_norm_rope(t, &params, asked.epsilon, angle, &shape));
    const Platform& chip = platform(op);
    raise_on(check_rope_on_chip(t.rope, angle, "npu", chip, chip.soc));
    raise_on(check_rope_frequencies(rope_frequencies(params, nullptr, 1)));
    if (shape.empty()) return false;
    RmsNormRopeTilingData data;
    RopeLaunch launch;
    const HeadNorm norm{asked.epsilon, asked.intermediate_rounding};
    raise_on(rms_norm_rope_tiling(rms_norm_rope_tiling_input(t, shape, params, norm), chip, &data, &launch));
    return true;
}

void launch(const Sides& given, const at::Tensor& positions, const at::Tensor* given_rows,
            const OptionalTensor& given_factors, const Call& asked, const at::Tensor& q_out, const at::Tensor& k_out) {
    const c10::OptionalDeviceGuard guard(given.q.device());
    if (!accepts(given, positions, given_rows, given_factors, asked, q_out, k_out)) return;
    // aclnn takes no tensor without elements. The other side replaces it, with an output that is discarded.
    if (given.q.numel() == 0) {
        const Sides keys{given.k, given.k, given.k_scale, given.k_scale};
        return launch(keys, positions, given_rows, given_factors, asked, at::empty_like(given.k), k_out);
    }
    if (given.k.numel() == 0) {
        const Sides queries{given.q, given.q, given.q_scale, given.q_scale};
        return launch(queries, positions, nullptr, given_factors, asked, q_out, at::empty_like(given.q));
    }
    const at::Tensor q = readable(given.q, q_out), k = readable(given.k, k_out);
    const at::Tensor q_scale = given.q_scale.contiguous(), k_scale = given.k_scale.contiguous();
    const OptionalTensor factors = contiguous(given_factors);
    OptionalTensor rows, cache;
    std::vector<LaunchTensor> tensors = {{"q", &q}, {"k", &k}, {"positions", &positions}};
    if (given_rows) {
        // The operator package supports int64 rows only, which halves its number of kernels.
        rows = given_rows->to(at::kLong);
        cache = k_out;
        tensors.push_back({"rows", &*rows});
        tensors.push_back({"cache", &*cache});
    }
    tensors.push_back({"q_out", &q_out});
    tensors.push_back({"k_out", &k_out});
    const std::vector<int64_t> all_strides = strides_of(tensors);
    const Attributes& a = asked.attributes;
    at::IntArrayRef sections(a.sections), strides(all_strides);
    double epsilon = asked.epsilon;
    bool rounds = asked.intermediate_rounding;
    NPU_ROPE_LAUNCH(aclnnNpuRmsNormRope, q, k, q_scale, k_scale, positions, rows, factors, cache,
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides), epsilon, rounds, q_out, k_out);
}

#define NPU_ROPE_CALL_PARAMETERS                                                                                   \
    int64_t n_dims, int64_t rope_mode, int64_t n_ctx_orig, double freq_base, double freq_scale, double ext_factor, \
        double attn_factor, double beta_fast, double beta_slow, at::OptionalIntArrayRef sections, int64_t n_offs,  \
        double epsilon, bool intermediate_rounding, int64_t angle
#define NPU_ROPE_CALL                                                                            \
    Call {                                                                                       \
        {n_dims,    rope_mode, n_ctx_orig,       freq_base, freq_scale, ext_factor, attn_factor, \
         beta_fast, beta_slow, listed(sections), n_offs,    true,       angle},                  \
            epsilon, intermediate_rounding                                                       \
    }

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
