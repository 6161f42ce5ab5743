// Sizes that decide whether to store output past the caches. A store past the caches does not read the output's cache
// lines first. This saves time if the caches are too small to keep the output.
#pragma once

#include <cstdint>

namespace npu_rope {

// Total size of input and output above which the caches are assumed not to keep them. It is a constant, because in some
// virtual machines sysconf reports a last-level cache whose size is wrong by a factor of ten.
constexpr int64_t kStreamAboveBytes = int64_t{32} << 20;

// Alignment that is sufficient for the streaming stores of every instruction set.
constexpr int64_t kStreamAlignBytes = 32;

}  // namespace npu_rope
