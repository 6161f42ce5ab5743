// Results of the argument checks: an error has its parts, and one grammar, "[op] argument must RULE but got VALUE."
// Header only, standard library only, so that tiling, C ABI and NPU binding share it.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "include/npu_rope.h"

namespace npu_rope {

// The parts of an error, and the message that they make.
struct BrokenRule {
    std::string op, argument, rule, value, message;
    BrokenRule(std::string op, std::string argument, std::string rule, std::string value)
        : op(std::move(op)), argument(std::move(argument)), rule(std::move(rule)), value(std::move(value)) {
        message = "[" + this->op + "] " + this->argument + " must " + this->rule + " but got " + this->value + ".";
    }
};

// The result of a check: an error, or kOk. Kinds match the C ABI's status codes.
struct Check {
    enum Kind { kOk = 0, kValue = 1, kType = 2, kInternal = 3 };
    Kind kind = kOk;
    std::shared_ptr<const BrokenRule> broken;  // NULL if kOk
    bool ok() const { return kind == kOk; }
    std::string message() const { return broken ? broken->message : std::string(); }
};

// Errors are cold: the compiler keeps their texts out of the way of a correct call.
[[gnu::cold, gnu::noinline]] inline Check bad_value(std::string op, std::string argument, std::string rule,
                                                    std::string value) {
    return {Check::kValue,
            std::make_shared<BrokenRule>(std::move(op), std::move(argument), std::move(rule), std::move(value))};
}

[[gnu::cold, gnu::noinline]] inline Check bad_type(std::string op, std::string argument, std::string rule,
                                                   std::string value) {
    return {Check::kType,
            std::make_shared<BrokenRule>(std::move(op), std::move(argument), std::move(rule), std::move(value))};
}

// A defect of ours or of the machine, not of the call.
[[gnu::cold, gnu::noinline]] inline Check internal_error(std::string op, std::string argument, std::string rule,
                                                         std::string value) {
    return {Check::kInternal,
            std::make_shared<BrokenRule>(std::move(op), std::move(argument), std::move(rule), std::move(value))};
}

// The error as the C interface returns it. It points into the check.
inline npu_rope_error parts_of(const Check& c) {
    if (!c.broken) return {NPU_ROPE_OK, "", "", "", "", ""};
    const BrokenRule& b = *c.broken;
    return {static_cast<npu_rope_status>(c.kind),
            b.op.c_str(),
            b.argument.c_str(),
            b.rule.c_str(),
            b.value.c_str(),
            b.message.c_str()};
}

// A rule or a value with numbers in it, as printf makes it.
[[gnu::cold, gnu::noinline]] __attribute__((format(printf, 1, 2))) inline std::string formatted(const char* format,
                                                                                                ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

// "[2, 3]", as Python prints a list.
[[gnu::cold, gnu::noinline]] inline std::string shape_text(const int64_t* shape, int ndim) {
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
