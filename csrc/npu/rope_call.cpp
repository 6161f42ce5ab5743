#include "csrc/npu/rope_call.h"

#include <cstring>

#include "csrc/core/rope_frequency.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

int32_t narrow(const char* op, const char* name, int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX) raise_on(bad_value(op, name, "be in the int32 range", std::to_string(v)));
    return static_cast<int32_t>(v);
}

}  // namespace

npu_rope_params params_of(const Attributes& a) {
    npu_rope_params p = {};
    if (a.sections.size() != 4)
        raise_on(bad_value("rope", "sections", "be four numbers >= 0", formatted("%zu numbers", a.sections.size())));
    for (size_t i = 0; i < 4; ++i) p.sections[i] = narrow("rope", "sections", a.sections[i]);
    p.n_dims = narrow("rope", "n_dims", a.n_dims);
    p.mode = narrow("rope", "mode", a.mode);
    p.n_ctx_orig = narrow("rope", "n_ctx_orig", a.n_ctx_orig);
    p.n_offs = narrow("rope", "n_offs", a.n_offs);
    p.freq_base = a.freq_base;
    p.freq_scale = a.freq_scale;
    p.ext_factor = a.ext_factor;
    p.attn_factor = a.attn_factor;
    p.beta_fast = a.beta_fast;
    p.beta_slow = a.beta_slow;
    return p;
}

RopeLaunchCheck::RopeLaunchCheck(const char* op, int sides, std::vector<LaunchTensor> tensors,
                                 const OptionalTensor& factors)
    : op_(op), sides_(sides), tensors_(std::move(tensors)), factors_(factors) {}

RopeLaunchCheck RopeLaunchCheck::rope(const at::Tensor& x, const at::Tensor& positions, const OptionalTensor& factors,
                                      const at::Tensor& out) {
    return {"rope", 1, {{"x", &x}, {"positions", &positions}, {"out", &out}}, factors};
}

RopeLaunchCheck RopeLaunchCheck::rope_qk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                                         const OptionalTensor& factors, const at::Tensor& q_out,
                                         const at::Tensor& k_out) {
    return {
        "rope_qk", 2, {{"q", &q}, {"k", &k}, {"positions", &positions}, {"q_out", &q_out}, {"k_out", &k_out}}, factors};
}

RopeLaunchCheck RopeLaunchCheck::rope_set_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows,
                                               const OptionalTensor& factors, const at::Tensor& cache) {
    return {"rope_set_rows", 1, {{"x", &x}, {"positions", &positions}, {"rows", &rows}, {"cache", &cache}}, factors};
}

bool RopeLaunchCheck::accepts(const Attributes& a) const {
    std::vector<LaunchTensor> all = tensors_;
    if (factors_.has_value()) all.push_back({"freq_factors", &*factors_});
    check_devices(op_, all);
    const npu_rope_params params = params_of(a);
    std::vector<npu_rope_tensor> views;
    views.reserve(tensors_.size() + 1);
    const size_t sides = size_t(sides_), first_out = tensors_.size() - sides;
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const at::Tensor& tensor = *tensors_[i].tensor;
        const bool copied = i < sides && will_be_copied(tensor, *tensors_[first_out + i].tensor);
        views.push_back(view_for_launch(tensor, copied, i));
    }
    const npu_rope_tensor* factors = nullptr;
    if (factors_.has_value()) {
        views.push_back(view_for_launch(*factors_, !factors_->is_contiguous(), sides));
        factors = &views.back();
    }
    const npu_rope_tensor* v = views.data();
    const bool scatters = std::strcmp(op_, "rope_set_rows") == 0;
    RopeTensors t = sides_ == 2 ? rope_qk_tensors(v, v + 1, v + 2, factors, v + 3, v + 4)
                    : scatters  ? rope_set_rows_tensors(v, v + 1, v + 2, factors, v + 3)
                                : rope_tensors(v, v + 1, factors, v + 2);
    t.known = Known::kAddresses;
    RopeShape shape;
    const int32_t angle = narrow(op_, "angle", a.angle);
    raise_on(check_rope(t, &params, angle, &shape));
    const Platform& chip = platform(op_);
    raise_on(check_rope_on_chip(t, angle, "npu", chip, chip.soc));
    raise_on(check_rope_frequencies(rope_frequencies(params, nullptr, 1)));
    if (shape.empty()) return false;
    RopeTilingData data;
    RopeLaunch launch;
    raise_on(rope_tiling(rope_tiling_input(t, shape, params, a.forward), chip, &data, &launch));
    return true;
}

std::vector<int64_t> RopeLaunchCheck::strides() const { return strides_of(tensors_); }

}  // namespace npu_rope
