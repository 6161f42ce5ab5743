// Shared parts of the CANN definitions of rotary_mul and rotary_mul_qk: types, attributes and the tiling function.
#pragma once

#include "csrc/core/rotary_check.h"
#include "op_host/cann.h"

namespace npu_rope {

// Types of x and of the tables, by column. CANN compiles the kernel for each column.
inline Types rotated_types() { return {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16}; }
inline Types table_types() { return {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_FLOAT}; }

// Adds the attributes of rotary_mul in its order, then the strides.
void declare_rotary_attributes(AttributeAdder* adder);

// Tiles a call. make_tensors: converts the tensors of the definition to those of the call.
Check tile_rotary(gert::TilingContext* context, const char* op, const Parameters& parameters,
                  RotaryTensors (*make_tensors)(const Tensors&));

}  // namespace npu_rope
