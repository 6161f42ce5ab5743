// Check the arguments of rope, rope_qk and rope_set_rows by every rule, for all back ends.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/core/tensor_rules.h"
#include "include/npu_rope.h"

namespace npu_rope {

// A tensor whose heads are rotated, and its output. Strides in elements.
struct RopeSide {
    int64_t N = 0;
    int64_t x_stride[3] = {};    // B, S, N
    int64_t out_stride[3] = {};  // B, S, N; for a cache: unused, row, N
    bool in_place = false;
};

// The sizes of a call; a [S,N,D] tensor has B = 1. Strides in elements.
struct RopeShape {
    int64_t B = 1, S = 0, D = 0;
    int sides = 1;  // 2: queries and keys; 3: also values, which are not rotated
    RopeSide side[3];
    int64_t pos_stride[2] = {};  // B, S
    // Offset in positions of the plane of each axis; 0 in the modes without sections.
    int64_t axis_offset[4] = {};
    int64_t row_stride[2] = {};  // of rows: B, S
    int64_t cache_rows = 0;
    int64_t heads() const { return side[0].N + side[1].N + side[2].N; }
    bool empty() const { return B == 0 || S == 0 || heads() == 0 || D == 0; }
};

// Sets the sizes of the shape, and N and the strides of one side, from a [B,S,N,D] or [S,N,D] tensor.
inline void fill_sizes(RopeShape& shape, const npu_rope_tensor& x, int side) {
    const bool is_batched = x.ndim == 4;
    shape.B = is_batched ? x.shape[0] : 1;
    shape.S = x.shape[is_batched + 0];
    shape.D = x.shape[is_batched + 2];
    shape.side[side].N = x.shape[is_batched + 1];
    fill_strides(x, shape.side[side].x_stride);
}

struct RopeTensors : RotatedTensors {
    const npu_rope_tensor* positions;
    const npu_rope_tensor* freq_factors;    // may be NULL
    bool scatters = false;                  // the last output is a cache
    const npu_rope_tensor* rows = nullptr;  // the row of the cache for each token
    bool cache_may_be_narrower = true;      // a cache for float32 heads may be float16 or bfloat16
    // Whether the output of this side is the cache. Only the last side can have one.
    bool out_is_cache(int side) const { return scatters && side == sides - 1; }
};

RopeTensors rope_tensors(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                         const npu_rope_tensor* freq_factors, const npu_rope_tensor* out);
RopeTensors rope_qk_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* positions,
                            const npu_rope_tensor* freq_factors, const npu_rope_tensor* q_out,
                            const npu_rope_tensor* k_out);
RopeTensors rope_set_rows_tensors(const npu_rope_tensor* x, const npu_rope_tensor* positions,
                                  const npu_rope_tensor* rows, const npu_rope_tensor* freq_factors,
                                  const npu_rope_tensor* cache);

// The largest frequency, in radians per position. Above it, angles of distant positions are inaccurate.
constexpr double kMaxFrequency = 1e9;

Check check_rope_params(const npu_rope_params& p);

// Checks NULLs, parameters, shapes, dtypes, strides, overlap and the values of positions, rows and freq_factors, as far
// as t.known allows, and fills *shape. It does not check frequencies: check_rope_frequencies() does.
Check check_rope(const RopeTensors& t, const npu_rope_params* p, int32_t angle_policy, RopeShape* shape);

// frequencies: radians per position, divided by freq_factors.
Check check_rope_frequencies(const std::vector<Quad>& frequencies);

const char* mode_name(int32_t mode);  // NULL: not a mode

}  // namespace npu_rope
