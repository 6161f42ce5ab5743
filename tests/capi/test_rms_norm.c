/* rms_norm, rms_norm_rounded_last, rms_norm_backward and add_rms_norm from a C program: correct values, errors, no
 * writes on error or outside the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

enum { ROWS = 3, N = 5, COUNT = ROWS * N, GUARD = 16 };
static const float kSentinel = 99.0f;

typedef struct {
    float x_data[COUNT], scale_data[N], grad_data[COUNT];
    float out_data[GUARD + COUNT + GUARD], dscale_data[GUARD + N + GUARD];
    npu_rope_tensor x, scale, grad, out, dscale;
} call_t;

static void set_valid_call(call_t* c) {
    const int64_t shape[2] = {ROWS, N}, row[1] = {N};
    for (int i = 0; i < COUNT; ++i) {
        c->x_data[i] = (float)(i % 7) - 2.5f;
        c->grad_data[i] = (float)(i % 5) - 1.0f;
    }
    for (int i = 0; i < N; ++i) c->scale_data[i] = 0.5f * (float)(i + 1);
    for (int i = 0; i < 2 * GUARD + COUNT; ++i) c->out_data[i] = kSentinel;
    for (int i = 0; i < 2 * GUARD + N; ++i) c->dscale_data[i] = kSentinel;
    c->x = view(c->x_data, NPU_ROPE_FLOAT32, 2, shape);
    c->grad = view(c->grad_data, NPU_ROPE_FLOAT32, 2, shape);
    c->scale = view(c->scale_data, NPU_ROPE_FLOAT32, 1, row);
    c->out = view(c->out_data + GUARD, NPU_ROPE_FLOAT32, 2, shape);
    c->dscale = view(c->dscale_data + GUARD, NPU_ROPE_FLOAT32, 1, row);
}

static int untouched(const float* data, int count) {
    for (int i = 0; i < count; ++i)
        if (data[i] != kSentinel) return 0;
    return 1;
}

static int guards_unchanged(const call_t* c) {
    return untouched(c->out_data, GUARD) && untouched(c->out_data + GUARD + COUNT, GUARD) &&
           untouched(c->dscale_data, GUARD) && untouched(c->dscale_data + GUARD + N, GUARD);
}

/* 1 / RMS of a row. */
static double inverse(const call_t* c, int row) {
    double sum = 0;
    for (int i = 0; i < N; ++i) sum += (double)c->x_data[row * N + i] * c->x_data[row * N + i];
    return 1 / sqrt(sum / N + 0.5);
}

static void check_near(const char* what, int i, double got, double reference) {
    CHECK(fabs(got - reference) <= 1e-6 * (1 + fabs(reference)), "%s %d: %g, not %g", what, i, got, reference);
}

static void test_values(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_rms_norm(&c.x, &c.scale, -1, 0.5, 1, &c.out) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < COUNT; ++i)
        check_near("y", i, c.out_data[GUARD + i], c.x_data[i] * inverse(&c, i / N) * c.scale_data[i % N]);
    CHECK(guards_unchanged(&c), "written outside the result");
}

static void test_gradients(void) {
    call_t c;
    double dscale[N] = {0};
    set_valid_call(&c);
    npu_rope_status status = npu_rope_rms_norm_backward(&c.grad, &c.x, &c.scale, 1, 0.5, 1, &c.out, &c.dscale);
    CHECK(status == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int row = 0; row < ROWS; ++row) {
        double r = inverse(&c, row), mean = 0;
        for (int i = 0; i < N; ++i) mean += c.grad_data[row * N + i] * c.scale_data[i] * c.x_data[row * N + i] * r / N;
        for (int i = 0; i < N; ++i) {
            double normalized = c.x_data[row * N + i] * r, g = c.grad_data[row * N + i] * c.scale_data[i];
            check_near("dx", row * N + i, c.out_data[GUARD + row * N + i], r * (g - normalized * mean));
            dscale[i] += c.grad_data[row * N + i] * normalized;
        }
    }
    for (int i = 0; i < N; ++i) check_near("dscale", i, c.dscale_data[GUARD + i], dscale[i]);
    CHECK(guards_unchanged(&c), "written outside the results");
}

