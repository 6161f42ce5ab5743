/* rms_norm_rope from a C program: correct values with and without a cache, errors, no writes on error or outside the
 * results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

enum { S = 3, NQ = 2, NK = 1, D = 4, ROWS = 5, Q = S * NQ * D, K = S * NK * D, CACHE = ROWS * NK * D, GUARD = 16 };
static const float kSentinel = 99.0f;
static const double kEpsilon = 0.5;

typedef struct {
    float q_data[Q], k_data[K], q_scale_data[D], k_scale_data[D];
    float q_out_data[GUARD + Q + GUARD], k_out_data[GUARD + K + GUARD], cache_data[GUARD + CACHE + GUARD];
    int32_t position_data[S], row_data[S];
    npu_rope_tensor q, k, q_scale, k_scale, positions, rows, q_out, k_out, cache;
    npu_rope_params params;
} call_t;

static void fill(float* data, int count, float value) {
    for (int i = 0; i < count; ++i) data[i] = value;
}

static void set_valid_call(call_t* c) {
    const int64_t q[3] = {S, NQ, D}, k[3] = {S, NK, D}, cache[3] = {ROWS, NK, D}, d[1] = {D}, s[1] = {S};
    for (int i = 0; i < Q; ++i) c->q_data[i] = (float)(i % 7) - 2.5f;
    for (int i = 0; i < K; ++i) c->k_data[i] = (float)(i % 5) - 1.0f;
    for (int i = 0; i < D; ++i) {
        c->q_scale_data[i] = 0.5f * (float)(i + 1);
        c->k_scale_data[i] = 2.0f - (float)i;
    }
    for (int i = 0; i < S; ++i) {
        c->position_data[i] = 3 * i;
        c->row_data[i] = i == 1 ? -1 : ROWS - 1 - i;
    }
    fill(c->q_out_data, 2 * GUARD + Q, kSentinel);
    fill(c->k_out_data, 2 * GUARD + K, kSentinel);
    fill(c->cache_data, 2 * GUARD + CACHE, kSentinel);
    c->q = view(c->q_data, NPU_ROPE_FLOAT32, 3, q);
    c->k = view(c->k_data, NPU_ROPE_FLOAT32, 3, k);
    c->q_scale = view(c->q_scale_data, NPU_ROPE_FLOAT32, 1, d);
    c->k_scale = view(c->k_scale_data, NPU_ROPE_FLOAT32, 1, d);
    c->positions = view(c->position_data, NPU_ROPE_INT32, 1, s);
    c->rows = view(c->row_data, NPU_ROPE_INT32, 1, s);
    c->q_out = view(c->q_out_data + GUARD, NPU_ROPE_FLOAT32, 3, q);
    c->k_out = view(c->k_out_data + GUARD, NPU_ROPE_FLOAT32, 3, k);
    c->cache = view(c->cache_data + GUARD, NPU_ROPE_FLOAT32, 3, cache);
    c->params = npu_rope_default_params(2, NPU_ROPE_MODE_NORMAL);
    c->params.n_offs = 2;
}

static npu_rope_status run(const call_t* c) {
    return npu_rope_rms_norm_rope(&c->q, &c->k, &c->q_scale, &c->k_scale, &c->positions, NULL, &c->params, kEpsilon, 0,
                                  NPU_ROPE_ANGLE_EXACT, &c->q_out, &c->k_out);
}

static npu_rope_status run_set_rows(const call_t* c) {
    return npu_rope_rms_norm_rope_set_rows(&c->q, &c->k, &c->q_scale, &c->k_scale, &c->positions, &c->rows, NULL,
                                           &c->params, kEpsilon, 0, NPU_ROPE_ANGLE_EXACT, &c->q_out, &c->cache);
}

static int untouched(const float* data, int count) {
    for (int i = 0; i < count; ++i)
        if (data[i] != kSentinel) return 0;
    return 1;
}

static int guards_unchanged(const float* data, int count) {
    return untouched(data, GUARD) && untouched(data + GUARD + count, GUARD);
}

/* Check a head: normalized, scaled, and the pair (2, 3) rotated by its position. */
static void check_head(const char* what, const float* x, const float* scale, int position, const float* got) {
    double sum = 0, y[D];
    for (int i = 0; i < D; ++i) sum += (double)x[i] * x[i];
    for (int i = 0; i < D; ++i) y[i] = x[i] / sqrt(sum / D + kEpsilon) * scale[i];
    double c = cos((double)position), s = sin((double)position), a = y[2], b = y[3];
    y[2] = a * c - b * s;
    y[3] = a * s + b * c;
    for (int i = 0; i < D; ++i)
        CHECK(fabs(got[i] - y[i]) <= 1e-6 * (1 + fabs(y[i])), "%s lane %d: %g, not %g", what, i, got[i], y[i]);
}

