// rms_norm for NPU tensors, through torch_npu and aclnn, and the parts that add_rms_norm and rms_norm_backward share
// with it. The schemas, fakes and gradients are in npu_rope/ops/rms_norm.py; the functions here call the kernel.
#include "csrc/npu/package.h"
#include "csrc/npu/rms_norm_call.h"

namespace npu_rope {
namespace {

Dims dims_of(const at::Tensor& t) { return {t.dim(), t.sizes().data(), t.strides().data()}; }

}  // namespace

NormCall::NormCall(const char* op, const at::Tensor& x, const at::Tensor& scale, const RmsNormAttributes& a)
    : op_(op), x_(x), scale_(scale), attributes_(a) {
    if (!is_joined()) return;
    raise_on(join_norm_dims(op, dims_of(x), dims_of(scale), a.axis, &joined_));
    if (joined_.x.size() > NPU_ROPE_MAX_NDIM) {
        scale_ = scale.expand(x.sizes());
        raise_on(join_norm_dims(op, dims_of(x), dims_of(scale_), a.axis, &joined_));
    }
    scale_ = scale_.contiguous().view(joined_.scale);
    attributes_.axis = joined_.axis;
}

at::Tensor NormCall::read(const char* name, const at::Tensor& t) const {
    if (is_joined()) {
        raise_on(check_norm_dims(op_, name, dims_of(t), dims_of(x_), /*is_output=*/false));
        return t.contiguous().view(joined_.x);
    }
    const int64_t axis = attributes_.axis;
    return dims_of(t).is_dense_from(axis < 0 ? axis + t.dim() : axis) ? t : t.contiguous();
}

at::Tensor NormCall::written(const char* name, const at::Tensor& t) const {
    if (!is_joined()) return t;
    raise_on(check_norm_dims(op_, name, dims_of(t), dims_of(x_), /*is_output=*/true));
    return t.view(joined_.x);
}

bool check_rms_norm_call(RmsNormTensors t, const RmsNormAttributes& a) {
    t.known = Known::kAddresses;
    TilingResult<RmsNormTilingData> tiled;
    raise_on(check_and_tile_rms_norm(t, a, platform(t.op), &tiled));
    return tiled.has_elements();
}

}  // namespace npu_rope

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given_x, const at::Tensor& given_scale, const RmsNormAttributes& a,
            const at::Tensor& given_out) {
    const NormCall norm("rms_norm", given_x, given_scale, a);
    const at::Tensor out = norm.written("out", given_out);
    const at::Tensor x = given_x.is_same(given_out) ? out : norm.read("x", given_x), scale = norm.scale();
    LaunchTensors tensors("rms_norm", {{"x", &x}, {"scale", &scale}, {"out", &out}});
    const RmsNormAttributes& attributes = norm.attributes();
    const bool has_elements =
        check_rms_norm_call(rms_norm_tensors(tensors.view(0), tensors.view(1), tensors.view(2)), attributes);
    if (!has_elements) return;
    const at::IntArrayRef strides = tensors.strides();
    NPU_ROPE_LAUNCH(aclnnNpuRmsNorm, x, scale, attributes.axis, attributes.epsilon, attributes.stash_type, strides,
                    out);
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
