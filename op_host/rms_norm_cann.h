// Shared parts of the CANN definitions of rms_norm, add_rms_norm and rms_norm_backward.
#pragma once

#include "op_host/cann.h"
#include "op_host/rms_norm_tiling.h"

namespace npu_rope {

// Adds axis, epsilon, stash_type and strides, in this order.
void add_rms_norm_attributes(ops::OpDef* def);

Check read_rms_norm_attributes(CannCall* call, RmsNormAttributes* a);

// Tiles a call that its operator's rules accept; x: for messages.
Check tile_rms_norm_call(gert::TilingContext* context, const RmsNormTilingInput& in, const npu_rope_tensor& x);

}  // namespace npu_rope
