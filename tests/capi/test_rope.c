/* rope from a C program: correct values, errors, no writes on error; the library's own functions, a thread pool. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

/* ---- a correct call, in which a test changes one argument --------------------------------------------- */

enum { S = 2, N = 1, D = 6, COUNT = S * N * D, GUARD = 16 };
static const float kSentinel = 99.0f;

typedef struct {
    float x_data[COUNT], out_data[GUARD + COUNT + GUARD], factor_data[2];
    int32_t position_data[S];
    npu_rope_tensor x, positions, factors, out;
    npu_rope_params params;
    int32_t angle;
} call_t;

static void set_valid_call(call_t* c) {
    const int64_t shape[3] = {S, N, D}, tokens[1] = {S}, pairs[1] = {2};
    memset(c, 0, sizeof *c);
    for (int i = 0; i < COUNT; ++i) c->x_data[i] = (float)(i + 1);
    for (int i = 0; i < 2 * GUARD + COUNT; ++i) c->out_data[i] = kSentinel;
    c->position_data[0] = 0;
    c->position_data[1] = 2;
    c->factor_data[0] = c->factor_data[1] = 1.0f;
    c->x = view(c->x_data, NPU_ROPE_FLOAT32, 3, shape);
    c->out = view(c->out_data + GUARD, NPU_ROPE_FLOAT32, 3, shape);
    c->positions = view(c->position_data, NPU_ROPE_INT32, 1, tokens);
    c->factors = view(c->factor_data, NPU_ROPE_FLOAT32, 1, pairs);
    c->params = npu_rope_default_params(4, NPU_ROPE_MODE_NORMAL);
}

static npu_rope_status run(call_t* c) {
    return npu_rope_rope(&c->x, &c->positions, &c->factors, &c->params, 1, c->angle, &c->out);
}

static int written(const call_t* c) {
    for (int i = 0; i < 2 * GUARD + COUNT; ++i)
        if (c->out_data[i] != kSentinel) return 1;
    for (int i = 0; i < COUNT; ++i)
        if (c->x_data[i] != (float)(i + 1)) return 1;
    return 0;
}

static void check_refused(const char* what, call_t* c, npu_rope_status status, const char* text) {
    npu_rope_status got = run(c);
    CHECK(got == status, "%s: status %d, expected %d", what, got, status);
    CHECK(strcmp(npu_rope_last_error(), text) == 0, "%s: message \"%s\"\n  expected \"%s\"", what,
          npu_rope_last_error(), text);
    CHECK(!written(c), "%s: something was written", what);
}

/* ---- values -------------------------------------------------------------------------------- */

/* cos and sin of 2 and of 0.02 = 2 * 10000^(-2/4), from printed tables. */
static const double kCos[2] = {-0.41614683654714239, 0.99980000666657778};
static const double kSin[2] = {0.90929742682568170, 0.01999866669333308};

static int near(float got, double expected, double a, double b) {
    return fabs(got - expected) <= ldexp(1, -22) * (fabs(a) + fabs(b)); /* cos and sin in float32, and roundings */
}

static void check_pairs(const call_t* c, const float* y, const int pairs[2][2], double sign, const char* what) {
    const float* x = c->x_data + D;
    for (int i = 0; i < 2; ++i) {
        double a = x[pairs[i][0]], b = x[pairs[i][1]], s = sign * kSin[i];
        CHECK(near(y[pairs[i][0]], a * kCos[i] - b * s, a, b), "%s, pair %d: %g", what, i, y[pairs[i][0]]);
        CHECK(near(y[pairs[i][1]], a * s + b * kCos[i], a, b), "%s, pair %d: %g", what, i, y[pairs[i][1]]);
    }
}

