// Results of the argument checks. An error's message is "[op] argument must RULE but got VALUE.", and the error keeps
// these parts. Header only, because the tilings, the C library, the registration and the binding all use it.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "include/npu_rope.h"

namespace npu_rope {

// An error: the parts of its message, and the message.
struct BrokenRule {
    std::string op, argument, rule, value, message;
    BrokenRule(std::string op, std::string argument, std::string rule, std::string value)
        : op(std::move(op)), argument(std::move(argument)), rule(std::move(rule)), value(std::move(value)) {
        message = "[" + this->op + "] " + this->argument + " must " + this->rule + " but got " + this->value + ".";
    }
};

// The result of a check: an error, or kOk. The kinds have the values of npu_rope_status.
struct Check {
    enum Kind { kOk = 0, kValue = 1, kType = 2, kInternal = 3 };
    Kind kind = kOk;
    std::shared_ptr<const BrokenRule> broken;  // NULL if kOk
    bool ok() const { return kind == kOk; }
    std::string message() const { return broken ? broken->message : std::string(); }
};

// The attribute `cold` moves the code that makes errors away from the code that a correct call executes.
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

// Returns the error for a fault of this library or of the machine, not of the call.
[[gnu::cold, gnu::noinline]] inline Check internal_error(std::string op, std::string argument, std::string rule,
                                                         std::string value) {
    return {Check::kInternal,
            std::make_shared<BrokenRule>(std::move(op), std::move(argument), std::move(rule), std::move(value))};
}

// Renames the argument `mode` to rope_mode, its name in the schemas of torch's operators.
inline Check named_as_in_schema(const Check& c) {
    if (!c.broken || c.broken->argument != "mode") return c;
    const BrokenRule& b = *c.broken;
    return {c.kind, std::make_shared<BrokenRule>(b.op, "rope_mode", b.rule, b.value)};
}

// Returns a check's error as a struct of the C interface. The check owns the strings.
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

// Formats a rule or a value as printf does.
[[gnu::cold, gnu::noinline]] __attribute__((format(printf, 1, 2))) inline std::string formatted(const char* format,
                                                                                                ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

// Formats a shape as Python prints a list: "[2, 3]".
[[gnu::cold, gnu::noinline]] inline std::string shape_text(const int64_t* shape, int ndim) {
    std::string text = "[";
    for (int i = 0; i < ndim; ++i) {
        if (i) text += ", ";
        text += std::to_string(shape[i]);
    }
    return text + "]";
}

}  // namespace npu_rope
