// The checked functions of CANN's libc_sec for memory and strings, in C99 and C++. If an argument breaks a rule, the
// destination is cleared, and the result is not EOK. Signatures, results and rules: libboundscheck, include/securec.h
// and src/. The wide characters and the input functions (scanf_s and others) are absent.
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// libascend_sim_cann, whose links have the name libc_sec.so too, compiles these functions with another linkage.
#ifndef ASCEND_SIM_SECUREC
#define ASCEND_SIM_SECUREC static inline
#endif

#ifndef EOK
#define EOK 0
#endif
#define EINVAL_AND_RESET (EINVAL | 128)
#define ERANGE_AND_RESET (ERANGE | 128)
#define EOVERLAP_AND_RESET (54 | 128)
#define SECUREC_MEM_MAX_LEN 0x7fffffffUL
#define SECUREC_STRING_MAX_LEN 0x7fffffffUL
typedef int errno_t;

// Whether two areas of `bytes` bytes overlap and are not the same.
static inline int ascend_sim_overlap(const void* a, const void* b, size_t bytes) {
    const char *first = (const char*)a, *second = (const char*)b;
    return first < second ? first + bytes > second : second < first && second + bytes > first;
}
// The characters of a text before its end, at most `most`.
static inline size_t ascend_sim_length(const char* text, size_t most) {
    const char* const end = (const char*)memchr(text, 0, most);
    return end ? (size_t)(end - text) : most;
}
static inline errno_t ascend_sim_reset(char* to, errno_t status) {
    to[0] = 0;
    return status;
}
// Checks the arguments of a string function before it reads the strings.
static inline errno_t ascend_sim_check_strings(char* to, size_t capacity, const char* from) {
    if (capacity == 0 || capacity > SECUREC_STRING_MAX_LEN) return ERANGE;
    if (!to) return EINVAL;
    return from ? EOK : ascend_sim_reset(to, EINVAL_AND_RESET);
}

