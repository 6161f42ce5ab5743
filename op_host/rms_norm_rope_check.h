// Every rule of rms_norm_rope's arguments, for all native paths, on top of rope_qk's (rope_check.h).
// npu_rope/rms_norm_rope_checks.py states the same rules with the same words for the Python paths; a test compares
// the two.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/rope_check.h"

namespace npu_rope {

// One call's tensors, as its caller gave them.
struct RmsNormRopeTensors {
    RopeTensors rope;                 // q and k, and where they go: two outs, or an out and a cache
    const npu_rope_tensor* scale[2];  // of q and of k: [D]
};

RmsNormRopeTensors rms_norm_rope_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                         const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                         const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                         const npu_rope_tensor* q_out, const npu_rope_tensor* k_out);
// k goes to rows of a cache: side 1 of the shape is as rope_set_rows' only one.
RmsNormRopeTensors rms_norm_rope_set_rows_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                  const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                                  const npu_rope_tensor* positions, const npu_rope_tensor* rows,
                                                  const npu_rope_tensor* freq_factors, const npu_rope_tensor* q_out,
                                                  const npu_rope_tensor* cache);

// Everything but the parameters' consequences. Fills *shape as check_rope does: sides 0 and 1 are q and k.
Check check_rms_norm_rope(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon, int32_t angle,
                          RopeShape* shape);

}  // namespace npu_rope
