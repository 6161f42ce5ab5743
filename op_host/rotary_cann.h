// What the definitions of rotary_mul and rotary_mul_qk share: attributes, and the way from CANN's contexts to the
// checks and the tiling of all native paths.
#pragma once

#include "op_host/cann.h"
#include "op_host/rotary_check.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// Those of rotary_mul, in its order; then strides, of every tensor.
void add_rotary_attributes(ops::OpDef* def);

// `tensors` says whose call it is: its operator, names and sides. Its tensors are found in the context: xs, cos,
// sin and, of one side, position_ids, which may be missing.
ge::graphStatus tile_rotary(gert::TilingContext* context, RotaryTensors tensors);

}  // namespace npu_rope
