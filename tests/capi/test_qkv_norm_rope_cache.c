/* qkv_norm_rope_cache and qk_square_sums from a C program: correct values in new memory and in caches of two layouts,
 * int8, errors, no writes on error or outside the rows. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

enum { S = 3, N = 2, D = 4, HEADS = 3 * N, BLOCKS = 2, BLOCK = 2, CACHE = BLOCKS * BLOCK * N * D };
static const float kSentinel = 99.0f;
static const double kEpsilon = 0.5;

typedef struct {
    float qkv_data[S * HEADS * D], scale_data[D], out_data[S * N * D], sums_data[S * 2];
    float k_cache_data[CACHE], factor_data[1];
    int8_t v_cache_data[CACHE];
    int32_t position_data[S];
    int64_t slot_data[S];
    npu_rope_tensor q, k, v, scale, positions, slots, q_out, k_out, v_out, k_cache, v_cache, factor, sums;
    npu_rope_qkv_inputs inputs;
    npu_rope_qkv_outputs outputs;
    npu_rope_params params;
} call_t;

/* Heads [first, first + N) of the fused tensor. */
static npu_rope_tensor heads(call_t* c, int first) {
    const int64_t shape[3] = {S, N, D};
    npu_rope_tensor t = view(c->qkv_data + first * D, NPU_ROPE_FLOAT32, 3, shape);
    t.stride[0] = HEADS * D;
    return t;
}

static void set_valid_call(call_t* c) {
    const int64_t s[1] = {S}, d[1] = {D}, one[1] = {1}, out[3] = {S, N, D}, sums[2] = {S, 2};
    const int64_t cache[4] = {BLOCKS, BLOCK, N, D};
    for (int i = 0; i < S * HEADS * D; ++i) c->qkv_data[i] = (float)(i % 11) - 4.5f;
    for (int i = 0; i < D; ++i) c->scale_data[i] = 0.5f * (float)i;
    for (int i = 0; i < S; ++i) c->position_data[i] = 2 * i;
    for (int i = 0; i < S * N * D; ++i) c->out_data[i] = kSentinel;
    for (int i = 0; i < CACHE; ++i) {
        c->k_cache_data[i] = kSentinel;
        c->v_cache_data[i] = 99;
    }
    c->factor_data[0] = 10.0f;
    c->slot_data[0] = 3;
    c->slot_data[1] = -1;
    c->slot_data[2] = 0;
    c->q = heads(c, 0);
    c->k = heads(c, N);
    c->v = heads(c, 2 * N);
    c->scale = view(c->scale_data, NPU_ROPE_FLOAT32, 1, d);
    c->positions = view(c->position_data, NPU_ROPE_INT32, 1, s);
    c->slots = view(c->slot_data, NPU_ROPE_INT64, 1, s);
    c->factor = view(c->factor_data, NPU_ROPE_FLOAT32, 1, one);
    c->q_out = view(c->out_data, NPU_ROPE_FLOAT32, 3, out);
    c->sums = view(c->sums_data, NPU_ROPE_FLOAT32, 2, sums);
    c->k_cache = view(c->k_cache_data, NPU_ROPE_FLOAT32, 4, cache);
    c->k_cache.stride[1] = D; /* in memory [BLOCKS, N, BLOCK, D] */
    c->k_cache.stride[2] = BLOCK * D;
    c->v_cache = view(c->v_cache_data, NPU_ROPE_INT8, 4, cache);
    memset(&c->inputs, 0, sizeof c->inputs);
    c->inputs.q = &c->q;
    c->inputs.k = &c->k;
    c->inputs.v = &c->v;
    c->inputs.q_scale = c->inputs.k_scale = &c->scale;
    c->inputs.positions = &c->positions;
    c->inputs.slots = &c->slots;
    c->inputs.v_quant_scale = &c->factor;
    c->outputs.q_out = &c->q_out;
    c->outputs.k_out = &c->k_cache;
    c->outputs.v_out = &c->v_cache;
    c->params = npu_rope_default_params(2, NPU_ROPE_MODE_NORMAL);
}

static npu_rope_status run(const call_t* c) {
    return npu_rope_qkv_norm_rope_cache(&c->inputs, &c->params, kEpsilon, 1.0, 1, NPU_ROPE_ANGLE_EXACT, &c->outputs);
}

