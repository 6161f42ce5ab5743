// Sizes that decide whether to store output past the caches. A store past the caches does not read the output's cache
// lines first. This saves time if the caches are too small to keep the output.
#pragma once

#include <cstdint>

namespace npu_rope {

// Size of the last-level cache. It is a constant, because in some virtual machines sysconf reports a size that is wrong
// by a factor of ten.
constexpr int64_t kCacheBytes = int64_t{32} << 20;

// Whether to store past the caches in a call whose tensors have this total size. These limits come from measurements
// that also read the result, with a cache of kCacheBytes. There, stores past the caches make one thread faster from
// half the cache's size on, and several threads from its full size on, or from another size of the caller's.
inline bool exceeds_caches(int threads, int64_t total_bytes, int64_t size_of_threads = kCacheBytes) {
    return threads == 1 ? total_bytes > kCacheBytes / 2 : total_bytes >= size_of_threads;
}

// Alignment that is sufficient for the streaming stores of every instruction set.
constexpr int64_t kStreamAlignBytes = 32;

}  // namespace npu_rope
