/* Every allocation of a call fails, one after another: alone, and together with all later ones, on one thread and on
 * three. The call returns NPU_ROPE_INTERNAL_ERROR with a message, and leaves the results as they were; or it needs no
 * memory there, and is right. The next call is right. Nothing is leaked. This program's malloc replaces that of the C
 * library, whose functions __libc_* it calls. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

static atomic_int armed = 0;       /* whether allocations are counted */
static atomic_int fails_later = 0; /* whether the allocations after the failing one fail too */
static atomic_long count = 0, failing = 0, live = 0;

static int fails(void) {
    if (!armed) return 0;
    const long number = ++count;
    return number == failing || (fails_later && number > failing);
}
static void* counted(void* memory) {
    if (armed && memory) ++live;
    return memory;
}
void* malloc(size_t bytes) { return fails() ? NULL : counted(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) { return fails() ? NULL : counted(__libc_calloc(n, bytes)); }
void* realloc(void* old, size_t bytes) {
    if (fails()) return NULL;
    void* memory = __libc_realloc(old, bytes);
    return old ? memory : counted(memory);
}
void* memalign(size_t alignment, size_t bytes) { return fails() ? NULL : counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
void free(void* memory) {
    if (armed && memory) --live;
    __libc_free(memory);
}

/* A thread pool, which runs more ranges than it has threads. It allocates nothing during a call. */
enum { THREADS = 3, RANGES = 7 };
static int pool_size = 1;
static pthread_barrier_t begins, ends;
static npu_rope_range_fn range_body;
static void* range_ctx;
static int64_t range_end;
static atomic_int next_range;

static void run_ranges(void) {
    for (int part = next_range++; part < RANGES; part = next_range++)
        range_body(range_end * part / RANGES, range_end * (part + 1) / RANGES, range_ctx);
}
static void* run_worker(void* unused) {
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&begins);
        run_ranges();
        pthread_barrier_wait(&ends);
    }
    return NULL;
}
static void run_on_pool(int64_t n, int32_t threads, npu_rope_range_fn body, void* ctx) {
    (void)threads;
    range_body = body;
    range_ctx = ctx;
    range_end = n;
    next_range = 0;
    pthread_barrier_wait(&begins);
    run_ranges();
    pthread_barrier_wait(&ends);
}
static int32_t size_of_pool(void) { return pool_size; }
static void start_pool(void) {
    pthread_barrier_init(&begins, NULL, THREADS);
    pthread_barrier_init(&ends, NULL, THREADS);
    for (int i = 1; i < THREADS; ++i) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run_worker, NULL) == 0, "no thread %d", i);
        pthread_detach(thread);
    }
    npu_rope_set_thread_pool(run_on_pool, size_of_pool);
}

enum { S = 400, N = 2, D = 128, COUNT = S * N * D };
static const float kSentinel = 99.0f;
static float x_data[COUNT], k_data[COUNT], scale_data[D], cos_data[S * D], sin_data[S * D];
static float out_data[COUNT], k_out_data[COUNT], dscale_data[D], dscale_of_heads[S * N], reference[2 * COUNT + D];
static int32_t position_data[S], row_data[S];
static npu_rope_tensor x, k, scale, cos_table, sin_table, out, k_out, dscale, positions, rows, cache;
static npu_rope_params params;

static void set_call(void) {
    const int64_t shape[4] = {1, S, N, D}, row[1] = {D}, table[2] = {S, D}, tokens[1] = {S}, slots[3] = {S, N, D};
    for (int i = 0; i < COUNT; ++i) {
        x_data[i] = (float)(i % 7) - 2.5f;
        k_data[i] = (float)(i % 5) - 1.0f;
        out_data[i] = k_out_data[i] = kSentinel;
    }
    for (int i = 0; i < D; ++i) scale_data[i] = 0.5f * (float)(i + 1), dscale_data[i] = kSentinel;
    for (int i = 0; i < S * D; ++i) cos_data[i] = 0.8f, sin_data[i] = 0.6f;
    for (int i = 0; i < S; ++i) position_data[i] = 1000 * i, row_data[i] = S - 1 - i;
    x = view(x_data, NPU_ROPE_FLOAT32, 4, shape);
    k = view(k_data, NPU_ROPE_FLOAT32, 4, shape);
    out = view(out_data, NPU_ROPE_FLOAT32, 4, shape);
    k_out = view(k_out_data, NPU_ROPE_FLOAT32, 4, shape);
    scale = view(scale_data, NPU_ROPE_FLOAT32, 1, row);
    dscale = view(dscale_data, NPU_ROPE_FLOAT32, 1, row);
    cos_table = view(cos_data, NPU_ROPE_FLOAT32, 2, table);
    sin_table = view(sin_data, NPU_ROPE_FLOAT32, 2, table);
    positions = view(position_data, NPU_ROPE_INT32, 1, tokens);
    rows = view(row_data, NPU_ROPE_INT32, 1, tokens);
    cache = view(out_data, NPU_ROPE_FLOAT32, 3, slots);
    params = npu_rope_default_params(D, NPU_ROPE_MODE_NEOX);
}

