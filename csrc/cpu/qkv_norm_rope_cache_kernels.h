// The kernels of qkv_norm_rope_cache for one instruction set. qkv_norm_rope_cache_kernels.cpp is compiled once per
// instruction set, and each compile fills one QkvKernels.
#pragma once

#include <cstdint>

#include "csrc/cpu/isa.h"

namespace npu_rope {

// A head that is widened to float32, and normalized if it has a scale: y = x * inverse * scale + bias.
struct WidenHeadJob {
    const void* x;
    const float *scale, *bias;  // NULL: without this step
    float* y;
    int64_t count;
    float inverse;  // of the root mean square; unused without a scale
};

// A head that is rounded to int8: y = x * factor + offset, rounded half to even and limited to int8's range. NaN
// becomes 0.
struct QuantizeJob {
    const float* x;
    const float *factor, *offset;  // offset may be NULL
    int64_t stride;                // of factor and offset: 1, or 0 for one value
    int8_t* y;
    int64_t count;
};

// Heads that are copied. Each has `bytes` bytes; steps are in bytes. x and y do not overlap.
struct CopyJob {
    const void* x;
    void* y;
    int64_t count, bytes, x_step, y_step;
    int64_t prefetch_distance;  // as NormRopeJob's (rms_norm_rope_kernels.h)
    bool stream;                // store past the caches; HeadsJob (rope_kernels.h) gives the conditions
};

struct QkvKernels {
    void (*widen[3])(const WidenHeadJob&);  // by x's npu_rope_dtype
    void (*quantize)(const QuantizeJob&);
    void (*copy)(const CopyJob&);
};

NPU_ROPE_DECLARE_KERNELS(QkvKernels, qkv_norm_rope_cache_kernels)

}  // namespace npu_rope