ASCEND_SIM_SECUREC errno_t memmove_s(void* to, size_t capacity, const void* from, size_t bytes) {
    if (capacity == 0 || capacity > SECUREC_MEM_MAX_LEN) return ERANGE;
    if (!to) return EINVAL;
    if (!from || bytes > capacity) {
        memset(to, 0, capacity);
        return from ? ERANGE_AND_RESET : EINVAL_AND_RESET;
    }
    memmove(to, from, bytes);
    return EOK;
}
ASCEND_SIM_SECUREC errno_t memcpy_s(void* to, size_t capacity, const void* from, size_t bytes) {
    if (to && from && capacity <= SECUREC_MEM_MAX_LEN && bytes <= capacity && ascend_sim_overlap(to, from, bytes)) {
        memset(to, 0, capacity);
        return EOVERLAP_AND_RESET;
    }
    return memmove_s(to, capacity, from, bytes);
}
ASCEND_SIM_SECUREC errno_t memset_s(void* to, size_t capacity, int value, size_t bytes) {
    if (capacity == 0 || capacity > SECUREC_MEM_MAX_LEN) return ERANGE;
    if (!to) return EINVAL;
    memset(to, value, bytes < capacity ? bytes : capacity);
    return bytes <= capacity ? EOK : ERANGE_AND_RESET;
}
// Copies at most `count` characters and a 0.
ASCEND_SIM_SECUREC errno_t strncpy_s(char* to, size_t capacity, const char* from, size_t count) {
    const errno_t status = ascend_sim_check_strings(to, capacity, from);
    size_t length;
    if (status != EOK) return status;
    if (count > SECUREC_STRING_MAX_LEN) return ascend_sim_reset(to, ERANGE_AND_RESET);
    length = ascend_sim_length(from, count < capacity ? count : capacity);
    if (length >= capacity) return ascend_sim_reset(to, ERANGE_AND_RESET);
    if (ascend_sim_overlap(to, from, length + 1)) return ascend_sim_reset(to, EOVERLAP_AND_RESET);
    memmove(to, from, length);
    to[length] = 0;
    return EOK;
}
ASCEND_SIM_SECUREC errno_t strcpy_s(char* to, size_t capacity, const char* from) {
    return strncpy_s(to, capacity, from, SECUREC_STRING_MAX_LEN);
}
// Appends at most `count` characters and a 0.
ASCEND_SIM_SECUREC errno_t strncat_s(char* to, size_t capacity, const char* from, size_t count) {
    const errno_t status = ascend_sim_check_strings(to, capacity, from);
    size_t end, room, length;
    if (status != EOK) return status;
    if (count > SECUREC_STRING_MAX_LEN) return ascend_sim_reset(to, ERANGE_AND_RESET);
    end = ascend_sim_length(to, capacity);
    if (end == capacity) return ascend_sim_reset(to, EINVAL_AND_RESET);
    room = capacity - end;
    length = ascend_sim_length(from, count < room ? count : room);
    if (from == to || ascend_sim_overlap(to + end, from, length + 1)) return ascend_sim_reset(to, EOVERLAP_AND_RESET);
    if (length >= room) return ascend_sim_reset(to, ERANGE_AND_RESET);
    memcpy(to + end, from, length);
    to[end + length] = 0;
    return EOK;
}
ASCEND_SIM_SECUREC errno_t strcat_s(char* to, size_t capacity, const char* from) {
    return strncat_s(to, capacity, from, SECUREC_STRING_MAX_LEN);
}
// The next four functions return the number of characters, or -1. A text that does not fit is cleared.
ASCEND_SIM_SECUREC __attribute__((format(printf, 3, 0))) int vsprintf_s(char* to, size_t capacity, const char* format,
                                                                        va_list arguments) {
    int written;
    if (!to || capacity == 0 || capacity > SECUREC_STRING_MAX_LEN) return -1;
    written = format ? vsnprintf(to, capacity, format, arguments) : -1;
    if (written >= 0 && (size_t)written < capacity) return written;
    return ascend_sim_reset(to, -1);
}
ASCEND_SIM_SECUREC __attribute__((format(printf, 3, 4))) int sprintf_s(char* to, size_t capacity, const char* format,
                                                                       ...) {
    va_list arguments;
    int written;
    va_start(arguments, format);
    written = vsprintf_s(to, capacity, format, arguments);
    va_end(arguments);
    return written;
}
// At most `count` characters. A text that does not fit is cut, and the result is -1.
ASCEND_SIM_SECUREC __attribute__((format(printf, 4, 0))) int vsnprintf_s(char* to, size_t capacity, size_t count,
                                                                         const char* format, va_list arguments) {
    const size_t room = count < capacity ? count + 1 : capacity;
    int written;
    if (!to || capacity == 0 || capacity > SECUREC_STRING_MAX_LEN) return -1;
    if (!format || (count > SECUREC_STRING_MAX_LEN - 1 && count != (size_t)-1)) return ascend_sim_reset(to, -1);
    written = vsnprintf(to, room, format, arguments);
    if (written < 0) return ascend_sim_reset(to, -1);
    return (size_t)written < room ? written : -1;
}
ASCEND_SIM_SECUREC __attribute__((format(printf, 4, 5))) int snprintf_s(char* to, size_t capacity, size_t count,
                                                                        const char* format, ...) {
    va_list arguments;
    int written;
    va_start(arguments, format);
    written = vsnprintf_s(to, capacity, count, format, arguments);
    va_end(arguments);
    return written;
}
// Returns the next part of `text` between characters of `delimiters`, or NULL. `rest` is the place behind it, for the
// next call, whose text is NULL.
ASCEND_SIM_SECUREC char* strtok_s(char* text, const char* delimiters, char** rest) {
    char* end;
    if (!delimiters || !rest || (!text && !*rest)) return NULL;
    if (!text) text = *rest;
    text += strspn(text, delimiters);
    end = text + strcspn(text, delimiters);
    *rest = end;
    if (end == text) return NULL;
    if (*end) {
        *end = 0;
        *rest = end + 1;
    }
    return text;
}
