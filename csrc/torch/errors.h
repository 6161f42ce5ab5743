// Raises the registration's errors. Torch passes on only the message, in a RuntimeError. The library that found an
// error keeps its parts: libnpu_rope for a status, this one for a Check.
#pragma once

#include <stdexcept>

#include "csrc/core/check.h"
#include "include/npu_rope.h"

namespace npu_rope {

inline thread_local Check g_last_error;

inline void raise_on(npu_rope_status status) {
    if (status != NPU_ROPE_OK) throw std::runtime_error(npu_rope_last_error());
}

inline void raise_on(const Check& c) {
    if (c.ok()) return;
    g_last_error = c;
    throw std::runtime_error(c.message());
}

}  // namespace npu_rope