/* Check a head of q or k: normalized, scaled by scale + 1, and the pair (0, 1) rotated by its position. */
static void check_head(const char* what, const call_t* c, int head, int token, const float* got) {
    const float* x = c->qkv_data + (token * HEADS + head) * D;
    double sum = 0, y[D];
    for (int i = 0; i < D; ++i) sum += (double)x[i] * x[i];
    for (int i = 0; i < D; ++i) y[i] = x[i] / sqrt(sum / D + kEpsilon) * (c->scale_data[i] + 1.0);
    double cosine = cos((double)c->position_data[token]), sine = sin((double)c->position_data[token]), a = y[0];
    y[0] = a * cosine - y[1] * sine;
    y[1] = a * sine + y[1] * cosine;
    for (int i = 0; i < D; ++i)
        CHECK(fabs(got[i] - y[i]) <= 1e-6 * (1 + fabs(y[i])), "%s lane %d: %g, not %g", what, i, got[i], y[i]);
}

static void test_caches(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int t = 0; t < S; ++t)
        for (int n = 0; n < N; ++n) check_head("q", &c, n, t, c.out_data + (t * N + n) * D);
    for (int row = 0; row < BLOCKS * BLOCK; ++row)
        for (int n = 0; n < N; ++n) {
            const int token = row == 3 ? 0 : row == 0 ? 2 : -1;
            const float* k = c.k_cache_data + (row / BLOCK * N + n) * BLOCK * D + row % BLOCK * D;
            const int8_t* v = c.v_cache_data + (row * N + n) * D;
            if (token >= 0) check_head("k_cache", &c, N + n, token, k);
            for (int i = 0; i < D; ++i) {
                const float expected = token < 0 ? 99 : c.qkv_data[(token * HEADS + 2 * N + n) * D + i] * 10.0f;
                CHECK(v[i] == (int8_t)expected, "v_cache: %d, not %g", v[i], expected);
                CHECK(token >= 0 || k[i] == kSentinel, "row %d was written", row);
            }
        }
}

static void test_sums_and_new_memory(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_qk_square_sums(&c.q, &c.k, &c.sums) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int t = 0; t < S; ++t)
        for (int side = 0; side < 2; ++side) {
            double sum = 0;
            for (int i = 0; i < N * D; ++i) sum += pow(c.qkv_data[(t * HEADS + side * N) * D + i], 2);
            CHECK(c.sums_data[2 * t + side] == (float)sum, "%g, not %g", c.sums_data[2 * t + side], sum);
        }
    c.inputs.slots = c.inputs.v_quant_scale = NULL;
    c.outputs.k_out = &c.k; /* in place */
    c.outputs.v_out = &c.v;
    float before[S * HEADS * D];
    memcpy(before, c.qkv_data, sizeof before);
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < S * HEADS * D; ++i) {
        const int is_k = i / D % HEADS / N == 1;
        CHECK(is_k || before[i] == c.qkv_data[i], "element %d of q or v was written", i);
    }
}

/* Each token has a row of the tables for each of four axes. The rows of time are those of position_data. */
static void test_rows_of_four_axes(void) {
    enum { ROWS = 5 };
    const int64_t planes[2] = {4, S}, tables[2] = {ROWS, 1};
    int32_t rows[4 * S] = {0, 2, 4, 1, 1, 1, 3, 3, 3, 4, 0, 1};
    float cos_data[ROWS], sin_data[ROWS];
    call_t c;
    set_valid_call(&c);
    for (int i = 0; i < ROWS; ++i) {
        cos_data[i] = (float)cos(i);
        sin_data[i] = (float)sin(i);
    }
    const npu_rope_tensor cosines = view(cos_data, NPU_ROPE_FLOAT32, 2, tables);
    const npu_rope_tensor sines = view(sin_data, NPU_ROPE_FLOAT32, 2, tables);
    c.positions = view(rows, NPU_ROPE_INT32, 2, planes);
    c.inputs.cos = &cosines;
    c.inputs.sin = &sines;
    c.params.mode = NPU_ROPE_MODE_MROPE;
    c.params.sections[0] = 1;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int t = 0; t < S; ++t)
        for (int n = 0; n < N; ++n) check_head("q", &c, n, t, c.out_data + (t * N + n) * D);
}

static void check_refused(const call_t* c, const char* message) {
    CHECK(run(c) == NPU_ROPE_INVALID_VALUE, "%s", message);
    CHECK(!strcmp(npu_rope_last_error(), message), "%s, not %s", npu_rope_last_error(), message);
    for (int i = 0; i < CACHE; ++i)
        CHECK(c->k_cache_data[i] == kSentinel && c->v_cache_data[i] == 99, "a cache was written on error");
    CHECK(c->out_data[0] == kSentinel, "q_out was written on error");
}

