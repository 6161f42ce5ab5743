#include "csrc/npu/rope_call.h"

#include <algorithm>
#include <cstring>

#include "acl/acl_rt.h"
#include "op_host/platform.h"
#include "op_host/rope_frequency.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

int32_t dtype_code(at::ScalarType type) {
    switch (type) {
        case at::kFloat:
            return NPU_ROPE_FLOAT32;
        case at::kHalf:
            return NPU_ROPE_FLOAT16;
        case at::kBFloat16:
            return NPU_ROPE_BFLOAT16;
        case at::kDouble:
            return NPU_ROPE_FLOAT64;
        case at::kInt:
            return NPU_ROPE_INT32;
        case at::kLong:
            return NPU_ROPE_INT64;
        case at::kChar:  // from here on what no operator takes, so that the refusal can name it
            return NPU_ROPE_INT8;
        case at::kShort:
            return NPU_ROPE_INT16;
        case at::kByte:
            return NPU_ROPE_UINT8;
        case at::kBool:
            return NPU_ROPE_BOOL;
        case at::kComplexFloat:
            return NPU_ROPE_COMPLEX64;
        case at::kComplexDouble:
            return NPU_ROPE_COMPLEX128;
        default:
            return -1;
    }
}

bool is_readable(const at::Tensor& x) {
    const int64_t last = x.dim() - 1;
    return last < 0 || x.size(last) <= 1 || x.stride(last) == 1;
}

npu_rope_tensor view_of(const at::Tensor& t) {
    npu_rope_tensor view = {};
    view.data = t.numel() == 0 ? nullptr : const_cast<void*>(t.const_data_ptr());
    view.dtype = dtype_code(t.scalar_type());
    view.ndim = static_cast<int32_t>(t.dim());
    for (int64_t k = 0; k < t.dim() && k < NPU_ROPE_MAX_NDIM; ++k) {
        view.shape[k] = t.size(k);
        view.stride[k] = t.stride(k);
    }
    return view;
}

// t as the copy of it will be that the kernel reads: contiguous, in memory that nothing else is in.
npu_rope_tensor view_of_copy(const at::Tensor& t, size_t number) {
    constexpr uintptr_t kElsewhere = uintptr_t(1) << 62, kApart = uintptr_t(1) << 58;  // no address of a process
    npu_rope_tensor view = view_of(t);
    if (view.data != nullptr) view.data = reinterpret_cast<void*>(kElsewhere + number * kApart);
    int64_t stride = 1;
    for (int32_t k = std::min<int32_t>(view.ndim, NPU_ROPE_MAX_NDIM) - 1; k >= 0; --k) {
        view.stride[k] = stride;
        stride *= view.shape[k];
    }
    return view;
}

// As Python's checks raise them.
void raise_on(const Check& c) {
    TORCH_CHECK_TYPE(c.kind != Check::kType, c.message);
    TORCH_CHECK_VALUE(c.kind != Check::kValue, c.message);
    TORCH_CHECK(c.ok(), c.message);
}

int32_t narrow(const char* op, const char* name, int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX)
        raise_on(bad_value(op, "%s must be in the int32 range but got %lld.", name, static_cast<long long>(v)));
    return static_cast<int32_t>(v);
}

// What is wrong with parameters is said in rope's name.
npu_rope_params params_of(const Attributes& a) {
    npu_rope_params p = {};
    if (a.sections.size() != 4)
        raise_on(bad_value("rope", "sections must be four numbers >= 0 but got %zu numbers.", a.sections.size()));
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

const Platform& platform(const char* op) {
    const char* soc = aclrtGetSocName();
    static const Platform* known = soc ? find_platform(soc) : nullptr;
    if (known == nullptr)
        raise_on(
            bad_value(op, "soc must be an Ascend910B, Ascend910_93 or Ascend310P but got %s.", soc ? soc : "none"));
    return *known;
}

}  // namespace

at::Tensor readable(const at::Tensor& x, const at::Tensor& out) {
    return x.is_same(out) || is_readable(x) ? x : x.contiguous();
}

OptionalTensor contiguous(const OptionalTensor& factors) {
    return factors.has_value() ? OptionalTensor(factors->contiguous()) : factors;
}

RopeLaunchCheck::RopeLaunchCheck(const char* op, int sides, std::vector<Named> tensors, const OptionalTensor& factors)
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

void RopeLaunchCheck::check_devices() const {
    const at::Device device = tensors_[0].tensor->device();
    auto check = [&](const char* name, const at::Tensor& t) {
        if (t.device() != device)
            raise_on(bad_value(op_, "%s must be on %s's device %s but got %s.", name, tensors_[0].name,
                               device.str().c_str(), t.device().str().c_str()));
    };
    for (const Named& n : tensors_) check(n.name, *n.tensor);
    if (factors_.has_value()) check("freq_factors", *factors_);
}

bool RopeLaunchCheck::accepts(const Attributes& a) const {
    check_devices();
    const npu_rope_params params = params_of(a);
    std::vector<npu_rope_tensor> views;
    views.reserve(tensors_.size() + 1);
    const size_t sides = size_t(sides_), first_out = tensors_.size() - sides;
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const at::Tensor& tensor = *tensors_[i].tensor;
        const bool copied = i < sides && !is_readable(tensor) && !tensor.is_same(*tensors_[first_out + i].tensor);
        views.push_back(copied ? view_of_copy(tensor, i) : view_of(tensor));
    }
    const npu_rope_tensor* factors = nullptr;
    if (factors_.has_value()) {
        views.push_back(factors_->is_contiguous() ? view_of(*factors_) : view_of_copy(*factors_, sides));
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

std::vector<int64_t> RopeLaunchCheck::strides() const {
    std::vector<int64_t> all;
    bool contiguous = true;
    for (const Named& n : tensors_) {
        contiguous = contiguous && n.tensor->is_contiguous();
        all.insert(all.end(), n.tensor->strides().begin(), n.tensor->strides().end());
    }
    return contiguous ? std::vector<int64_t>() : all;
}

}  // namespace npu_rope
