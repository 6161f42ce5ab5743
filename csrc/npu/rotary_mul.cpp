// rotary_mul for NPU tensors, through torch_npu and aclnn, and the parts that rotary_mul_qk and rotary_embedding share
// with it. The schemas, fakes and gradients are in npu_rope/ops/rotary.py; the functions here call the kernel.
#include "csrc/npu/package.h"
#include "csrc/npu/rotary_call.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {

bool accepts_rotary(RotaryTensors t, const std::vector<LaunchTensor>& tensors, const RotaryCall& rotary,
                    RotaryShape* shape) {
    check_devices(t.op, tensors);
    std::vector<npu_rope_tensor> views;
    views.reserve(tensors.size());
    const size_t sides = size_t(t.sides), first_out = tensors.size() - sides, ids_at = sides + 2;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& out = *tensors[first_out + (i < sides ? i : 0)].tensor;
        const bool source = i < ids_at;
        views.push_back(view_for_launch(*tensors[i].tensor, source && will_be_copied(*tensors[i].tensor, out), i));
    }
    for (size_t k = 0; k < sides; ++k) {
        t.x[k] = &views[k];
        t.out[k] = &views[first_out + k];
    }
    t.cos = &views[sides];
    t.sin = &views[sides + 1];
    t.position_ids = first_out > ids_at ? &views[ids_at] : nullptr;
    t.known = Known::kAddresses;
    raise_on(check_rotary(t, rotary.attributes, shape));
    const Platform& chip = platform(t.op);
    raise_on(check_dtype_on_chip(t.op, t.x_name[0], t.x[0]->dtype, chip, chip.soc));
    if (shape->rows.empty()) return false;
    RotaryTilingData data;
    RopeLaunch launch;
    raise_on(rotary_tiling(rotary_tiling_input(t, rotary.attributes, *shape, rotary.forward), chip, &data, &launch));
    return true;
}

void launch_rotary_mul(const at::Tensor& given, const at::Tensor& given_cos, const at::Tensor& given_sin,
                       const OptionalTensor& ids, const RotaryCall& rotary, const at::Tensor& out) {
    const at::Tensor x = readable(given, out), cos = readable(given_cos, out), sin = readable(given_sin, out);
    // The operator package supports int64 rows only, which halves its number of kernels.
    const OptionalTensor rows = ids.has_value() ? OptionalTensor(ids->to(at::kLong)) : ids;
    std::vector<LaunchTensor> tensors = {{"x", &x}, {"cos", &cos}, {"sin", &sin}};
    if (rows.has_value()) tensors.push_back({"position_ids", &*rows});
    tensors.push_back({"out", &out});
    const std::vector<int64_t> all_strides = strides_of(tensors);
    at::IntArrayRef strides(all_strides);
    bool interleaved = rotary.attributes.interleaved, forward = rotary.forward;
    int64_t rotary_dim = rotary.attributes.rotary_dim, offset = rotary.attributes.offset;
    NPU_ROPE_LAUNCH(aclnnNpuRotaryMul, x, cos, sin, rows, interleaved, rotary_dim, offset, forward, strides, out);
}

}  // namespace npu_rope

namespace {

using namespace npu_rope;

void launch(const at::Tensor& x, const TorchTables& t, const RotaryCall& rotary, const at::Tensor& out) {
    const c10::OptionalDeviceGuard guard(x.device());
    RotaryShape shape;
    if (accepts_rotary(rotary_mul_tensors(nullptr, nullptr, nullptr, nullptr),
                       {{"x", &x}, {"cos", &t.cos}, {"sin", &t.sin}, {"out", &out}}, rotary, &shape))
        launch_rotary_mul(x, t.cos, t.sin, std::nullopt, rotary, out);
}

at::Tensor rotary_mul(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool interleaved,
                      int64_t rotary_dim, int64_t offset, bool forward) {
    at::Tensor out = at::empty(x.sizes(), x.options());
    launch(x, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, out);
    return out;
}

void rotary_mul_inplace(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool interleaved,
                        int64_t rotary_dim, int64_t offset, bool forward) {
    launch(x, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, x);
}

void rotary_mul_out(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& out,
                    bool interleaved, int64_t rotary_dim, int64_t offset, bool forward) {
    launch(x, {cos, sin}, {{interleaved, rotary_dim, offset, 0}, forward}, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) {
    m.impl("rotary_mul", &rotary_mul);
    m.impl("rotary_mul_", &rotary_mul_inplace);
    m.impl("rotary_mul_out", &rotary_mul_out);
}
