// Check the arguments of rms_norm_rope for all back ends: by rope_qk's rules (rope_check.h), and by the rules of the
// scales and epsilon.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/rope_check.h"
#include "include/npu_rope.h"

namespace npu_rope {

// The tensors of a call as the caller passes them.
struct RmsNormRopeTensors {
    RopeTensors rope;                 // q, k and their outputs, of which the second may be a cache
    const npu_rope_tensor* scale[2];  // of q and of k: [D]
};

RmsNormRopeTensors rms_norm_rope_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                         const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                         const npu_rope_tensor* positions, const npu_rope_tensor* freq_factors,
                                         const npu_rope_tensor* q_out, const npu_rope_tensor* k_out);
// The keys, side 1, are stored into rows of a cache, like side 0 of rope_set_rows.
RmsNormRopeTensors rms_norm_rope_set_rows_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k,
                                                  const npu_rope_tensor* q_scale, const npu_rope_tensor* k_scale,
                                                  const npu_rope_tensor* positions, const npu_rope_tensor* rows,
                                                  const npu_rope_tensor* freq_factors, const npu_rope_tensor* q_out,
                                                  const npu_rope_tensor* cache);

// Checks everything except the frequencies that follow from the parameters. Fills *shape as check_rope does. Sides 0
// and 1 are q and k.
Check check_rms_norm_rope(const RmsNormRopeTensors& t, const npu_rope_params* params, double epsilon,
                          int32_t angle_policy, RopeShape* shape);

}  // namespace npu_rope
