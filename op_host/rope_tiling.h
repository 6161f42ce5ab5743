// Rope's tiling: how the kernel op_kernel/common/rope_kernel.h cuts one call among cores and UB, be its tables
// computed or given. Pure: sizes, strides and the chip in; the kernel's struct and the launch out.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"
#include "op_host/check.h"
#include "op_host/platform.h"
#include "op_host/rope_check.h"
#include "op_kernel/rms_norm_rope_tiling_data.h"
#include "op_kernel/rope_tiling_data.h"
#include "op_kernel/rotary_tiling_data.h"

namespace npu_rope {

// What is read of tables that a call gives. Strides in elements: batch, token; where position_ids name rows,
// whose strides are RopeShape's row_stride: -, row.
struct GivenTables {
    int32_t dtype = NPU_ROPE_FLOAT32;
    bool has_entry_a_lane = false;
    bool has_ids = false;
    int64_t rows = 0;  // where position_ids name them
    int64_t cos_stride[2] = {}, sin_stride[2] = {};
};

// How rms_norm_rope normalizes heads before they turn.
struct HeadNorm {
    double epsilon = 0;
    bool rounds = false;  // in between, as the two operators one after the other would
};

// A call whose arguments check_rope or check_rotary has accepted; no size is 0. Dimensions of size 1 may have
// any stride.
struct RopeTilingInput {
    const char* op = "rope";  // whose call it is, and what that calls x, for messages
    const char* x_name = "x";
    RopeShape shape;
    int32_t dtype = NPU_ROPE_FLOAT16;
    int32_t out_dtype = NPU_ROPE_FLOAT16;  // another one only where it scatters
    bool positions_int64 = false;
    bool has_factors = false;
    bool scatters = false;  // the last side's out is a cache, out_stride[1] the stride of its rows
    bool rows_int64 = false;
    bool forward = true;
    npu_rope_params params = {};
    GivenTables tables;  // of rotary_tiling alone, whose params say which lanes turn and nothing else
    HeadNorm norm;       // of rms_norm_rope_tiling alone

    bool scatters_side(int side) const { return scatters && side == shape.sides - 1; }
};

// A call that check_rope has accepted, of which it found this shape.
RopeTilingInput rope_tiling_input(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params,
                                  bool forward);

// What no kernel on this chip can: another angle policy than exact, element types it lacks. backend and soc
// are what the caller knows them by.
Check check_rope_on_chip(const RopeTensors& t, int32_t angle, const char* backend, const Platform& platform,
                         const char* soc);
Check check_dtype_on_chip(const char* op, const char* name, int32_t dtype, const Platform& platform, const char* soc);

struct RopeLaunch {
    uint32_t block_dim = 0;
    uint64_t tiling_key = 0;
    int64_t workspace_bytes = 0;  // of the kernel's own; the library's comes on top
};

// Fills *data and *launch, or says what the NPU does not take.
Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, RopeLaunch* launch);
Check rms_norm_rope_tiling(const RopeTilingInput& in, const Platform& platform, RmsNormRopeTilingData* data,
                           RopeLaunch* launch);
Check rotary_tiling(const RopeTilingInput& in, const Platform& platform, RotaryTilingData* data, RopeLaunch* launch);

}  // namespace npu_rope
