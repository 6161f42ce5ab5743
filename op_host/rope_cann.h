// Shared parts of the CANN definitions of rope, rope_qk and rope_set_rows: attributes, and the conversion of CANN's
// contexts for the checks and the tiling of all native paths.
#pragma once

#include "csrc/core/rope_check.h"
#include "op_host/cann.h"
#include "register/op_def_registry.h"

namespace npu_rope {

// Adds the attributes of specs/ggml_rope_acltensor.txt with its order and types, then n_offs of the current ggml, then
// strides of every tensor except freq_factors.
void add_rope_attributes(ops::OpDef* def);

// Indices of the attributes.
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
    kRopeAttributes,  // number of attributes
};

Check read_rope_attributes(const CannCall& call, const char* op, npu_rope_params* params, bool* forward);

// Rejects tensors without elements, which aclnn does not take. T: RopeTensors or RotaryTensors.
template <typename T>
Check no_elements(const T& t) {
    return bad_value(t.op, t.x_name[0], "have elements on an NPU", "shape " + shape_text(t.x[0]->shape, t.x[0]->ndim));
}

// `tensors` holds the call's operator, names and sides; the function reads its tensors from the context.
ge::graphStatus tile_rope(gert::TilingContext* context, RopeTensors tensors);

}  // namespace npu_rope
