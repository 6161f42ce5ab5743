// How the tests of tilings report a broken condition of a call. Each test has describe(), which prints its call.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "csrc/core/check.h"

inline int g_failures = 0;

// Prints the condition and the call. Ends the test at the eleventh failure.
template <typename Case>
void report_failure(const char* file, int line, const char* condition, const Case& c) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, condition);
    describe(c);
    if (++g_failures > 10) std::exit(1);
}

#define CHECK(c, condition) ((condition) ? void() : report_failure(__FILE__, __LINE__, #condition, c))

// Ends the test if a call is refused.
template <typename Case>
void require_accepted(const npu_rope::Check& check, const Case& c) {
    if (check.ok()) return;
    std::fprintf(stderr, "%s\n", check.message().c_str());
    describe(c);
    std::exit(1);
}
