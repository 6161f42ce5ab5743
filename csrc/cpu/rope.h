// rope on the CPU. All arguments were checked by op_host/rope_check.h.
#pragma once

#include <cstdint>

#include "csrc/cpu/rope_angle.h"
#include "op_host/rope_check.h"

namespace npu_rope {

struct RopeCall {
    const void* x;
    void* out;
    const void* positions;
    bool positions_are_int64;
    int32_t dtype;  // npu_rope_dtype of x and out
    int32_t mode;
    int32_t n_dims, n_offs;
    bool forward;
    RopeShape shape;
    const RopeAngles* angles;
};

void rope_cpu(const RopeCall& call);

}  // namespace npu_rope
