// Check the arguments of rotary_mul, rotary_mul_qk and rotary_embedding by every rule, for all back ends.
#pragma once

#include <cstdint>

#include "csrc/core/rope_check.h"

namespace npu_rope {

struct RotaryTensors : RotatedTensors {
    const char* cos_name;
    const npu_rope_tensor* cos;
    const char* sin_name;
    const npu_rope_tensor* sin;
    const npu_rope_tensor* position_ids = nullptr;  // each token's row of the tables; only with ONNX and aclnn
    bool onnx = false;                              // rotary_embedding: ONNX's layouts, and one entry per pair
};

struct RotaryAttributes {
    bool interleaved;
    int64_t rotary_dim;  // 0: the whole head
    int64_t offset;
    int64_t num_heads;  // of rotary_embedding with x [B,S,hidden]
};

// The sizes of a call: those of RopeShape, and those of the tables. Strides in elements.
struct RotaryShape {
    RopeShape rope;                        // with position_ids: pos_stride holds their strides
    int64_t rotary_dim;                    // never 0
    bool entry_per_lane;                   // tables have an entry for each lane; otherwise, for each pair
    int64_t cos_stride[2], sin_stride[2];  // of tables: B, S; with position_ids: unused, row
};

RotaryTensors rotary_mul_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos, const npu_rope_tensor* sin,
                                 const npu_rope_tensor* out, const npu_rope_tensor* position_ids = nullptr);
RotaryTensors rotary_mul_qk_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* cos,
                                    const npu_rope_tensor* sin, const npu_rope_tensor* q_out,
                                    const npu_rope_tensor* k_out);
RotaryTensors rotary_embedding_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos_cache,
                                       const npu_rope_tensor* sin_cache, const npu_rope_tensor* position_ids,
                                       const npu_rope_tensor* y);

// Checks NULLs, attributes, shapes, dtypes, strides, overlap and, if t.known allows, the values of position_ids. Fills
// *shape.
Check check_rotary(const RotaryTensors& t, const RotaryAttributes& a, RotaryShape* shape);

}  // namespace npu_rope
