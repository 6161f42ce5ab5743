// The checked memory functions of CANN's host code. If the destination is too small, it is cleared instead, and the
// result is not EOK (the behaviour of the published library libboundscheck).
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#ifndef EOK
#define EOK 0
#endif
#define EINVAL_AND_RESET (EINVAL | 128)
#define ERANGE_AND_RESET (ERANGE | 128)
using errno_t = int;

inline errno_t memmove_s(void* to, size_t capacity, const void* from, size_t bytes) {
    if (capacity == 0) return ERANGE;
    if (to == nullptr) return EINVAL;
    if (from == nullptr || bytes > capacity) {
        std::memset(to, 0, capacity);
        return from == nullptr ? EINVAL_AND_RESET : ERANGE_AND_RESET;
    }
    std::memmove(to, from, bytes);
    return EOK;
}
inline errno_t memcpy_s(void* to, size_t capacity, const void* from, size_t bytes) {
    return memmove_s(to, capacity, from, bytes);
}
inline errno_t memset_s(void* to, size_t capacity, int value, size_t bytes) {
    if (capacity == 0) return ERANGE;
    if (to == nullptr) return EINVAL;
    std::memset(to, value, bytes < capacity ? bytes : capacity);
    return bytes <= capacity ? EOK : ERANGE_AND_RESET;
}
inline errno_t strcpy_s(char* to, size_t capacity, const char* from) {
    if (to == nullptr || capacity == 0) return to == nullptr ? EINVAL : ERANGE;
    if (from == nullptr || std::strlen(from) >= capacity) {
        to[0] = 0;
        return from == nullptr ? EINVAL_AND_RESET : ERANGE_AND_RESET;
    }
    return memcpy_s(to, capacity, from, std::strlen(from) + 1);
}
inline errno_t strcat_s(char* to, size_t capacity, const char* from) {
    if (to == nullptr || capacity == 0) return to == nullptr ? EINVAL : ERANGE;
    const size_t end = strnlen(to, capacity);
    if (from == nullptr || end + std::strlen(from) >= capacity) {
        to[0] = 0;
        return from == nullptr ? EINVAL_AND_RESET : ERANGE_AND_RESET;
    }
    return strcpy_s(to + end, capacity - end, from);
}
// Return the number of characters, or -1.
__attribute__((format(printf, 3, 4))) inline int sprintf_s(char* to, size_t capacity, const char* format, ...) {
    if (to == nullptr || capacity == 0 || format == nullptr) return -1;
    va_list arguments;
    va_start(arguments, format);
    const int written = std::vsnprintf(to, capacity, format, arguments);
    va_end(arguments);
    if (written >= 0 && static_cast<size_t>(written) < capacity) return written;
    to[0] = 0;
    return -1;
}
