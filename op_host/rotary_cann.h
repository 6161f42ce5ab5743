// Shared parts of the CANN definitions of rotary_mul and rotary_mul_qk: types, attributes, and the conversion of CANN's
// contexts for the checks and the tiling of all native paths.
#pragma once

#include "csrc/core/rotary_check.h"
#include "op_host/cann.h"

namespace npu_rope {

// Types of x and of the tables. Each column is one compile of the kernel.
inline Types rotated_types() { return {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16}; }
inline Types table_types() { return {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT}; }

// Adds the attributes of rotary_mul in its order, then the strides of every tensor.
void add_rotary_attributes(AttributeAdder* adder);

// Tiles a call. make: the call's tensors from those of the definition.
Check tile_rotary(gert::TilingContext* context, const char* op, const Parameters& parameters,
                  RotaryTensors (*make)(const Tensors&));

}  // namespace npu_rope
