// Raise the registration's errors. Torch passes on only the message, in a RuntimeError; this library keeps the parts.
#pragma once

#include <memory>
#include <stdexcept>

#include "csrc/core/check.h"
#include "include/npu_rope.h"

namespace npu_rope {

inline thread_local Check g_last_error;

inline void raise_on(const Check& c) {
    if (c.ok()) return;
    g_last_error = named_as_in_schema(c);
    throw std::runtime_error(g_last_error.message());
}

inline void raise_on(npu_rope_status status) {
    if (status == NPU_ROPE_OK) return;
    const npu_rope_error e = npu_rope_last_error_parts();
    raise_on({static_cast<Check::Kind>(status), std::make_shared<BrokenRule>(e.op, e.argument, e.rule, e.value)});
}

}  // namespace npu_rope
