// When output is written past the caches: where it will not be found in them anyway, which saves reading it
// first.
#pragma once

#include <cstdint>

namespace npu_rope {

// Input and output together above this are taken not to stay in the caches. A constant: what
// sysconf reports as the last level is off by a factor of ten inside some virtual machines.
constexpr int64_t kStreamAbove = int64_t{32} << 20;

// Alignment that every kernel set's streaming stores are content with.
constexpr int64_t kStreamAlign = 32;

}  // namespace npu_rope
