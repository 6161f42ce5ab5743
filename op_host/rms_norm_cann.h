// Shared parts of the CANN definitions of rms_norm, add_rms_norm and rms_norm_backward.
#pragma once

#include "csrc/core/rms_norm_check.h"
#include "op_host/cann.h"

namespace npu_rope {

// Types of x and of the scale, by column. CANN compiles the kernel for each column.
inline Types normalized_types() {
    return {ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_BF16,
            ge::DT_BF16,    ge::DT_FLOAT,   ge::DT_FLOAT,   ge::DT_FLOAT};
}
inline Types scale_types() {
    return {ge::DT_FLOAT16, ge::DT_BF16,    ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16,
            ge::DT_FLOAT,   ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT};
}

// Adds axis, epsilon, stash_type and strides, in this order.
void declare_rms_norm_attributes(AttributeAdder* adder);

// Tiles a call. make_tensors: converts the tensors of the definition to those of the call.
Check tile_rms_norm(gert::TilingContext* context, const char* op, const Parameters& parameters,
                    RmsNormTensors (*make_tensors)(const Tensors&));

}  // namespace npu_rope
