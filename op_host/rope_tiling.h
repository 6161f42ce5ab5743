// Rope's tiling: how the kernel op_kernel/npu_rope.cpp cuts one call among cores and UB. Pure: sizes,
// strides and the chip in; the kernel's struct and the launch out.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/platform.h"
#include "op_kernel/rope_tiling_data.h"

namespace npu_rope {

// A call whose arguments check_rope has accepted; no size is 0. Strides count elements; x and out
// have unit stride in D; dimensions of size 1 may have any stride.
struct RopeTilingInput {
    int64_t B = 1, S = 1, N = 1, D = 0;
    int64_t x_stride[3] = {};    // B, S, N
    int64_t out_stride[3] = {};  // B, S, N
    int64_t pos_stride[2] = {};  // B, S
    int32_t dtype = NPU_ROPE_FLOAT16;
    bool positions_int64 = false;
    bool has_factors = false;
    bool in_place = false;  // changes nothing: a tile is read before it is written, by one core
    bool forward = true;
    npu_rope_params params = {};
};

struct RopeLaunch {
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    int64_t workspace_bytes = 0;  // of the kernel's own; the library's comes on top
};

// Fills *data and *launch, or says what the NPU does not take.
Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, RopeLaunch* launch);

}  // namespace npu_rope