/* Rows in several groups, each of which sums its part of dscale. */
static void test_gradients_of_many_rows(void) {
    enum { MANY = 64 };
    float x_data[MANY * N], grad_data[MANY * N], dx_data[MANY * N], scale_data[N], dscale_data[N];
    const int64_t shape[2] = {MANY, N}, row[1] = {N};
    for (int i = 0; i < MANY * N; ++i) {
        x_data[i] = 1;
        grad_data[i] = (float)(i % N + 1);
    }
    for (int i = 0; i < N; ++i) scale_data[i] = 1;
    npu_rope_tensor x = view(x_data, NPU_ROPE_FLOAT32, 2, shape), grad = view(grad_data, NPU_ROPE_FLOAT32, 2, shape);
    npu_rope_tensor dx = view(dx_data, NPU_ROPE_FLOAT32, 2, shape), scale = view(scale_data, NPU_ROPE_FLOAT32, 1, row);
    npu_rope_tensor dscale = view(dscale_data, NPU_ROPE_FLOAT32, 1, row);
    CHECK(npu_rope_rms_norm_backward(&grad, &x, &scale, 1, 0, 1, &dx, &dscale) == NPU_ROPE_OK, "%s",
          npu_rope_last_error());
    for (int i = 0; i < MANY * N; ++i) check_near("dx", i, dx_data[i], grad_data[i] - (N + 1) / 2.0);
    for (int i = 0; i < N; ++i) check_near("dscale", i, dscale_data[i], MANY * (i + 1));
}

static void test_in_place(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_rms_norm(&c.x, &c.scale, -1, 0.5, 1, &c.out) == NPU_ROPE_OK, "not in place");
    CHECK(npu_rope_rms_norm(&c.x, &c.scale, -1, 0.5, 1, &c.x) == NPU_ROPE_OK, "in place");
    CHECK(!memcmp(c.x_data, c.out_data + GUARD, sizeof c.x_data), "in place gives another result");
}

static void test_rounded_last(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(npu_rope_rms_norm_rounded_last(&c.x, &c.scale, -1, 0.5, 1.0, &c.out) == NPU_ROPE_OK, "%s",
          npu_rope_last_error());
    for (int i = 0; i < COUNT; ++i)
        check_near("y", i, c.out_data[GUARD + i], c.x_data[i] * inverse(&c, i / N) * (c.scale_data[i % N] + 1));
    CHECK(guards_unchanged(&c), "written outside the result");

    set_valid_call(&c);
    CHECK(npu_rope_rms_norm_rounded_last(&c.x, &c.scale, -1, 0.5, INFINITY, &c.out) == NPU_ROPE_INVALID_VALUE,
          "an offset");
    CHECK(!strcmp(npu_rope_last_error(), "[rms_norm_rounded_last] scale_offset must be finite in float32 but got inf."),
          "%s", npu_rope_last_error());
    c.out.dtype = NPU_ROPE_BFLOAT16;
    CHECK(npu_rope_rms_norm_rounded_last(&c.x, &c.scale, -1, 0.5, 1.0, &c.out) == NPU_ROPE_INVALID_TYPE, "a type");
    CHECK(!strcmp(npu_rope_last_error(), "[rms_norm_rounded_last] out must have x's dtype float32 but got bfloat16."),
          "%s", npu_rope_last_error());
    c.x.dtype = NPU_ROPE_FLOAT64;
    CHECK(npu_rope_rms_norm_rounded_last(&c.x, &c.scale, -1, 0.5, 1.0, &c.out) == NPU_ROPE_INVALID_TYPE, "float64");
    CHECK(untouched(c.out_data, 2 * GUARD + COUNT), "written on error");
}

