// The tiling of qk_square_sums. It splits a call of op_kernel/norm/square_sums_kernel.h among cores and UB. It is a
// pure function of the sizes, the strides and the chip, and returns the tiling data and the launch.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/qkv_norm_rope_cache_check.h"
#include "op_host/platform.h"
#include "op_host/tiling_result.h"
#include "op_kernel/qk_square_sums_tiling_data.h"

namespace npu_rope {

// A call as its caller passes it. out may be NULL if out_may_be_null.
struct QkSquareSumsTensors {
    const npu_rope_tensor *q, *k, *out;
    Known known = Known::kValues;
    bool out_may_be_null = false;
};

// A call that the operator's rules have accepted. S, D and one of the numbers of heads are not 0.
struct QkSquareSumsTilingInput {
    int64_t S = 0, D = 0;
    int64_t N[2] = {};            // heads of q and k
    int64_t x_stride[2][2] = {};  // of q and k, by token and head, in elements
    int32_t dtype = NPU_ROPE_FLOAT16;
};

// Fills *data and *launch, or returns the error of an argument that the NPU does not support.
Check qk_square_sums_tiling(const QkSquareSumsTilingInput& in, const Platform& platform, QkSquareSumsTilingData* data,
                            KernelLaunch* launch);

// Checks a call by the rules of the operator and of the chip, and tiles it. If q and k have no elements, there is no
// launch, and the sums are 0.
Check check_and_tile_qk_square_sums(const QkSquareSumsTensors& t, const Platform& platform,
                                    TilingResult<QkSquareSumsTilingData>* tiled);

}  // namespace npu_rope
