// Shared parts of the CANN definitions of rotary_mul and rotary_mul_qk: attributes, and the conversion of CANN's
// contexts for the checks and the tiling of all native paths.
#pragma once

#include "csrc/core/rotary_check.h"
#include "op_host/cann.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// Adds the attributes of rotary_mul in its order, then the strides of every tensor.
void add_rotary_attributes(ops::OpDef* def);

// `tensors` holds the call's operator, names and sides; the function reads its tensors from the context: xs, cos, sin
// and, with one side, position_ids, which may be missing.
ge::graphStatus tile_rotary(gert::TilingContext* context, RotaryTensors tensors);

}  // namespace npu_rope
