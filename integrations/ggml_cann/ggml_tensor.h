/* The parts of ggml that the adapter uses: the fields of a tensor, as in ggml.h since version 0.9, and four functions.
 * They follow ggml's headers; nothing is copied from them. If ggml.h is included before this file, its definitions
 * are used. */
#ifndef NPU_ROPE_GGML_TENSOR_H
#define NPU_ROPE_GGML_TENSOR_H

#ifndef GGML_MAX_DIMS

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ggml_backend_buffer;

struct ggml_tensor {
    int type; /* enum ggml_type */
    struct ggml_backend_buffer* buffer;
    int64_t ne[4]; /* elements, the fastest dimension first */
    size_t nb[4];  /* strides in bytes */
    int op;        /* enum ggml_op, whose numbers differ between versions: ggml_op_name() */
    int32_t op_params[16];
    int32_t flags;
    struct ggml_tensor* src[10];
    struct ggml_tensor* view_src;
    size_t view_offs;
    void* data; /* in a backend's memory */
    char name[64];
    void* extra;
    char padding[8];
};

struct ggml_cgraph;

#ifdef __cplusplus
extern "C" {
#endif
const char* ggml_op_name(int op);
int ggml_graph_n_nodes(struct ggml_cgraph* graph);
struct ggml_tensor* ggml_graph_node(struct ggml_cgraph* graph, int index);
/* Whether no node outside node_indices uses a result that is not in outputs. Declared in ggml-impl.h; libggml-base
 * exports it. */
bool ggml_can_fuse_subgraph_ext(const struct ggml_cgraph* graph, const int* node_indices, int count, const int* ops,
                                const int* outputs, int num_outputs);
#ifdef __cplusplus
}
#endif

#else

#include "ggml-impl.h" /* for ggml_can_fuse_subgraph_ext */

#endif
#endif
