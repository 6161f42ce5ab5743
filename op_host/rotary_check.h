// Every rule of the arguments of rotary_mul, rotary_mul_qk and rotary_embedding, for all native paths.
// npu_rope/rotary_checks.py states the same rules with the same words for the Python paths; a test
// compares the two.
#pragma once

#include <cstdint>

#include "op_host/rope_check.h"

namespace npu_rope {

// One call's tensors, as its caller gave them, and the names its messages give them.
struct RotaryTensors {
    const char* op;
    int sides;
    const char* x_name[2];
    const npu_rope_tensor* x[2];
    const char* out_name[2];
    const npu_rope_tensor* out[2];
    const char* cos_name;
    const npu_rope_tensor* cos;
    const char* sin_name;
    const npu_rope_tensor* sin;
    bool onnx;                            // rotary_embedding: ONNX's layouts, half-width tables
    const npu_rope_tensor* position_ids;  // of that, and of rotary_mul's launch: which rows of the tables, or NULL
    Known known = Known::kValues;
};

struct RotaryAttributes {
    bool interleaved;
    int64_t rotary_dim;  // 0: the whole head
    int64_t offset;
    int64_t num_heads;  // of rotary_embedding's [B,S,hidden]
};

// The sizes of a call besides RopeShape's. Strides in elements.
struct RotaryShape {
    RopeShape rows;                        // with position_ids: pos_stride is theirs
    int64_t rotary_dim;                    // never 0
    bool full;                             // tables have an entry for each lane
    int64_t cos_stride[2], sin_stride[2];  // of tables: B, S; with position_ids: -, row
};

RotaryTensors rotary_mul_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos, const npu_rope_tensor* sin,
                                 const npu_rope_tensor* out);
RotaryTensors rotary_mul_qk_tensors(const npu_rope_tensor* q, const npu_rope_tensor* k, const npu_rope_tensor* cos,
                                    const npu_rope_tensor* sin, const npu_rope_tensor* q_out,
                                    const npu_rope_tensor* k_out);
RotaryTensors rotary_embedding_tensors(const npu_rope_tensor* x, const npu_rope_tensor* cos_cache,
                                       const npu_rope_tensor* sin_cache, const npu_rope_tensor* position_ids,
                                       const npu_rope_tensor* y);

// NULLs, attributes, shapes, dtypes, strides, overlap, the values of position_ids. Fills *shape.
Check check_rotary(const RotaryTensors& t, const RotaryAttributes& a, RotaryShape* shape);

}  // namespace npu_rope
