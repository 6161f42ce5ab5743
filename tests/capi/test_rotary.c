/* rotary_mul, rotary_mul_qk and rotary_embedding from a C program: correct values, errors, no writes
 * on error or outside the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

enum { S = 2, N = 3, D = 6, COUNT = S * N * D, GUARD = 16 };
static const float kSentinel = 99.0f;

/* x, two tables with one entry per lane, and guarded memory for a result. */
typedef struct {
    float x_data[COUNT], cos_data[S * D], sin_data[S * D], out_data[GUARD + COUNT + GUARD];
    npu_rope_tensor x, cos, sin, out;
} call_t;

static void set_valid_call(call_t* c) {
    const int64_t shape[3] = {S, N, D}, table[2] = {S, D};
    for (int i = 0; i < COUNT; ++i) c->x_data[i] = (float)(i % 7 + 1);
    for (int i = 0; i < S * D; ++i) {
        c->cos_data[i] = 0.25f * (float)(i + 1);
        c->sin_data[i] = 0.5f * (float)(5 - i);
    }
    for (int i = 0; i < 2 * GUARD + COUNT; ++i) c->out_data[i] = kSentinel;
    c->x = view(c->x_data, NPU_ROPE_FLOAT32, 3, shape);
    c->cos = view(c->cos_data, NPU_ROPE_FLOAT32, 2, table);
    c->sin = view(c->sin_data, NPU_ROPE_FLOAT32, 2, table);
    c->out = view(c->out_data + GUARD, NPU_ROPE_FLOAT32, 3, shape);
}

static int guards_unchanged(const call_t* c) {
    for (int i = 0; i < GUARD; ++i)
        if (c->out_data[i] != kSentinel || c->out_data[GUARD + COUNT + i] != kSentinel) return 0;
    return 1;
}

static int untouched(const call_t* c) {
    for (int i = 0; i < 2 * GUARD + COUNT; ++i)
        if (c->out_data[i] != kSentinel) return 0;
    return 1;
}

/* y = x*cos + rotate(x)*sin of lane i; all numbers here are exact in float. */
static float expected(const call_t* c, int token, int head, int i, int interleaved) {
    const float* x = c->x_data + (token * N + head) * D;
    int first = interleaved ? i % 2 == 0 : i < D / 2;
    int partner = interleaved ? i ^ 1 : (i + D / 2) % D;
    return x[i] * c->cos_data[token * D + i] + (first ? -x[partner] : x[partner]) * c->sin_data[token * D + i];
}

static void test_values(void) {
    for (int interleaved = 0; interleaved < 2; ++interleaved) {
        call_t c;
        set_valid_call(&c);
        npu_rope_status status = npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, interleaved, 0, 0, 1, &c.out);
        CHECK(status == NPU_ROPE_OK, "%s", npu_rope_last_error());
        for (int i = 0; i < COUNT; ++i) {
            float reference = expected(&c, i / (N * D), i / D % N, i % D, interleaved);
            CHECK(c.out_data[GUARD + i] == reference, "lane %d: %g, not %g", i, c.out_data[GUARD + i], reference);
        }
        CHECK(guards_unchanged(&c), "written outside the result");
    }
}

static void test_backward_is_the_transpose(void) {
    call_t c;
    set_valid_call(&c);
    double forward = 0, backward = 0;
    float y[COUNT];
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_OK, "forward");
    memcpy(y, c.out_data + GUARD, sizeof y);
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 0, &c.out) == NPU_ROPE_OK, "backward");
    for (int i = 0; i < COUNT; ++i) {
        forward += (double)c.x_data[i] * y[i];
        backward += (double)c.x_data[i] * c.out_data[GUARD + i];
    }
    CHECK(fabs(forward - backward) < 1e-9, "x.Rx = %g, x.R'x = %g", forward, backward);
}

static void test_queries_and_keys(void) {
    call_t q, k;
    set_valid_call(&q);
    set_valid_call(&k);
    k.x.shape[1] = k.out.shape[1] = 1; /* only the first head */
    k.out.stride[0] = D;
    npu_rope_status status = npu_rope_rotary_mul_qk(&q.x, &k.x, &q.cos, &q.sin, 0, 0, 0, 1, &q.out, &k.out);
    CHECK(status == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < S * D; ++i) {
        float reference = expected(&q, i / D, 0, i % D, 0);
        CHECK(k.out_data[GUARD + i] == reference, "k %d: %g, not %g", i, k.out_data[GUARD + i], reference);
    }
    for (int i = 0; i < COUNT; ++i) {
        float reference = expected(&q, i / (N * D), i / D % N, i % D, 0);
        CHECK(q.out_data[GUARD + i] == reference, "q %d: %g, not %g", i, q.out_data[GUARD + i], reference);
    }
    CHECK(k.out_data[GUARD + S * D] == kSentinel, "written behind k");
    CHECK(guards_unchanged(&q) && guards_unchanged(&k), "written outside the results");
}