static void test_errors(void) {
    call_t c;
    set_valid_call(&c);
    c.inputs.v_quant_scale = NULL;
    check_refused(&c, "[qkv_norm_rope_cache] v_quant_scale must be given for an int8 v_cache but got None.");
    set_valid_call(&c);
    c.inputs.v = NULL;
    c.outputs.v_out = NULL;
    check_refused(&c, "[qkv_norm_rope_cache] v_quant_scale must not be given without v but got a tensor.");
    c.inputs.slots = NULL;
    check_refused(&c, "[qkv_norm_rope_cache] v_quant_scale must not be given without slots but got a tensor.");
    c.inputs.v_quant_scale = NULL;
    c.inputs.k_quant_offset = &c.factor;
    check_refused(&c, "[qkv_norm_rope_cache] k_quant_offset must not be given without slots but got a tensor.");
    set_valid_call(&c);
    c.slot_data[2] = 4;
    check_refused(&c, "[qkv_norm_rope_cache] slots must be -1 or a row of the cache's 4 but got 4.");
    set_valid_call(&c);
    c.slot_data[2] = 3;
    check_refused(&c, "[qkv_norm_rope_cache] slots must differ from each other but got 3 twice.");
    set_valid_call(&c);
    const int64_t all_heads[1] = {N * D};
    c.scale = view(c.qkv_data, NPU_ROPE_FLOAT32, 1, all_heads);
    c.inputs.square_sums = &c.sums;
    for (int i = 0; i < S * 2; ++i) c.sums_data[i] = i == 3 ? -1.0f : 1.0f;
    check_refused(&c, "[qkv_norm_rope_cache] square_sums must not be negative but got -1 at index [1, 1].");
    set_valid_call(&c);
    c.inputs.q = NULL;
    check_refused(&c, "[qkv_norm_rope_cache] q must be a tensor but got NULL.");
    set_valid_call(&c);
    c.outputs.v_out = NULL;
    check_refused(&c, "[qkv_norm_rope_cache] v_cache must be a tensor but got NULL.");

    for (int of_sin = 0; of_sin < 2; ++of_sin) { /* the elements of a row of a table are adjacent */
        const int64_t pairs[2] = {S, D / 2};
        float entries[2 * S * D] = {0};
        npu_rope_tensor table = view(entries, NPU_ROPE_FLOAT32, 2, pairs), gaps = table;
        gaps.stride[0] = 2 * D;
        gaps.stride[1] = 2;
        set_valid_call(&c);
        c.inputs.positions = NULL;
        c.inputs.cos = of_sin ? &table : &gaps;
        c.inputs.sin = of_sin ? &gaps : &table;
        check_refused(&c, of_sin ? "[qkv_norm_rope_cache] sin must have unit stride in its last dimension but got 2."
                                 : "[qkv_norm_rope_cache] cos must have unit stride in its last dimension but got 2.");
    }
    /* Tables with a row for each token, so that there are no positions. */
    const int64_t table[2] = {S, 1};
    set_valid_call(&c);
    const npu_rope_tensor factors = view(c.sums_data, NPU_ROPE_FLOAT32, 2, table);
    for (int i = 0; i < S; ++i) c.sums_data[i] = 1.0f;
    c.inputs.positions = NULL;
    c.inputs.cos = c.inputs.sin = &factors;
    for (int side = 0; side < 2; ++side) {
        npu_rope_tensor* x = side ? &c.k : &c.q;
        char* data = x->data;
        x->data = NULL;
        check_refused(&c, side ? "[qkv_norm_rope_cache] k must have data but got NULL."
                               : "[qkv_norm_rope_cache] q must have data but got NULL.");
        x->data = data + 1;
        check_refused(&c, side ? "[qkv_norm_rope_cache] k must be aligned to its 4-byte elements but got an address "
                                 "that is not."
                               : "[qkv_norm_rope_cache] q must be aligned to its 4-byte elements but got an address "
                                 "that is not.");
        x->data = data;
    }
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    set_valid_call(&c);
    CHECK(npu_rope_qkv_norm_rope_cache(NULL, &c.params, 0, 0, 1, NPU_ROPE_ANGLE_EXACT, &c.outputs) ==
              NPU_ROPE_INVALID_VALUE,
          "no inputs");
}

int main(void) {
    test_caches();
    test_sums_and_new_memory();
    test_rows_of_four_axes();
    test_errors();
    if (failures) return 1;
    puts("qkv_norm_rope_cache: ok");
    return 0;
}
