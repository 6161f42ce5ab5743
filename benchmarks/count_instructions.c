/* Call one operator once, for count_instructions.py. Arguments: operator, type (a npu_rope_dtype), tokens, heads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/npu_rope.h"

enum { D = 128, MOST_HEADS = 32 }; /* of all tokens together */

/* Memory of ones. Its size, and so the number of instructions, is the same for all sizes. */
static npu_rope_tensor tensor(int32_t dtype, int64_t tokens, int64_t heads) {
    npu_rope_tensor t = {NULL, dtype, 3, {tokens, heads, D}, {heads * D, D, 1}};
    t.data = malloc(MOST_HEADS * D * sizeof(float));
    if (!t.data) exit(3);
    for (int64_t i = 0; i < MOST_HEADS * D; ++i) {
        if (dtype == NPU_ROPE_FLOAT32)
            ((float*)t.data)[i] = 1.0f;
        else
            ((uint16_t*)t.data)[i] = dtype == NPU_ROPE_FLOAT16 ? 0x3c00 : 0x3f80;
    }
    return t;
}

/* Copies head by head, as the rotation visits them. */
static npu_rope_status copy(npu_rope_tensor x, npu_rope_tensor out) {
    const size_t bytes = (x.dtype == NPU_ROPE_FLOAT32 ? 4 : 2) * D;
    for (int64_t h = 0; h < x.shape[0] * x.shape[1]; ++h)
        memcpy((char*)out.data + (size_t)h * bytes, (char*)x.data + (size_t)h * bytes, bytes);
    return NPU_ROPE_OK;
}

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const char* op = argv[1];
    const int32_t dtype = atoi(argv[2]);
    const int64_t tokens = atoll(argv[3]), heads = atoll(argv[4]);
    if (tokens < 1 || heads < 1 || tokens > MOST_HEADS / heads) return 2;
    npu_rope_tensor x = tensor(dtype, tokens, heads), out = tensor(dtype, tokens, heads);
    npu_rope_tensor k = tensor(dtype, tokens, 1), k_out = tensor(dtype, tokens, 1), scale = tensor(dtype, 1, 1);
    scale.ndim = 1, scale.shape[0] = D, scale.stride[0] = 1;
    int32_t indices[MOST_HEADS], rows[MOST_HEADS];
    for (int32_t i = 0; i < MOST_HEADS; ++i) {
        indices[i] = 1000 + 7 * i; /* every token's tables are computed anew */
        rows[i] = i;
    }
    const npu_rope_tensor positions = {indices, NPU_ROPE_INT32, 1, {tokens}, {1}};
    npu_rope_params params = {.n_dims = D,
                              .mode = strcmp(op, "rope normal") ? NPU_ROPE_MODE_NEOX : NPU_ROPE_MODE_NORMAL,
                              .freq_base = 10000,
                              .freq_scale = 1,
                              .attn_factor = 1,
                              .beta_fast = 32,
                              .beta_slow = 1};
    npu_rope_status status = NPU_ROPE_INTERNAL_ERROR;
    if (!strcmp(op, "copy")) status = copy(x, out);
    if (!strcmp(op, "rope neox") || !strcmp(op, "rope normal"))
        status = npu_rope_rope(&x, &positions, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &out);
    if (!strcmp(op, "rope_qk"))
        status = npu_rope_rope_qk(&x, &k, &positions, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &out, &k_out);
    if (!strcmp(op, "rotary_mul")) {
        npu_rope_tensor cos = tensor(NPU_ROPE_FLOAT32, tokens, 1);
        cos.ndim = 2, cos.shape[1] = cos.stride[0] = D / 2, cos.stride[1] = 1;
        status = npu_rope_rotary_mul(&x, &cos, &cos, 0, 0, 0, 1, &out);
    }
    if (!strcmp(op, "qkv_norm_rope_cache")) {
        npu_rope_tensor v = tensor(dtype, tokens, 1), v_out = tensor(dtype, tokens, 1);
        const npu_rope_tensor slots = {rows, NPU_ROPE_INT32, 1, {tokens}, {1}};
        const npu_rope_qkv_inputs inputs = {
            .q = &x, .k = &k, .v = &v, .q_scale = &scale, .k_scale = &scale, .positions = &positions, .slots = &slots};
        const npu_rope_qkv_outputs outputs = {.q_out = &out, .k_out = &k_out, .v_out = &v_out};
        status = npu_rope_qkv_norm_rope_cache(&inputs, &params, 1e-5, 0, 1, NPU_ROPE_ANGLE_EXACT, &outputs);
    }
    if (!strcmp(op, "rms_norm")) status = npu_rope_rms_norm(&x, &scale, -1, 1e-5, 1, &out);
    if (!strcmp(op, "rms_norm_rope"))
        status = npu_rope_rms_norm_rope(&x, &k, &scale, &scale, &positions, NULL, &params, 1e-5, 0,
                                        NPU_ROPE_ANGLE_EXACT, &out, &k_out);
    if (status != NPU_ROPE_OK) fprintf(stderr, "%s\n", npu_rope_last_error());
    return status != NPU_ROPE_OK;
}
