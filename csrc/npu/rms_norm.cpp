// rms_norm for NPU tensors, through torch_npu and aclnn, and the parts that add_rms_norm and rms_norm_backward share
// with it. The schemas, fakes and gradients are in npu_rope/ops/rms_norm.py; the functions here call the kernel.
#include <algorithm>

#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace npu_rope {
namespace {

// The dimensions from `first` on, and those before them, as one each.
at::Tensor as_rows(const at::Tensor& t, int64_t first) {
    return t.flatten(first).flatten(0, std::max<int64_t>(first - 1, 0));
}

}  // namespace

NormCall::NormCall(const at::Tensor& x, const RmsNormAttributes& a)
    : attributes(a), sizes_(x.sizes().vec()), first_(a.axis < 0 ? a.axis + x.dim() : a.axis) {
    // The checks report an invalid axis.
    if (first_ < 0 || first_ >= x.dim()) first_ = 0;
    if (is_joined()) attributes.axis = -1;
}

at::Tensor NormCall::read(const at::Tensor& t) const {
    if (is_joined()) return as_rows(t.contiguous(), first_);
    return t.dim() != int64_t(sizes_.size()) || is_dense_from(first_, t.dim(), t.sizes().data(), t.strides().data())
               ? t
               : t.contiguous();
}

at::Tensor NormCall::written(const char* op, const char* name, const at::Tensor& t) const {
    if (!is_joined() || t.dim() != int64_t(sizes_.size())) return t;
    if (!t.is_contiguous())
        raise_on(bad_value(op, name, "be contiguous where x has more than 4 dimensions",
                           "strides " + shape_text(t.strides().data(), static_cast<int>(t.dim()))));
    return as_rows(t, first_);
}

at::Tensor NormCall::scale(const at::Tensor& scale) const {
    if (!is_joined()) return scale;
    const bool shared = scale.dim() <= int64_t(sizes_.size()) - first_;
    const at::IntArrayRef sizes = at::IntArrayRef(sizes_).slice(shared ? size_t(first_) : 0);
    at::Tensor whole = scale.expand(sizes).contiguous();
    return shared ? whole.flatten() : as_rows(whole, first_);
}

// Whether all rows share the scale and it can be expanded inside a row: it lacks the dimensions before the row's or has
// size 1 there.
bool NormCall::is_of_each_row(const at::Tensor& scale) const {
    const int64_t lacks = int64_t(sizes_.size()) - scale.dim();
    if (lacks < 0) return false;
    for (int64_t k = 0; k < scale.dim(); ++k)
        if (scale.size(k) != 1 && (lacks + k < first_ || scale.size(k) != sizes_[size_t(lacks + k)])) return false;
    return true;
}

at::Tensor NormCall::scale_of_row(const at::Tensor& given) const {
    if (!is_of_each_row(given)) return scale(given);
    const int64_t before = std::max<int64_t>(given.dim() - int64_t(row_sizes().size()), 0);
    at::Tensor whole = given.reshape(given.sizes().slice(size_t(before))).expand(row_sizes()).contiguous();
    return is_joined() ? whole.flatten() : whole;
}

at::Tensor NormCall::summed_as(const at::Tensor& scale, const at::Tensor& sums) const {
    if (sums.numel() == scale.numel()) return sums.reshape(scale.sizes()).to(scale.scalar_type());
    const int64_t before = std::max<int64_t>(scale.dim() - int64_t(row_sizes().size()), 0);
    const at::Tensor summed = sums.reshape(row_sizes()).sum_to_size(scale.sizes().slice(size_t(before)));
    return summed.reshape(scale.sizes()).to(scale.scalar_type());
}

bool accepts_rms_norm(RmsNormTensors t, const RmsNormAttributes& a) {
    t.known = Known::kAddresses;
    Tiled<RmsNormTilingData> tiled;
    raise_on(check_and_tile_rms_norm(t, a, platform(t.op), &tiled));
    return tiled.has_elements;
}

}  // namespace npu_rope

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given, const at::Tensor& given_scale, const RmsNormAttributes& a,
            const at::Tensor& given_out) {
    const NormCall norm(given, a);
    const at::Tensor out = norm.written("rms_norm", "out", given_out);
    const at::Tensor x = given.is_same(given_out) ? out : norm.read(given), scale = norm.scale(given_scale);
    LaunchTensors tensors("rms_norm", {{"x", &x}, {"scale", &scale}, {"out", &out}});
    const RmsNormAttributes& of = norm.attributes;
    if (!accepts_rms_norm(rms_norm_tensors(tensors.view(0), tensors.view(1), tensors.view(2)), of)) return;
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRmsNorm, x, scale, of.axis, of.epsilon, of.stash_type, strides, out);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, int64_t axis, double epsilon, int64_t stash_type) {
    at::Tensor out = at::empty(x.sizes(), scale.options());
    launch(x, scale, {axis, epsilon, stash_type}, out);
    return out;
}

void rms_norm_out(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& out, int64_t axis, double epsilon,
                  int64_t stash_type) {
    launch(x, scale, {axis, epsilon, stash_type}, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rms_norm", &rms_norm);
    m.impl("rms_norm_out", &rms_norm_out);
}