static npu_rope_status call_rope(void) {
    return npu_rope_rope(&x, &positions, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &out);
}
static npu_rope_status call_rope_qk(void) {
    return npu_rope_rope_qk(&x, &k, &positions, NULL, &params, 1, NPU_ROPE_ANGLE_GGML, &out, &k_out);
}
static npu_rope_status call_rope_set_rows(void) {
    return npu_rope_rope_set_rows(&x, &positions, &rows, NULL, &params, 1, NPU_ROPE_ANGLE_F32, &cache);
}
static npu_rope_status call_rotary_mul(void) {
    return npu_rope_rotary_mul(&x, &cos_table, &sin_table, 0, 0, 0, 1, &out);
}
static npu_rope_status call_rms_norm_rounded_last(void) {
    return npu_rope_rms_norm_rounded_last(&x, &scale, -1, 1e-5, 1.0, &out);
}
static npu_rope_status call_rms_norm(void) { return npu_rope_rms_norm(&x, &scale, -1, 1e-5, 1, &out); }
/* The scale of each row, with gaps: a gradient of each row, and rows of the scale that are gathered. */
static npu_rope_status call_rms_norm_of_gaps(void) {
    npu_rope_tensor gaps = x;
    gaps.ndim = 1, gaps.shape[0] = D, gaps.stride[0] = 2;
    return npu_rope_rms_norm(&k, &gaps, -1, 1e-5, 1, &out);
}
static npu_rope_status call_rms_norm_backward_of_rows(void) {
    return npu_rope_rms_norm_backward(&k, &x, &x, -1, 1e-5, 1, &out, &k_out);
}
/* Rows for which the parts need more memory than a thread keeps. */
static npu_rope_status call_rms_norm_backward_of_long_rows(void) {
    const int64_t rows_and_columns[2] = {4, COUNT / 4};
    npu_rope_tensor grad = view(k_data, NPU_ROPE_FLOAT32, 2, rows_and_columns);
    npu_rope_tensor in = view(x_data, NPU_ROPE_FLOAT32, 2, rows_and_columns);
    npu_rope_tensor dx = view(out_data, NPU_ROPE_FLOAT32, 2, rows_and_columns);
    npu_rope_tensor of_rows = view(k_out_data, NPU_ROPE_FLOAT32, 2, rows_and_columns);
    return npu_rope_rms_norm_backward(&grad, &in, &in, -1, 1e-5, 1, &dx, &of_rows);
}
/* Elements of the last dimension share a scale. */
static npu_rope_status call_rms_norm_backward_of_heads(void) {
    const int64_t scale_of_heads[4] = {1, S, N, 1};
    npu_rope_tensor of_heads = view(x_data, NPU_ROPE_FLOAT32, 4, scale_of_heads);
    npu_rope_tensor its_gradient = view(dscale_of_heads, NPU_ROPE_FLOAT32, 4, scale_of_heads);
    return npu_rope_rms_norm_backward(&k, &x, &of_heads, -2, 1e-5, 1, &out, &its_gradient);
}
static npu_rope_status call_rope_set_rows_rounded(void) {
    const int64_t slots[3] = {S, N, D};
    npu_rope_tensor narrow = view(out_data, NPU_ROPE_FLOAT16, 3, slots);
    return npu_rope_rope_set_rows(&x, &positions, &rows, NULL, &params, 1, NPU_ROPE_ANGLE_F32, &narrow);
}
static npu_rope_status call_rms_norm_backward(void) {
    return npu_rope_rms_norm_backward(&k, &x, &scale, -1, 1e-5, 1, &out, &dscale);
}
static npu_rope_status call_rotary_mul_qk(void) {
    return npu_rope_rotary_mul_qk(&x, &k, &cos_table, &sin_table, 0, 0, 0, 1, &out, &k_out);
}
static npu_rope_status call_rotary_embedding(void) {
    const int64_t bnsd[4] = {1, N, S, D}, half[3] = {1, S, D / 2};
    npu_rope_tensor in = view(x_data, NPU_ROPE_FLOAT32, 4, bnsd), to = view(out_data, NPU_ROPE_FLOAT32, 4, bnsd);
    npu_rope_tensor cosines = view(cos_data, NPU_ROPE_FLOAT32, 3, half);
    npu_rope_tensor sines = view(sin_data, NPU_ROPE_FLOAT32, 3, half);
    return npu_rope_rotary_embedding(&in, &cosines, &sines, NULL, 0, 0, 0, 1, &to);
}
static npu_rope_status call_add_rms_norm(void) {
    return npu_rope_add_rms_norm(&x, &k, &scale, -1, 1e-5, 1, &out, &k_out);
}
static npu_rope_status call_rms_norm_rope(void) {
    return npu_rope_rms_norm_rope(&x, &k, &scale, &scale, &positions, NULL, &params, 1e-5, 1, NPU_ROPE_ANGLE_EXACT,
                                  &out, &k_out);
}
static npu_rope_status call_rms_norm_rope_set_rows(void) {
    cache = view(k_out_data, NPU_ROPE_FLOAT32, 3, (const int64_t[3]){S, N, D});
    return npu_rope_rms_norm_rope_set_rows(&x, &k, &scale, &scale, &positions, &rows, NULL, &params, 1e-5, 1,
                                           NPU_ROPE_ANGLE_F32, &out, &cache);
}
static npu_rope_status call_qkv_norm_rope_cache(void) {
    const int64_t heads[3] = {S, N, D};
    npu_rope_tensor q = view(x_data, NPU_ROPE_FLOAT32, 3, heads), keys = view(k_data, NPU_ROPE_FLOAT32, 3, heads);
    npu_rope_tensor q_out = view(out_data, NPU_ROPE_FLOAT32, 3, heads);
    npu_rope_qkv_inputs inputs;
    npu_rope_qkv_outputs outputs = {&q_out, &cache, NULL};
    cache = view(k_out_data, NPU_ROPE_FLOAT32, 3, heads);
    memset(&inputs, 0, sizeof inputs);
    inputs.q = &q, inputs.k = &keys, inputs.q_scale = inputs.k_scale = &scale;
    inputs.positions = &positions, inputs.slots = &rows;
    return npu_rope_qkv_norm_rope_cache(&inputs, &params, 1e-5, 1.0, 1, NPU_ROPE_ANGLE_EXACT, &outputs);
}
static npu_rope_status call_qk_square_sums(void) {
    const int64_t heads[3] = {S, N, D}, sums_shape[2] = {S, 2};
    npu_rope_tensor q = view(x_data, NPU_ROPE_FLOAT32, 3, heads), keys = view(k_data, NPU_ROPE_FLOAT32, 3, heads);
    npu_rope_tensor sums = view(out_data, NPU_ROPE_FLOAT32, 2, sums_shape);
    return npu_rope_qk_square_sums(&q, &keys, &sums);
}
static void set_check(npu_rope_call* checked) {
    memset(checked, 0, sizeof *checked);
    checked->op = "rope_set_rows";
    checked->inputs[0] = &x, checked->inputs[1] = &positions, checked->inputs[2] = &rows;
    checked->outputs[0] = &cache;
    checked->params = &params;
}
static npu_rope_status call_check(void) {
    npu_rope_call checked;
    set_check(&checked);
    return npu_rope_check(&checked);
}
static npu_rope_status call_check_on_chip(void) {
    npu_rope_call checked;
    set_check(&checked);
    return npu_rope_check_on_chip(&checked, "Ascend910B3");
}
static npu_rope_status call_bad(void) { /* an error needs memory for its texts */
    return npu_rope_rms_norm(&x, &positions, -1, 1e-5, 1, &out);
}
static npu_rope_status call_bad_isa(void) { return (npu_rope_status)npu_rope_force_isa("nonsense"); }

