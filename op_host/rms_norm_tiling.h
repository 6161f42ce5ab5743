// The tiling of rms_norm, add_rms_norm and rms_norm_backward: how the kernels op_kernel/common/rms_norm_kernel.h and
// rms_norm_backward_kernel.h cut one call among cores and UB. Pure: sizes, strides and the chip in; the kernel's struct
// and the launch out.
#pragma once

#include <cstdint>

#include "op_host/check.h"
#include "op_host/platform.h"
#include "op_host/rms_norm_check.h"
#include "op_host/rope_tiling.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {

// A call that the operator's rules have accepted; no size is 0.
struct RmsNormTilingInput {
    const char* op = "rms_norm";
    RmsNormShape shape = {};
    int32_t dtype = NPU_ROPE_FLOAT16;        // x's
    int32_t scale_dtype = NPU_ROPE_FLOAT16;  // and out's, or grad's
    bool adds = false;
    bool backward = false;
};

// What no kernel on this chip can: element and stash types it lacks, and in the backward a scale that does not have
// one element for each of a row, the same for all rows. soc is what the caller knows it by.
Check check_rms_norm_on_chip(const RmsNormTilingInput& in, const Platform& platform, const char* soc);

// Fills *data and *launch, or says what the NPU does not take.
Check rms_norm_tiling(const RmsNormTilingInput& in, const Platform& platform, RmsNormTilingData* data,
                      RopeLaunch* launch);

}  // namespace npu_rope
