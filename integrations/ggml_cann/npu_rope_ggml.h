/* Launch one ggml rope node as one call of aclnnNpuRope, for ggml's CANN backend. docs/ggml_cann.md describes how to
 * connect it. The interface is plain C and throws no exceptions. */
#ifndef NPU_ROPE_GGML_H
#define NPU_ROPE_GGML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_tensor;

enum npu_rope_ggml_status {
    NPU_ROPE_GGML_OK = 0,
    NPU_ROPE_GGML_UNSUPPORTED = 1, /* another backend must compute the node; nothing was launched */
    NPU_ROPE_GGML_FAILED = 2       /* CANN or an allocation failed; nothing was launched, or the stream has failed */
};

/* Return device memory of `bytes` bytes, or NULL on failure. The memory must stay valid until the stream has finished
 * the call. `context` is the argument of npu_rope_ggml_compute. */
typedef void* (*npu_rope_ggml_allocate)(void* context, uint64_t bytes);

/* Return NPU_ROPE_GGML_OK if the node can be computed, otherwise another npu_rope_ggml_status. supports_op can call
 * this function, because it reads no data. The node is a GGML_OP_ROPE or GGML_OP_ROPE_BACK with its sources. Pass
 * `has_bfloat16` 0 on Ascend310P, otherwise 1. `why` receives the reason as a string of at most `why_bytes` bytes; it
 * may be NULL. */
int npu_rope_ggml_supports(const struct ggml_tensor* node, int has_bfloat16, char* why, size_t why_bytes);

/* Launch the node in the stream (an aclrtStream). Return an npu_rope_ggml_status. The node's data and its sources' data
 * are in the device's memory. */
int npu_rope_ggml_compute(const struct ggml_tensor* node, int has_bfloat16, void* stream,
                          npu_rope_ggml_allocate allocate, void* context, char* why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
