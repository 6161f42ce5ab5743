// The tiling of rope. It splits a call of op_kernel/rotation/rope_kernel.h, with computed or given tables, among cores
// and UB. It is a pure function of the sizes, the strides and the chip, and returns the tiling data and the launch.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/qkv_norm_rope_cache_check.h"
#include "csrc/core/rope_check.h"
#include "include/npu_rope.h"
#include "op_host/platform.h"
#include "op_host/tiling_result.h"
#include "op_kernel/qkv_norm_rope_cache_tiling_data.h"
#include "op_kernel/rms_norm_rope_tiling_data.h"
#include "op_kernel/rope_tiling_data.h"
#include "op_kernel/rotary_tiling_data.h"

namespace npu_rope {

// Given tables. The strides are those of batch and token, in elements. With position_ids, the first stride is unused
// and the second one is that of the tables' rows.
struct GivenTables {
    int32_t dtype = NPU_ROPE_FLOAT32;
    bool entry_per_lane = false;
    bool has_ids = false;
    bool ids_int64 = false;
    int64_t rows = 0;  // with position_ids: rows of the tables
    int64_t cos_stride[2] = {}, sin_stride[2] = {}, id_stride[2] = {};
};

// The attributes of rms_norm_rope's norm.
struct HeadNormAttributes {
    double epsilon = 0;
    bool intermediate_rounding = false;  // round as a call of rms_norm and a call of rope do
};

// The parts of a call of qkv_norm_rope_cache that other calls do not have.
struct QkvTilingInput {
    const QkvTensors* tensors = nullptr;
    const QkvShape* shape = nullptr;
    QkvAttributes attributes = {};
};

// A call whose arguments check_rope, check_rms_norm_rope, check_rotary or check_qkv_norm_rope_cache has accepted. Sides
// may have no heads. Dimensions of size 1 may have any stride.
struct RopeTilingInput {
    const char* op = "rope";  // for messages: the operator, and its name of x
    const char* x_name = "x";
    RopeShape shape;
    int32_t dtype = NPU_ROPE_FLOAT16;
    int32_t out_dtype = NPU_ROPE_FLOAT16;  // differs from dtype only in a scattering call
    bool positions_int64 = false;
    bool has_factors = false;
    bool scatters = false;  // some sides' outs are caches: the last one, or k and v; out_stride[1] is that of rows
    bool rows_int64 = false;
    bool forward = true;
    npu_rope_params params = {};
    GivenTables tables;                   // rotary_tiling only; there params define only the window and the pairs
    HeadNormAttributes norm;              // rms_norm_rope_tiling only
    const QkvTilingInput* qkv = nullptr;  // qkv_tiling only

    bool scatters_side(int side) const { return scatters && (qkv ? side > 0 : side == shape.sides - 1); }
    int64_t head_size(int side) const { return qkv ? qkv->shape->side[side].D : shape.D; }
};

// Returns the tiling's input for a call that check_rope has accepted. shape: the result of this check.
RopeTilingInput rope_tiling_input(const RopeTensors& t, const RopeShape& shape, const npu_rope_params& params,
                                  bool forward);

// Checks that the kernels support the angle policy, which must be exact.
Check check_device_angle(const char* op, int32_t angle);

// Fills *data and *launch, or returns the error of an argument that the NPU does not support. For a call without
// elements *launch stays unchanged.
Check rope_tiling(const RopeTilingInput& in, const Platform& platform, RopeTilingData* data, KernelLaunch* launch);
Check rms_norm_rope_tiling(const RopeTilingInput& in, const Platform& platform, RmsNormRopeTilingData* data,
                           KernelLaunch* launch);
Check rotary_tiling(const RopeTilingInput& in, const Platform& platform, RotaryTilingData* data, KernelLaunch* launch);
Check qkv_tiling(const RopeTilingInput& in, const Platform& platform, QkvNormRopeCacheTilingData* data,
                 KernelLaunch* launch);

// Checks a call of rope, rope_qk or rope_set_rows by the rules of the operator and of the chip, and tiles it.
Check check_and_tile_rope(const RopeTensors& t, const npu_rope_params& params, int32_t angle, bool forward,
                          const Platform& platform, TilingResult<RopeTilingData>* tiled);

}  // namespace npu_rope
