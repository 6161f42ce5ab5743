// rotary_mul for NPU tensors, through torch_npu and aclnn, and the parts that rotary_mul_qk and rotary_embedding share
// with it. The schemas, fakes and gradients are in npu_rope/ops/rotary.py; the functions here call the kernel.
#include "csrc/npu/package.h"
#include "csrc/npu/rotary_call.h"
#include "op_host/rotary_tiling.h"

namespace npu_rope {

bool check_rotary_call(RotaryTensors t, const RotaryCall& rotary, RotaryShape* shape) {
    t.known = Known::kAddresses;
    TilingResult<RotaryTilingData> tiled;
    raise_on(check_and_tile_rotary(t, rotary.attributes, rotary.forward, platform(t.op), shape, &tiled));
    return tiled.has_elements();
}

static LaunchTensors rotary_mul_launch(const at::Tensor& x, const TorchTables& tables, const OptionalTensor& ids,
                                       const at::Tensor& out) {
    return {"rotary_mul",
            {{"x", &x, LaunchTensor::kUnitStride, &out},
             {"cos", &tables.cos, LaunchTensor::kUnitStride, &out},
             {"sin", &tables.sin, LaunchTensor::kUnitStride, &out},
             {"position_ids", given(ids), LaunchTensor::kInt64},
             {"out", &out}}};
}

void launch_rotary_mul(const at::Tensor& x, const TorchTables& tables, const OptionalTensor& ids,
                       const RotaryCall& rotary, const at::Tensor& out) {
    LaunchTensors tensors = rotary_mul_launch(x, tables, ids, out);
    tensors.copy_inputs();
    const at::IntArrayRef strides = tensors.strides();
    const RotaryAttributes& a = rotary.attributes;
    NPU_ROPE_LAUNCH(aclnnNpuRotaryMul, tensors[0], tensors[1], tensors[2], tensors.optional(3), a.interleaved,
                    a.rotary_dim, a.offset, rotary.forward, strides, tensors[4]);
}

}  // namespace npu_rope

namespace {

using namespace npu_rope;

void launch(const at::Tensor& x, const TorchTables& tables, const RotaryCall& rotary, const at::Tensor& out) {
    const LaunchTensors tensors = rotary_mul_launch(x, tables, std::nullopt, out);
    RotaryShape shape;
    const bool has_elements = check_rotary_call(
        rotary_mul_tensors(tensors.view(0), tensors.view(1), tensors.view(2), tensors.view(4)), rotary, &shape);
    if (has_elements) launch_rotary_mul(x, tables, std::nullopt, rotary, out);
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