static void save(float* saved) {
    memcpy(saved, out_data, sizeof out_data);
    memcpy(saved + COUNT, k_out_data, sizeof k_out_data);
    memcpy(saved + 2 * COUNT, dscale_data, sizeof dscale_data);
}

static long test_call(const char* name, npu_rope_status (*call)(void), npu_rope_status expected, int later) {
    static float before[2 * COUNT + D], after[2 * COUNT + D], again[2 * COUNT + D];
    char error[512] = "";
    set_call();
    save(before);
    CHECK(call() == expected, "%s: %s", name, npu_rope_last_error());
    save(reference);
    for (long n = 1; n < 10000; ++n) {
        npu_rope_status status = NPU_ROPE_OK;
        long lost = 0, made = 0;
        for (int round = 0; round < 2; ++round) { /* in the second one, the error of the first one is freed */
            set_call();
            fails_later = later;
            count = 0;
            live = 0;
            failing = n;
            armed = 1;
            status = call();
            armed = 0;
            lost = live;
            made = count;
        }
        save(after);
        if (made < n) {
            CHECK(status == expected, "%s: %s", name, npu_rope_last_error());
            return n - 1;
        }
        if (status == NPU_ROPE_INTERNAL_ERROR) {
            snprintf(error, sizeof error, "%s", npu_rope_last_error());
            CHECK(strstr(error, " must ") && strstr(error, " but got "), "%s: allocation %ld: %s", name, n, error);
            CHECK(memcmp(before, after, sizeof before) == 0, "%s: allocation %ld: results changed", name, n);
        } else {
            CHECK(status == expected, "%s: allocation %ld: status %d", name, n, (int)status);
            CHECK(memcmp(reference, after, sizeof after) == 0, "%s: allocation %ld: wrong results", name, n);
        }
        set_call();
        CHECK(call() == expected, "%s: after allocation %ld: %s", name, n, npu_rope_last_error());
        save(again);
        CHECK(memcmp(reference, again, sizeof again) == 0, "%s: wrong results after allocation %ld", name, n);
        CHECK(lost == 0, "%s: allocation %ld: %ld blocks leaked", name, n, lost);
    }
    CHECK(0, "%s: no end", name);
    return 0;
}

