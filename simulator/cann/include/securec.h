// The checked memory functions that CANN's host code uses: nothing is copied if the destination is too small.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#ifndef EOK
#define EOK 0
#endif
using errno_t = int;

inline errno_t memcpy_s(void* to, size_t capacity, const void* from, size_t bytes) {
    if (to == nullptr || from == nullptr) return EINVAL;
    if (bytes > capacity) return ERANGE;
    std::memcpy(to, from, bytes);
    return EOK;
}
inline errno_t memset_s(void* to, size_t capacity, int value, size_t bytes) {
    if (to == nullptr) return EINVAL;
    if (bytes > capacity) return ERANGE;
    std::memset(to, value, bytes);
    return EOK;
}
inline errno_t strcpy_s(char* to, size_t capacity, const char* from) {
    return memcpy_s(to, capacity, from, std::strlen(from) + 1);
}
