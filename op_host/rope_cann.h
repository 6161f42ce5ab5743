// What the definitions of rope, rope_qk and rope_set_rows share: attributes, and the way from CANN's
// contexts to the checks and the tiling of all native paths.
#pragma once

#include "op_host/cann.h"
#include "op_host/rope_check.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// The attributes of specs/ggml_rope_acltensor.txt, in its order and of its types; then n_offs, which is
// today's ggml's; then strides, see docs/npu.md: empty where every tensor is contiguous, else the strides,
// in elements, of every tensor but freq_factors, one tensor behind the other: inputs, then outputs.
void add_rope_attributes(ops::OpDef* def);

// The SoCs whose types are the definition's own, and Ascend310P, where `of_310p` says which they are.
void add_rope_chips(ops::OpDef* def, ops::OpAICoreConfig* of_310p);

// `tensors` says whose call it is: its operator, names and sides. Its tensors are found in the context.
ge::graphStatus tile_rope(gert::TilingContext* context, RopeTensors tensors);

}  // namespace npu_rope
