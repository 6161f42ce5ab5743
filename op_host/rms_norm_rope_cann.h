// The CANN definition of rms_norm_rope: its attributes, and the conversion of a call for the checks and the tiling of
// all native paths.
#pragma once

#include "op_host/rope_cann.h"

namespace npu_rope {

// Adds rope's attributes, then epsilon and intermediate_rounding.
void add_rms_norm_rope_attributes(ops::OpDef* def);

ge::graphStatus tile_rms_norm_rope(gert::TilingContext* context);

}  // namespace npu_rope