static void test_values(void) {
    static const int normal[2][2] = {{0, 1}, {2, 3}}, neox[2][2] = {{0, 2}, {1, 3}}, shifted[2][2] = {{2, 3}, {4, 5}};
    call_t c;
    set_valid_call(&c);
    float* out = c.out_data + GUARD;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    CHECK(memcmp(out, c.x_data, D * sizeof(float)) == 0, "position 0 must not change x");
    check_pairs(&c, out + D, normal, 1, "normal");
    CHECK(out[D + 4] == 11.0f && out[D + 5] == 12.0f, "lanes outside the window must be copied");
    CHECK(out[-1] == kSentinel && out[COUNT] == kSentinel, "memory outside out was written");

    set_valid_call(&c);
    c.params.mode = NPU_ROPE_MODE_NEOX;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    check_pairs(&c, out + D, neox, 1, "neox");

    set_valid_call(&c);
    c.params.n_offs = 2;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    check_pairs(&c, out + D, shifted, 1, "n_offs 2");

    set_valid_call(&c);
    CHECK(npu_rope_rope(&c.x, &c.positions, NULL, &c.params, 0, NPU_ROPE_ANGLE_EXACT, &c.out) == NPU_ROPE_OK, "%s",
          npu_rope_last_error());
    check_pairs(&c, out + D, normal, -1, "backward, no factors");
}

/* All pairs belong to the height, whose positions are those of the other tests: x is rotated as in mode neox. */
static void test_sections(void) {
    static const int neox[2][2] = {{0, 2}, {1, 3}};
    static int32_t planes[4 * S] = {5, 7, 0, 2, 9, 4, 8, 3};
    static const int64_t flat[1] = {4 * S};
    call_t c;
    set_valid_call(&c);
    c.positions = view(planes, NPU_ROPE_INT32, 1, flat);
    c.params.mode = NPU_ROPE_MODE_MROPE;
    c.params.sections[1] = 2;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    CHECK(memcmp(c.out_data + GUARD, c.x_data, D * sizeof(float)) == 0, "position 0 must not change x");
    check_pairs(&c, c.out_data + GUARD + D, neox, 1, "the height's positions");
}

