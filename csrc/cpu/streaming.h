// When to write output past the caches: this saves reading the output's lines, which the caches would not keep.
#pragma once

#include <cstdint>

namespace npu_rope {

// Total size of input and output above which the caches are assumed not to keep them. It is a constant,
// because the size of the last level that sysconf reports is wrong by a factor of ten inside some virtual machines.
constexpr int64_t kStreamAbove = int64_t{32} << 20;

// Alignment that is sufficient for the streaming stores of every kernel set.
constexpr int64_t kStreamAlign = 32;

}  // namespace npu_rope