int main(void) {
    static const struct {
        const char* name;
        npu_rope_status (*call)(void);
        npu_rope_status expected;
    } calls[] = {{"rope", call_rope, NPU_ROPE_OK},
                 {"rope_qk", call_rope_qk, NPU_ROPE_OK},
                 {"rope_set_rows", call_rope_set_rows, NPU_ROPE_OK},
                 {"rotary_mul", call_rotary_mul, NPU_ROPE_OK},
                 {"rotary_mul_qk", call_rotary_mul_qk, NPU_ROPE_OK},
                 {"rotary_embedding", call_rotary_embedding, NPU_ROPE_OK},
                 {"rms_norm", call_rms_norm, NPU_ROPE_OK},
                 {"rms_norm_rounded_last", call_rms_norm_rounded_last, NPU_ROPE_OK},
                 {"add_rms_norm", call_add_rms_norm, NPU_ROPE_OK},
                 {"rms_norm_rope", call_rms_norm_rope, NPU_ROPE_OK},
                 {"rms_norm_rope_set_rows", call_rms_norm_rope_set_rows, NPU_ROPE_OK},
                 {"qkv_norm_rope_cache", call_qkv_norm_rope_cache, NPU_ROPE_OK},
                 {"qk_square_sums", call_qk_square_sums, NPU_ROPE_OK},
                 {"check", call_check, NPU_ROPE_OK},
                 {"check_on_chip", call_check_on_chip, NPU_ROPE_OK},
                 {"rms_norm_backward", call_rms_norm_backward, NPU_ROPE_OK},
                 {"rms_norm with gaps", call_rms_norm_of_gaps, NPU_ROPE_OK},
                 {"rms_norm_backward of rows", call_rms_norm_backward_of_rows, NPU_ROPE_OK},
                 {"rms_norm_backward of long rows", call_rms_norm_backward_of_long_rows, NPU_ROPE_OK},
                 {"rms_norm_backward of heads", call_rms_norm_backward_of_heads, NPU_ROPE_OK},
                 {"rope_set_rows rounded", call_rope_set_rows_rounded, NPU_ROPE_OK},
                 {"refused rms_norm", call_bad, NPU_ROPE_INVALID_TYPE},
                 {"refused instruction set", call_bad_isa, NPU_ROPE_INVALID_VALUE}};
    long all = 0;
    start_pool();
    for (pool_size = 1; pool_size <= THREADS; pool_size += THREADS - 1)
        for (int later = 0; later < 2; ++later)
            for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
                long places = test_call(calls[i].name, calls[i].call, calls[i].expected, later);
                printf("%s, %d thread(s): %ld allocations\n", calls[i].name, pool_size, places);
                CHECK(calls[i].call != call_rms_norm_backward_of_long_rows || pool_size == 1 || places >= 2,
                      "the memory of parts does not fail");
                all += places;
            }
    CHECK(all > 0, "no allocation failed");
    return failures != 0;
}