/* Strides of dimensions of size 1 and of empty tensors have no meaning: the library must not read them. */
static void test_unused_strides(void) {
    call_t c;
    set_valid_call(&c);
    c.x.stride[1] = INT64_MAX, c.out.stride[1] = INT64_MIN;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    CHECK(c.out_data[GUARD] == 1.0f && c.out_data[GUARD + D + 4] == 11.0f, "wrong rows");
    set_valid_call(&c);
    c.x.shape[0] = c.out.shape[0] = c.positions.shape[0] = 0;
    c.x.stride[2] = c.out.stride[2] = INT64_MAX;
    c.x.data = c.out.data = c.positions.data = NULL;
    CHECK(run(&c) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    CHECK(!written(&c), "something was written");
}

static void test_in_place(void) {
    call_t c, apart;
    set_valid_call(&apart);
    CHECK(run(&apart) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    set_valid_call(&c);
    CHECK(npu_rope_rope(&c.x, &c.positions, NULL, &c.params, 1, NPU_ROPE_ANGLE_EXACT, &c.x) == NPU_ROPE_OK, "%s",
          npu_rope_last_error());
    CHECK(memcmp(c.x_data, apart.out_data + GUARD, sizeof c.x_data) == 0, "in place and apart must agree");
}

static void test_other_types(void) {
    static const int64_t shape[4] = {1, 1, 1, 2}, tokens[1] = {1};
    double x64[2] = {1.0, 0.0}, y64[2];
    uint16_t x16[2] = {0x3c00, 0}, y16[2], xb[2] = {0x3f80, 0}, yb[2]; /* 1.0, 0.0 */
    int64_t position = 2;
    npu_rope_tensor p = view(&position, NPU_ROPE_INT64, 1, tokens), x, y;
    npu_rope_params params = npu_rope_default_params(2, NPU_ROPE_MODE_NEOX);
    x = view(x64, NPU_ROPE_FLOAT64, 4, shape), y = view(y64, NPU_ROPE_FLOAT64, 4, shape);
    CHECK(npu_rope_rope(&x, &p, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &y) == NPU_ROPE_OK, "float64");
    CHECK(fabs(y64[0] - kCos[0]) < 4 * DBL_EPSILON && fabs(y64[1] - kSin[0]) < 4 * DBL_EPSILON, "%.17g %.17g", y64[0],
          y64[1]);
    x = view(x16, NPU_ROPE_FLOAT16, 4, shape), y = view(y16, NPU_ROPE_FLOAT16, 4, shape);
    CHECK(npu_rope_rope(&x, &p, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &y) == NPU_ROPE_OK, "float16");
    CHECK(y16[0] == 0xb6a9 && y16[1] == 0x3b46, "%x %x", y16[0], y16[1]); /* -0.41626, 0.90918 */
    x = view(xb, NPU_ROPE_BFLOAT16, 4, shape), y = view(yb, NPU_ROPE_BFLOAT16, 4, shape);
    CHECK(npu_rope_rope(&x, &p, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &y) == NPU_ROPE_OK, "bfloat16");
    CHECK(yb[0] == 0xbed5 && yb[1] == 0x3f69, "%x %x", yb[0], yb[1]); /* -0.416, 0.910 */
}

/* ---- errors -------------------------------------------------------------------------------- */

#define BAD(change, status, text)                 \
    do {                                          \
        call_t c;                                 \
        set_valid_call(&c);                       \
        change;                                   \
        check_refused(#change, &c, status, text); \
    } while (0)
#define VALUE NPU_ROPE_INVALID_VALUE
#define TYPE NPU_ROPE_INVALID_TYPE

static void test_attribute_errors(void) {
    BAD(c.params.n_dims = 3, VALUE, "[rope] n_dims must be a positive even number but got 3.");
    BAD(c.params.n_dims = 0, VALUE, "[rope] n_dims must be a positive even number but got 0.");
    BAD(c.params.n_dims = 8, VALUE, "[rope] n_dims must be at most the head size 6 but got 8.");
    BAD(c.params.n_offs = 1, VALUE, "[rope] n_offs must be an even number >= 0 but got 1.");
    BAD(c.params.n_offs = 4, VALUE, "[rope] n_offs + n_dims must be at most the head size 6 but got 8.");
    BAD(c.params.mode = 5, VALUE,
        "[rope] mode must be one of normal (0), neox (2), mrope (8), vision (24), imrope (40) but got 5.");
    BAD(c.params.mode = NPU_ROPE_MODE_MROPE, VALUE,
        "[rope] sections must name time, height or width in mode mrope but got [0, 0, 0, 0].");
    BAD(c.params.freq_base = 0, VALUE, "[rope] freq_base must be positive and finite but got 0.");
    BAD(c.params.freq_base = -NAN, VALUE, "[rope] freq_base must be positive and finite but got nan.");
    BAD(c.params.freq_scale = -1, VALUE, "[rope] freq_scale must be positive and finite but got -1.");
    BAD(c.params.ext_factor = INFINITY, VALUE, "[rope] ext_factor must be finite but got inf.");
    BAD(c.params.attn_factor = NAN, VALUE, "[rope] attn_factor must be finite but got nan.");
    BAD(c.params.n_ctx_orig = -1, VALUE, "[rope] n_ctx_orig must be >= 0 but got -1.");
    BAD(c.params.ext_factor = 1, VALUE, "[rope] n_ctx_orig must be positive when ext_factor is not 0 but got 0.");
    BAD((c.params.ext_factor = 1, c.params.n_ctx_orig = 9, c.params.beta_fast = 0), VALUE,
        "[rope] beta_fast must be positive and finite when ext_factor is not 0 but got 0.");
    BAD((c.params.ext_factor = 1, c.params.n_ctx_orig = 9, c.params.beta_slow = -2), VALUE,
        "[rope] beta_slow must be positive and finite when ext_factor is not 0 but got -2.");
    BAD(c.params.sections[2] = 7, VALUE, "[rope] sections must be [0, 0, 0, 0] in mode normal but got [0, 0, 7, 0].");
    BAD(c.params.freq_scale = 2e9, VALUE,
        "[rope] frequencies must be at most 1e+09 radians per position but got 2e+09 for pair 0.");
    BAD(c.params.freq_scale = 1e9 + 0.5, VALUE,
        "[rope] frequencies must be at most 1e+09 radians per position but got 1e+09 for pair 0.");
    call_t fastest;
    set_valid_call(&fastest);
    fastest.params.freq_scale = 1e9;
    CHECK(run(&fastest) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    BAD(c.angle = 3, VALUE, "[rope] angle must be exact (0), f32 (1) or ggml (2) but got 3.");
}

static void test_input_errors(void) {
    int64_t wide[2] = {0, (int64_t)1 << 31};
    char text[120];
    BAD(c.x.dtype = NPU_ROPE_INT32, TYPE, "[rope] x must be float32, float16, bfloat16 or float64 but got int32.");
    BAD(c.x.dtype = 17, TYPE, "[rope] x must be float32, float16, bfloat16 or float64 but got an unknown dtype.");
    BAD(c.x.ndim = 2, VALUE, "[rope] x must have shape [B,S,N,D] or [S,N,D] but got [2, 1].");
    BAD(c.x.ndim = 5, VALUE, "[rope] x must have shape [B,S,N,D] or [S,N,D] but got 5 dimensions.");
    BAD(c.x.shape[1] = -1, VALUE, "[rope] x must have sizes >= 0 but got [2, -1, 6].");
    BAD((c.x.shape[0] = c.x.shape[1] = (int64_t)1 << 40), VALUE,
        "[rope] x must have fewer than 2^63 bytes but got shape [1099511627776, 1099511627776, 6].");
    BAD(c.x.stride[0] = INT64_MAX / 2, VALUE,
        "[rope] x must extend over fewer than 2^63 bytes but got strides [4611686018427387903, 6, 1].");
    BAD(c.x.stride[0] = (INT64_MAX - 100) / 4, VALUE,
        "[rope] x must have addresses of at most 63 bits but got strides [2305843009213693926, 6, 1].");
    /* x's last element begins at the last address of 63 bits that is a multiple of 4. */
    BAD((c.x.stride[0] = (INT64_MAX - 3 - 20 - (int64_t)(intptr_t)c.x_data) / 4,
         snprintf(text, sizeof text,
                  "[rope] x must have addresses of at most 63 bits but got strides [%" PRId64 ", 6, 1].",
                  c.x.stride[0])),
        VALUE, text);
    BAD(c.x.data = NULL, VALUE, "[rope] x must have data but got NULL.");
    BAD(c.x.data = (char*)c.x.data + 2, VALUE,
        "[rope] x must be aligned to its 4-byte elements but got an address that is not.");
    BAD(c.x.stride[2] = 2, VALUE, "[rope] x must have unit stride in its last dimension but got 2.");
    BAD(c.positions.shape[0] = 3, VALUE, "[rope] positions must have shape [S] = [2] but got [3].");
    BAD(c.positions.dtype = NPU_ROPE_FLOAT32, TYPE, "[rope] positions must be int32 or int64 but got float32.");
    BAD(c.positions.data = NULL, VALUE, "[rope] positions must have data but got NULL.");
    BAD((c.positions.data = wide, c.positions.dtype = NPU_ROPE_INT64), VALUE,
        "[rope] positions must be in the int32 range but got 2147483648.");
    BAD(c.factors.shape[0] = 1, VALUE,
        "[rope] freq_factors must have one dimension of at least n_dims/2 = 2 elements but got shape [1].");
    BAD(c.factors.dtype = NPU_ROPE_FLOAT64, TYPE, "[rope] freq_factors must be float32 but got float64.");
    BAD(c.factor_data[1] = 0, VALUE, "[rope] freq_factors must be positive and finite but got 0 at index 1.");
    BAD(c.factor_data[0] = NAN, VALUE, "[rope] freq_factors must be positive and finite but got nan at index 0.");
}

static void test_output_errors(void) {
    BAD(c.out.shape[2] = 4, VALUE, "[rope] out must have x's shape [2, 1, 6] but got [2, 1, 4].");
    BAD(c.out.dtype = NPU_ROPE_FLOAT16, TYPE, "[rope] out must have x's dtype float32 but got float16.");
    BAD(c.out.data = NULL, VALUE, "[rope] out must have data but got NULL.");
    BAD(c.out.stride[2] = 2, VALUE, "[rope] out must have unit stride in its last dimension but got 2.");
    BAD(c.out.stride[0] = 5, VALUE, "[rope] out must not overlap itself but got strides [5, 6, 1].");
    BAD(c.out.data = c.x_data + 1, VALUE,
        "[rope] out must be x itself or share no memory with x but got overlapping memory.");
    BAD((c.out.data = c.x_data, c.out.stride[0] = 7), VALUE,
        "[rope] out must be x itself or share no memory with x but got overlapping memory.");
    BAD((c.x.stride[0] = 800000000, c.out.data = (void*)((intptr_t)c.x_data + 3200000000 - 4)), VALUE,
        "[rope] out must be x itself or share no memory with x but got overlapping memory.");
    BAD(c.positions.data = c.out.data, VALUE,
        "[rope] out must share no memory with positions but got overlapping memory.");
    BAD((c.factors.data = c.out_data + GUARD), VALUE,
        "[rope] out must share no memory with freq_factors but got overlapping memory.");
}

static void test_missing_arguments(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_rope(NULL, &c.positions, NULL, &c.params, 1, 0, &c.out) == VALUE, "x");
    CHECK(strcmp(npu_rope_last_error(), "[rope] x must be a tensor but got NULL.") == 0, "%s", npu_rope_last_error());
    CHECK(npu_rope_rope(&c.x, NULL, NULL, &c.params, 1, 0, &c.out) == VALUE, "positions");
    CHECK(npu_rope_rope(&c.x, &c.positions, NULL, NULL, 1, 0, &c.out) == VALUE, "params");
    CHECK(npu_rope_rope(&c.x, &c.positions, NULL, &c.params, 1, 0, NULL) == VALUE, "out");
    CHECK(strcmp(npu_rope_last_error(), "[rope] out must be a tensor but got NULL.") == 0, "%s", npu_rope_last_error());
    CHECK(!written(&c), "something was written");
}

static void test_library_functions(void) {
    CHECK(npu_rope_force_isa("sse9") == VALUE, "unknown instruction set");
    CHECK(npu_rope_force_isa(NULL) == NPU_ROPE_OK, "the default instruction set is always supported");
    CHECK(strlen(npu_rope_isa()) > 0 && strlen(npu_rope_version()) > 0, "names");
    CHECK(npu_rope_abi_version() == NPU_ROPE_ABI_VERSION, "ABI version");
}

/* ---- threads --------------------------------------------------------------------------------- */

static int pool_runs, pool_ranges;

static void reversed_pool(int64_t n, int32_t threads, npu_rope_range_fn body, void* ctx) {
    int64_t share = (n + threads - 1) / threads;
    ++pool_runs;
    for (int64_t begin = (n - 1) / share * share; begin >= 0; begin -= share) { /* any order is allowed */
        ++pool_ranges;
        body(begin, begin + share < n ? begin + share : n, ctx);
    }
}
static int32_t five_threads(void) { return 5; }

static void test_thread_pool(void) {
    enum { kTokens = 300, kHeads = 8, kHead = 128, kAll = kTokens * kHeads * kHead };
    static const int64_t shape[3] = {kTokens, kHeads, kHead}, tokens[1] = {kTokens};
    float *x = malloc(3 * kAll * sizeof *x), *plain = x + kAll, *pooled = plain + kAll;
    int32_t positions[kTokens];
    for (int i = 0; i < kAll; ++i) x[i] = (float)sin(i);
    for (int i = 0; i < kTokens; ++i) positions[i] = i;
    npu_rope_tensor tx = view(x, NPU_ROPE_FLOAT32, 3, shape), tp = view(positions, NPU_ROPE_INT32, 1, tokens);
    npu_rope_tensor to = view(plain, NPU_ROPE_FLOAT32, 3, shape);
    npu_rope_params params = npu_rope_default_params(kHead, NPU_ROPE_MODE_NEOX);
    int32_t before = npu_rope_num_threads();
    CHECK(npu_rope_rope(&tx, &tp, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &to) == NPU_ROPE_OK, "plain");
    npu_rope_set_thread_pool(reversed_pool, five_threads);
    CHECK(npu_rope_num_threads() == 5, "the pool's count: %d", npu_rope_num_threads());
    to.data = pooled;
    CHECK(npu_rope_rope(&tx, &tp, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &to) == NPU_ROPE_OK, "pooled");
    CHECK(pool_runs == 1 && pool_ranges == 5, "%d runs of %d ranges", pool_runs, pool_ranges);
    CHECK(memcmp(plain, pooled, kAll * sizeof *x) == 0, "the pool changed the result");
    call_t small;
    set_valid_call(&small);
    CHECK(run(&small) == NPU_ROPE_OK && pool_runs == 1, "a small call must not use the pool");
    npu_rope_set_thread_pool(NULL, NULL);
    CHECK(npu_rope_num_threads() == before, "back to the library's own threads");
    free(x);
}

int main(void) {
    test_values();
    test_sections();
    test_unused_strides();
    test_in_place();
    test_other_types();
    test_attribute_errors();
    test_input_errors();
    test_output_errors();
    test_missing_arguments();
    test_library_functions();
    test_thread_pool();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