static void test_in_place(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 1, 0, 0, 1, &c.out) == NPU_ROPE_OK, "not in place");
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 1, 0, 0, 1, &c.x) == NPU_ROPE_OK, "in place");
    CHECK(!memcmp(c.x_data, c.out_data + GUARD, sizeof c.x_data), "in place gives another result");
}

/* Check lane i of y = rotary_embedding(x), where the tables have D / 2 entries in a row. */
static void check_rotated(const call_t* c, int i, int row) {
    int lane = i % D, pair = lane % (D / 2);
    const float* head = c->x_data + i - lane;
    float cosine = c->cos_data[row * (D / 2) + pair], sine = c->sin_data[row * (D / 2) + pair];
    float reference = lane < D / 2 ? head[pair] * cosine - head[pair + D / 2] * sine
                                   : head[pair] * sine + head[pair + D / 2] * cosine;
    CHECK(c->out_data[GUARD + i] == reference, "lane %d: %g, not %g", i, c->out_data[GUARD + i], reference);
}

static void test_embedding(void) {
    call_t c;
    int64_t ids[S] = {1, 0};
    const int64_t flat[3] = {1, S, N * D}, cache[2] = {2, D / 2}, tokens[2] = {1, S};
    set_valid_call(&c);
    npu_rope_tensor x = view(c.x_data, NPU_ROPE_FLOAT32, 3, flat),
                    y = view(c.out_data + GUARD, NPU_ROPE_FLOAT32, 3, flat);
    npu_rope_tensor cos = view(c.cos_data, NPU_ROPE_FLOAT32, 2, cache),
                    sin = view(c.sin_data, NPU_ROPE_FLOAT32, 2, cache);
    npu_rope_tensor position_ids = view(ids, NPU_ROPE_INT64, 2, tokens);
    npu_rope_status status = npu_rope_rotary_embedding(&x, &cos, &sin, &position_ids, 0, N, 0, 1, &y);
    CHECK(status == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < COUNT; ++i) check_rotated(&c, i, (int)ids[i / (N * D)]);
    set_valid_call(&c);
    ids[1] = 2;
    status = npu_rope_rotary_embedding(&x, &cos, &sin, &position_ids, 0, N, 0, 1, &y);
    CHECK(status == NPU_ROPE_INVALID_VALUE, "status %d", status);
    CHECK(!strcmp(npu_rope_last_error(), "[rotary_embedding] position_ids must be rows 0 to 1 of cos_cache but got 2."),
          "%s", npu_rope_last_error());
    CHECK(untouched(&c), "written on error");
}

static void test_embedding_of_heads_of_tokens(void) {
    call_t c;
    const int64_t shape[4] = {1, N, S, D}, tables[3] = {1, S, D / 2};
    set_valid_call(&c);
    npu_rope_tensor x = view(c.x_data, NPU_ROPE_FLOAT32, 4, shape),
                    y = view(c.out_data + GUARD, NPU_ROPE_FLOAT32, 4, shape);
    npu_rope_tensor cos = view(c.cos_data, NPU_ROPE_FLOAT32, 3, tables),
                    sin = view(c.sin_data, NPU_ROPE_FLOAT32, 3, tables);
    npu_rope_status status = npu_rope_rotary_embedding(&x, &cos, &sin, NULL, 0, 0, 0, 1, &y);
    CHECK(status == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < COUNT; ++i) check_rotated(&c, i, i / D % S);
    CHECK(guards_unchanged(&c), "written outside the result");
}

static void test_errors(void) {
    call_t c;
    set_valid_call(&c);
    c.sin.dtype = NPU_ROPE_INT32;
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_INVALID_TYPE, "a type");
    set_valid_call(&c);
    c.cos.ndim = 9;
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_INVALID_VALUE, "dimensions");
    set_valid_call(&c);
    c.x.shape[0] = INT64_MAX;
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_INVALID_VALUE, "a huge size");
    set_valid_call(&c);
    c.cos.data = NULL;
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_INVALID_VALUE, "no data");
    set_valid_call(&c);
    c.out.data = c.cos_data;
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, 0, 1, &c.out) == NPU_ROPE_INVALID_VALUE, "shared memory");
    set_valid_call(&c);
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, INT64_MAX - 1, 0, 1, &c.out) == NPU_ROPE_INVALID_VALUE,
          "a width");
    CHECK(npu_rope_rotary_mul(&c.x, &c.cos, &c.sin, 0, 0, INT64_MIN, 1, &c.out) == NPU_ROPE_INVALID_VALUE, "an offset");
    CHECK(untouched(&c), "written on error");
}

int main(void) {
    test_values();
    test_backward_is_the_transpose();
    test_queries_and_keys();
    test_in_place();
    test_embedding();
    test_embedding_of_heads_of_tokens();
    test_errors();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
