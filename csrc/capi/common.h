// Shared parts of all C functions: keep the thread's last error, and convert exceptions to errors.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "csrc/core/check.h"
#include "include/npu_rope.h"

namespace npu_rope {

// Stores a failed check as the thread's last error. Returns the status of any check.
npu_rope_status report(const Check& check);

// Stores the error of a call for which there is no memory, not even for its own error.
npu_rope_status report_no_memory();

// Runs body(), which returns a Check, and returns its status. An exception becomes an internal error of `op`.
template <typename F>
npu_rope_status guarded(const char* op, F body) noexcept {
    try {
        return report(body());
    } catch (const std::exception& e) {
        try {
            return report(internal_error(op, "call", "succeed", e.what()));
        } catch (const std::bad_alloc&) {
            return report_no_memory();
        }
    }
}

}  // namespace npu_rope
