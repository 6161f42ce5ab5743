/* Run nodes of a ggml graph with npu_rope's operators, for ggml's CANN backend. docs/ggml_cann.md describes how to
 * connect it. The interface is plain C and throws no exceptions. */
#ifndef NPU_ROPE_GGML_H
#define NPU_ROPE_GGML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_tensor;

enum npu_rope_ggml_status {
    NPU_ROPE_GGML_OK = 0,
    NPU_ROPE_GGML_UNSUPPORTED = 1, /* another backend must compute the node; nothing was launched */
    NPU_ROPE_GGML_FAILED = 2       /* CANN or an allocation failed; nothing was launched, or the stream has failed */
};

/* Return device memory of `bytes` bytes, or NULL on failure. The memory must stay valid until the stream has finished
 * the call. `context` is allocate_context of npu_rope_ggml_target. */
typedef void* (*npu_rope_ggml_allocate)(void* context, uint64_t bytes);

/* Where nodes run. */
struct npu_rope_ggml_target {
    int has_bfloat16;                /* 0 on Ascend310P, otherwise 1 */
    void* stream;                    /* an aclrtStream */
    const void* one;                 /* 32 bytes of device memory that begin with the float32 number 1, the scale of a
                                        norm without a multiplication */
    npu_rope_ggml_allocate allocate; /* for an operator's workspace */
    void* allocate_context;
};

/* Return NPU_ROPE_GGML_OK if the node can be computed, otherwise another npu_rope_ggml_status. supports_op can call
 * this function, because it reads no data. The node is a GGML_OP_ROPE, GGML_OP_ROPE_BACK or GGML_OP_RMS_NORM with its
 * sources. `why` receives the reason as a string of at most `why_bytes` bytes; it may be NULL. */
int npu_rope_ggml_supports(const struct ggml_tensor* node, int has_bfloat16, char* why, size_t why_bytes);

/* Launch the node in the stream. Return an npu_rope_ggml_status. The node's data and its sources' data are in the
 * device's memory. */
int npu_rope_ggml_compute(const struct ggml_tensor* node, const struct npu_rope_ggml_target* target, char* why,
                          size_t why_bytes);

/* Launch the graph's node `index` and nodes after it as one call, if they have one of these forms:
 *     ADD, RMS_NORM, MUL
 *     ADD, RMS_NORM
 *     RMS_NORM, MUL, ROPE
 *     RMS_NORM, MUL
 *     ROPE, VIEW or RESHAPE, SET_ROWS
 * Return the number of nodes that the call computes, or -1 if CANN or an allocation failed. Return 0 if the nodes have
 * none of the forms or break a rule of their form, which `why` names: nothing was launched, and the node must run
 * alone. */
int npu_rope_ggml_compute_fused(struct ggml_cgraph* graph, int index, const struct npu_rope_ggml_target* target,
                                char* why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
