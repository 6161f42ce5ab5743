// Check the arguments of qkv_norm_rope_cache and of qk_square_sums for all back ends.
#pragma once

#include <cstdint>

#include "csrc/core/check.h"
#include "csrc/core/rope_check.h"
#include "include/npu_rope.h"

namespace npu_rope {

// What the mean square of a norm covers.
enum class QkvNorm { kNone, kHead, kAllHeads };

// A side of a call: q, k or v. Strides in elements.
struct QkvSide {
    bool given = false;
    int64_t N = 0, D = 0;
    int64_t x_stride[2] = {};  // S, N
    int32_t out_dtype = 0;
    // Of a tensor: S, unused, N. Of a cache: block, place in the block, N.
    int64_t out_stride[3] = {};
    int64_t block_size = 1;  // of a cache: rows of a block
    int64_t cache_rows = 0;
    bool in_place = false;
    QkvNorm norm = QkvNorm::kNone;
    int64_t quant_stride[2] = {};  // of the factor and the offset of an int8 cache: N, D
};

// The sizes of a call. Strides in elements.
struct QkvShape {
    RopeShape rope;  // of q and k: S, D, and the strides of positions
    QkvSide side[3];
    int64_t pairs = 0;
    bool entry_per_lane = false;  // of tables: an entry for each lane; otherwise, for each pair
    int64_t table_rows = 0, cos_stride = 0, sin_stride = 0;
    int64_t slot_stride = 0;
    int64_t square_sum_stride = 0;
    bool empty() const {
        return rope.S == 0 || (side[0].N * side[0].D == 0 && side[1].N * side[1].D == 0 && side[2].N * side[2].D == 0);
    }
};

constexpr int kMaxRanks = 65536;

struct QkvAttributes {
    double epsilon, scale_offset;
    int64_t ranks;
    int32_t angle_policy;
};

// A call as its caller passes it. Outputs may be NULL if out_may_be_null.
struct QkvTensors {
    npu_rope_qkv_inputs in;
    npu_rope_qkv_outputs out;
    Known known = Known::kValues;
    bool out_may_be_null = false;
};

// Checks everything except the frequencies that follow from the parameters. Fills *shape.
Check check_qkv_norm_rope_cache(const QkvTensors& t, const npu_rope_params* params, const QkvAttributes& attributes,
                                QkvShape* shape);

// Checks a call of qk_square_sums. out may be NULL if out_may_be_null.
Check check_qk_square_sums(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* out, Known known,
                           bool out_may_be_null);

}  // namespace npu_rope
