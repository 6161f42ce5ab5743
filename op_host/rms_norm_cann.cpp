#include "op_host/rms_norm_cann.h"

namespace npu_rope {
namespace {

// Indices of the attributes.
enum Attribute : size_t { kAxis, kEpsilon, kStashType, kStrides };

}  // namespace

void add_rms_norm_attributes(ops::OpDef* def) {
    def->Attr("axis").AttrType(ops::OPTIONAL).Int(-1);
    def->Attr("epsilon").AttrType(ops::OPTIONAL).Float(1e-5f);
    def->Attr("stash_type").AttrType(ops::OPTIONAL).Int(1);
    add_strides_attribute(def);
}

Check read_rms_norm_attributes(CannCall* call, RmsNormAttributes* a) {
    if (Check c = call->begin(kStrides); !c.ok()) return c;
    if (Check c = call->read(kAxis, "axis", &a->axis); !c.ok()) return c;
    if (Check c = call->read(kEpsilon, "epsilon", &a->epsilon); !c.ok()) return c;
    return call->read(kStashType, "stash_type", &a->stash_type);
}

Check tile_rms_norm_call(gert::TilingContext* context, const RmsNormTilingInput& in, const npu_rope_tensor& x) {
    Platform platform = {};
    if (Check c = platform_from_cann(in.op, *context, &platform); !c.ok()) return c;
    const char* chip = platform.arch == kArch310p ? "Ascend310P" : "Ascend910B";
    if (Check c = check_rms_norm_on_chip(in, platform, chip); !c.ok()) return c;
    if (in.shape.rows == 0 || in.shape.n == 0)
        return bad_value(in.op, "x", "have elements on an NPU", "shape " + shape_text(x.shape, x.ndim));
    RmsNormTilingData data;
    RopeLaunch launch;
    if (Check c = rms_norm_tiling(in, platform, &data, &launch); !c.ok()) return c;
    return hand_to_cann(in.op, context, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
}

}  // namespace npu_rope
