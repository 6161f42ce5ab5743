// Shared parts of the CANN definitions of rope, rope_qk and rope_set_rows: types, attributes and the tiling function.
// rms_norm_rope uses the types and the attributes.
#pragma once

#include "csrc/core/rope_check.h"
#include "op_host/cann.h"

namespace npu_rope {

// Types of x and the outputs, and of positions, by column. CANN compiles the kernel for each column.
inline Types rope_types() {
    return {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};
}
inline Types position_types() {
    return {ge::DT_INT32, ge::DT_INT32, ge::DT_INT32, ge::DT_INT64, ge::DT_INT64, ge::DT_INT64};
}

// Lists the attributes of specs/ggml_rope_acltensor.txt with its order and types, then n_offs of the current ggml, then
// the strides. A: AttributeAdder or CannCall.
template <typename A>
void visit_rope_attributes(A* a, npu_rope_params* params, bool* forward) {
    *params = npu_rope_params{};
    params->freq_base = 10000.0;
    params->freq_scale = params->attn_factor = params->beta_slow = 1.0;
    params->beta_fast = 32.0;
    a->required("n_dims", &params->n_dims);
    a->required("mode", &params->mode);
    a->optional("n_ctx_orig", &params->n_ctx_orig);
    a->optional("freq_base", &params->freq_base);
    a->optional("freq_scale", &params->freq_scale);
    a->optional("ext_factor", &params->ext_factor);
    a->optional("attn_factor", &params->attn_factor);
    a->optional("beta_fast", &params->beta_fast);
    a->optional("beta_slow", &params->beta_slow);
    a->optional("sections", &params->sections);
    a->optional("forward", forward);
    a->optional("n_offs", &params->n_offs);
    a->strides();
}

void declare_rope_attributes(AttributeAdder* adder);

// Tiles a call. make_tensors: converts the tensors of the definition to those of the call.
Check tile_rope(gert::TilingContext* context, const char* op, const Parameters& parameters,
                RopeTensors (*make_tensors)(const Tensors&));

}  // namespace npu_rope