static npu_rope_status run(const call_t* c, int64_t axis, double epsilon, int64_t stash_type) {
    return npu_rope_rms_norm(&c->x, &c->scale, axis, epsilon, stash_type, &c->out);
}

static void test_errors(void) {
    call_t c;
    set_valid_call(&c);
    CHECK(run(&c, INT64_MIN, 0, 1) == NPU_ROPE_INVALID_VALUE, "an axis");
    CHECK(run(&c, 0, -1, 1) == NPU_ROPE_INVALID_VALUE, "an epsilon");
    CHECK(run(&c, 0, 0, INT64_MAX) == NPU_ROPE_INVALID_VALUE, "a stash type");
    CHECK(!strncmp(npu_rope_last_error(), "[rms_norm] stash_type must be 1 (float32), ", 43), "%s",
          npu_rope_last_error());
    c.x.dtype = NPU_ROPE_INT32;
    CHECK(run(&c, 0, 0, 1) == NPU_ROPE_INVALID_TYPE, "a type");
    set_valid_call(&c);
    c.scale.ndim = 9;
    CHECK(run(&c, 0, 0, 1) == NPU_ROPE_INVALID_VALUE, "dimensions");
    set_valid_call(&c);
    c.x.shape[0] = c.out.shape[0] = INT64_MAX;
    CHECK(run(&c, 0, 0, 1) == NPU_ROPE_INVALID_VALUE, "a huge size");
    set_valid_call(&c);
    c.scale.data = NULL;
    CHECK(run(&c, 0, 0, 1) == NPU_ROPE_INVALID_VALUE, "no data");
    set_valid_call(&c);
    c.scale.shape[0] = N - 1;
    CHECK(npu_rope_rms_norm_backward(&c.grad, &c.x, &c.scale, 0, 0, 1, &c.out, &c.dscale) == NPU_ROPE_INVALID_VALUE,
          "a scale");
    CHECK(untouched(c.out_data, 2 * GUARD + COUNT), "written on error");
    CHECK(untouched(c.dscale_data, 2 * GUARD + N), "written on error");
}

/* The place of element i of a tensor [2,2,2,2]. */
static int64_t place(int i, const int64_t* stride) {
    return i / 8 * stride[0] + i / 4 % 2 * stride[1] + i / 2 % 2 * stride[2] + i % 2 * stride[3];
}

