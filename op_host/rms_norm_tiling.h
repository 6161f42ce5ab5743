// The tiling of rms_norm, add_rms_norm and rms_norm_backward. It splits a call of op_kernel/norm/rms_norm_kernel.h or
// rms_norm_backward_kernel.h among cores and UB. It is a pure function of the sizes, the strides and the chip, and
// returns the tiling data and the launch.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/rms_norm_check.h"
#include "op_host/platform.h"
#include "op_host/tiling_result.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {

// A call that the operator's rules have accepted; no size is 0.
struct RmsNormTilingInput {
    const char* op = "rms_norm";
    RmsNormShape shape = {};
    int32_t dtype = NPU_ROPE_FLOAT16;        // of x
    int32_t scale_dtype = NPU_ROPE_FLOAT16;  // of scale, and of out or grad
    bool adds = false;                       // add_rms_norm
    bool backward = false;                   // rms_norm_backward
    bool deterministic = false;              // rms_norm_backward: dscale does not depend on the order of the cores
};

// Returns the tiling's input for a call that check_rms_norm has accepted. shape: the result of this check.
inline RmsNormTilingInput rms_norm_tiling_input(const RmsNormTensors& t, const RmsNormShape& shape) {
    return {t.op, shape, t.x->dtype, t.scale->dtype, t.adds, t.backward};
}

// Checks that the kernels on this chip support the element types, the stash type and epsilon. rms_norm_backward also
// needs a scale that all rows share and that has an element for each element of a row.
Check check_rms_norm_on_chip(const RmsNormTilingInput& in, const Platform& platform);

// Fills *data and *launch, or returns the error of an argument that the NPU does not support.
Check rms_norm_tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data,
                      KernelLaunch* launch);

// Checks a call by the rules of the operator and of the chip, and tiles it. deterministic: see RmsNormTilingInput.
Check check_and_tile_rms_norm(const RmsNormTensors& t, const RmsNormAttributes& a, const Platform& platform,
                              TilingResult<RmsNormTilingData>* tiled, bool deterministic = false);

}  // namespace npu_rope
