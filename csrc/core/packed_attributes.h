// The attributes of operators as npu_rope/native.py packs them into bytes, for the packed schemas of torch and for
// calls from Python.
#pragma once

#include <cstdint>

#include "include/npu_rope.h"

namespace npu_rope {

// rope, rope_qk and rope_set_rows
struct PackedRope {
    npu_rope_params params;
    int32_t forward;
    int32_t angle;
};

// rotary_mul and rotary_mul_qk
struct PackedTables {
    int32_t interleaved;
    int64_t rotary_dim, offset;
    int32_t forward;
};

// rms_norm and add_rms_norm
struct PackedNorm {
    int64_t axis;
    double epsilon;
    int64_t stash_type;
};

// rms_norm_rope
struct PackedNormRope {
    npu_rope_params params;
    double epsilon;
    int32_t intermediate_rounding;
    int32_t angle;
};

}  // namespace npu_rope
