/* Shared parts of the C tests: a check that counts failures, and a contiguous view. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "include/npu_rope.h"

static int failures = 0;

#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\n");                                          \
            ++failures;                                                     \
        }                                                                   \
    } while (0)

static npu_rope_tensor view(void* data, npu_rope_dtype dtype, int32_t ndim, const int64_t* shape) {
    npu_rope_tensor t;
    int64_t step = 1;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.dtype = dtype;
    t.ndim = ndim;
    for (int k = ndim - 1; k >= 0; --k) {
        t.shape[k] = shape[k];
        t.stride[k] = step;
        step *= shape[k];
    }
    return t;
}