/* out and scale are interleaved in one memory. If their strides are not nested, the library compares only ranges. */
static void test_interleaved_memory(void) {
    const int64_t shape[4] = {2, 2, 2, 2}, nested[4] = {1000, 100, 10, 2}, others[4] = {1001, 101, 11, 2};
    float x_data[16], memory[1200] = {0};
    npu_rope_tensor x = view(x_data, NPU_ROPE_FLOAT32, 4, shape), out = view(memory, NPU_ROPE_FLOAT32, 4, shape);
    npu_rope_tensor scale = view(memory + 5, NPU_ROPE_FLOAT32, 4, shape);
    memcpy(out.stride, nested, sizeof nested);
    out.stride[3] = 1;
    memcpy(scale.stride, nested, sizeof nested);
    for (int i = 0; i < 16; ++i) {
        x_data[i] = 1;
        memory[5 + place(i, scale.stride)] = (float)(i + 1);
    }
    CHECK(npu_rope_rms_norm(&x, &scale, 3, 0, 1, &out) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    for (int i = 0; i < 16; ++i) check_near("y", i, memory[place(i, out.stride)], i + 1);
    memcpy(scale.stride, others, sizeof others);
    CHECK(npu_rope_rms_norm(&x, &scale, 3, 0, 1, &out) == NPU_ROPE_INVALID_VALUE, "eight strides");
    CHECK(!strcmp(npu_rope_last_error(), "[rms_norm] out must share no memory with scale but got overlapping memory."),
          "%s", npu_rope_last_error());
}

/* A call of add_rms_norm: grad is the residual. */
typedef struct {
    call_t c;
    float sum_data[GUARD + COUNT + GUARD];
    npu_rope_tensor sum;
} add_t;

static void set_valid_add_call(add_t* a) {
    const int64_t shape[2] = {ROWS, N};
    set_valid_call(&a->c);
    for (int i = 0; i < 2 * GUARD + COUNT; ++i) a->sum_data[i] = kSentinel;
    a->sum = view(a->sum_data + GUARD, NPU_ROPE_FLOAT32, 2, shape);
}

static npu_rope_status run_add(const add_t* a, const npu_rope_tensor* out, const npu_rope_tensor* sum) {
    return npu_rope_add_rms_norm(&a->c.x, &a->c.grad, &a->c.scale, -1, 0.5, 1, out, sum);
}

static void test_add(void) {
    add_t a, summed;
    set_valid_add_call(&a);
    CHECK(run_add(&a, &a.c.out, &a.sum) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    set_valid_add_call(&summed);
    for (int i = 0; i < COUNT; ++i) {
        summed.c.x_data[i] += summed.c.grad_data[i];
        CHECK(a.sum_data[GUARD + i] == summed.c.x_data[i], "sum %d: %g", i, a.sum_data[GUARD + i]);
    }
    CHECK(npu_rope_rms_norm(&summed.c.x, &summed.c.scale, -1, 0.5, 1, &summed.c.out) == NPU_ROPE_OK, "the norm alone");
    CHECK(!memcmp(a.c.out_data, summed.c.out_data, sizeof a.c.out_data), "differs from the norm of the sum");
    CHECK(guards_unchanged(&a.c), "written outside the result");
    CHECK(untouched(a.sum_data, GUARD) && untouched(a.sum_data + GUARD + COUNT, GUARD), "written outside the sum");

    add_t in_place;
    set_valid_add_call(&in_place);
    CHECK(run_add(&in_place, &in_place.c.x, &in_place.c.grad) == NPU_ROPE_OK, "%s", npu_rope_last_error());
    CHECK(!memcmp(in_place.c.x_data, a.c.out_data + GUARD, sizeof a.c.x_data), "in place gives another result");
    CHECK(!memcmp(in_place.c.grad_data, a.sum_data + GUARD, sizeof a.c.x_data), "in place gives another sum");
}

static void test_add_errors(void) {
    add_t a;
    set_valid_add_call(&a);
    CHECK(run_add(&a, &a.c.x, &a.c.x) == NPU_ROPE_INVALID_VALUE, "one memory for both");
    CHECK(run_add(&a, &a.c.out, NULL) == NPU_ROPE_INVALID_VALUE, "no sum");
    a.sum.data = a.c.x_data + 1;
    CHECK(run_add(&a, &a.c.out, &a.sum) == NPU_ROPE_INVALID_VALUE, "a sum across x");
    CHECK(!strcmp(npu_rope_last_error(),
                  "[add_rms_norm] sum must be x or residual itself or share no memory with x but got overlapping "
                  "memory."),
          "%s", npu_rope_last_error());
    set_valid_add_call(&a);
    a.c.grad.shape[0] = ROWS - 1;
    CHECK(run_add(&a, &a.c.out, &a.sum) == NPU_ROPE_INVALID_VALUE, "a residual's shape");
    a.c.grad.shape[0] = ROWS;
    a.c.grad.dtype = NPU_ROPE_FLOAT64;
    CHECK(run_add(&a, &a.c.out, &a.sum) == NPU_ROPE_INVALID_TYPE, "a residual's type");
    CHECK(untouched(a.c.out_data, 2 * GUARD + COUNT), "written on error");
    CHECK(untouched(a.sum_data, 2 * GUARD + COUNT), "written on error");
}

int main(void) {
    test_values();
    test_gradients();
    test_gradients_of_many_rows();
    test_in_place();
    test_rounded_last();
    test_errors();
    test_interleaved_memory();
    test_add();
    test_add_errors();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
