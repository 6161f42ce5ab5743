// Argument checks of the native paths: one grammar, "[op] argument must RULE but got VALUE."
// Header only, standard library only, so that tiling, C ABI and NPU binding share it.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

namespace npu_rope {

// The result of a check: an error with its message, or kOk. Kinds match the C ABI's status codes.
struct Check {
    enum Kind { kOk = 0, kValue = 1, kType = 2, kInternal = 3 };
    Kind kind = kOk;
    std::string message;
    bool ok() const { return kind == kOk; }
};

inline Check fail_va(Check::Kind kind, const char* op, const char* format, va_list args) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, args);
    return {kind, "[" + std::string(op) + "] " + text};
}

__attribute__((format(printf, 2, 3))) inline Check bad_value(const char* op, const char* format, ...) {
    va_list args;
    va_start(args, format);
    Check c = fail_va(Check::kValue, op, format, args);
    va_end(args);
    return c;
}

__attribute__((format(printf, 2, 3))) inline Check bad_type(const char* op, const char* format, ...) {
    va_list args;
    va_start(args, format);
    Check c = fail_va(Check::kType, op, format, args);
    va_end(args);
    return c;
}

// "[2, 3]", as Python prints a list.
inline std::string shape_text(const int64_t* shape, int ndim) {
    std::string s = "[";
    for (int i = 0; i < ndim; ++i) {
        if (i) s += ", ";
        s += std::to_string(shape[i]);
    }
    return s + "]";
}

// Product of a shape, or -1 where it does not fit int64.
inline int64_t checked_product(const int64_t* shape, int ndim) {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i)
        if (__builtin_mul_overflow(n, shape[i], &n)) return -1;
    return n;
}

}  // namespace npu_rope
