// Runs qkv_norm_rope_cache and qk_square_sums on the CPU.
#pragma once

#include "csrc/core/qkv_norm_rope_cache_check.h"

namespace npu_rope {

// Checks the call, then computes it. Writes nothing if the check fails.
Check run_qkv_norm_rope_cache_cpu(const QkvTensors& t, const npu_rope_params* params, const QkvAttributes& attributes);
Check run_qk_square_sums_cpu(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* out);

}  // namespace npu_rope