static void check_q(const call_t* c) {
    for (int t = 0; t < S; ++t)
        for (int n = 0; n < NQ; ++n) {
            int at = (t * NQ + n) * D;
            check_head("q", c->q_data + at, c->q_scale_data, c->position_data[t], c->q_out_data + GUARD + at);
        }
    CHECK(guards_unchanged(c->q_out_data, Q), "written outside q_out");
}

static void test_values(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    check_q(&c);
    for (int t = 0; t < S; ++t)
        check_head("k", c.k_data + t * D, c.k_scale_data, c.position_data[t], c.k_out_data + GUARD + t * D);
    CHECK(guards_unchanged(c.k_out_data, K), "written outside k_out");
}

static void test_rows(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(run_set_rows(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    check_q(&c); /* including the token without a row */
    for (int row = 0; row < ROWS; ++row) {
        int token = ROWS - 1 - row;
        const float* got = c.cache_data + GUARD + row * D;
        if (token >= S || token == 1)
            CHECK(untouched(got, D), "row %d was written", row);
        else
            check_head("cache", c.k_data + token * D, c.k_scale_data, c.position_data[token], got);
    }
    CHECK(guards_unchanged(c.cache_data, CACHE), "written outside the cache");
}

static void test_in_place(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(run(&c) == NPU_ROPE_OK, "not in place");
    c.q_out = c.q;
    c.k_out = c.k;
    CHECK(run(&c) == NPU_ROPE_OK, "in place");
    CHECK(!memcmp(c.q_data, c.q_out_data + GUARD, sizeof c.q_data), "in place q is another result");
    CHECK(!memcmp(c.k_data, c.k_out_data + GUARD, sizeof c.k_data), "in place k is another result");
}

static void check_refused(const call_t* c, npu_rope_status (*entry)(const call_t*), const char* message) {
    CHECK(entry(c) == NPU_ROPE_INVALID_VALUE, "%s", message);
    CHECK(!strcmp(npu_rope_last_error(), message), "%s, not %s", npu_rope_last_error(), message);
    CHECK(untouched(c->q_out_data, 2 * GUARD + Q), "q_out was written on error");
    CHECK(untouched(c->k_out_data, 2 * GUARD + K), "k_out was written on error");
    CHECK(untouched(c->cache_data, 2 * GUARD + CACHE), "the cache was written on error");
}

static void test_errors(void) {
    call_t c;
    set_valid_call(&c);
    c.q_scale.stride[0] = 2;
    check_refused(&c, run, "[rms_norm_rope] q_scale must have unit stride in its last dimension but got 2.");
    set_valid_call(&c);
    c.k_scale.shape[0] = D - 1;
    check_refused(&c, run, "[rms_norm_rope] k_scale must have shape [D] = [4] but got [3].");
    set_valid_call(&c);
    c.q_scale.data = NULL;
    check_refused(&c, run, "[rms_norm_rope] q_scale must have data but got NULL.");
    set_valid_call(&c);
    c.q_scale.ndim = 9;
    check_refused(&c, run, "[rms_norm_rope] q_scale must have shape [D] = [4] but got 9 dimensions.");
    set_valid_call(&c);
    c.row_data[2] = ROWS;
    check_refused(&c, run_set_rows, "[rms_norm_rope] rows must be -1 or a row of the cache's 5 but got 5.");
    set_valid_call(&c);
    c.row_data[2] = c.row_data[0];
    check_refused(&c, run_set_rows, "[rms_norm_rope] rows must differ from each other but got 4 twice.");
}

int main(void) {
    test_values();
    test_rows();
    test_in_place();
    test_errors();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
