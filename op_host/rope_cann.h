// What the definitions of rope, rope_qk and rope_set_rows share: attributes, and the way from CANN's
// contexts to the checks and the tiling of all native paths.
#pragma once

#include "op_host/cann.h"
#include "op_host/rope_check.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// The attributes of specs/ggml_rope_acltensor.txt, in its order and of its types; then n_offs, which is
// today's ggml's; then strides, of every tensor but freq_factors.
void add_rope_attributes(ops::OpDef* def);

// Their places.
enum RopeAttribute : size_t {
    kNDims,
    kMode,
    kNCtxOrig,
    kFreqBase,
    kFreqScale,
    kExtFactor,
    kAttnFactor,
    kBetaFast,
    kBetaSlow,
    kSections,
    kForward,
    kNOffs,
    kStrides,
    kRopeAttributes,  // how many there are
};

Check read_rope_attributes(const CannCall& call, const char* op, npu_rope_params* params, bool* forward);

// aclnn takes no tensor without elements. T: RopeTensors or RotaryTensors.
template <typename T>
Check no_elements(const T& t) {
    return bad_value(t.op, "%s must have elements on an NPU but got shape %s.", t.x_name[0],
                     shape_text(t.x[0]->shape, t.x[0]->ndim).c_str());
}

// `tensors` says whose call it is: its operator, names and sides. Its tensors are found in the context.
ge::graphStatus tile_rope(gert::TilingContext* context, RopeTensors tensors);

}  // namespace npu_rope
