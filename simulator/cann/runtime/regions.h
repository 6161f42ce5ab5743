// The bytes of a view, and whether two views share a byte.
#pragma once

#include <cstdint>
#include <vector>

#include "cann/runtime/objects.h"

namespace simulated_cann {

// Runs of `run_bytes` contiguous bytes. The first run begins at `low`. The others follow by the strides of `dims`,
// whose largest stride is first.
struct Region {
    struct Dim {
        int64_t stride, count;  // stride in bytes
        bool operator==(const Dim& other) const { return stride == other.stride && count == other.count; }
    };
    uintptr_t low = 0, high = 0;  // high is the byte after the last one; equal to low if the region is empty
    int64_t run_bytes = 0;
    std::vector<Dim> dims;

    bool empty() const { return low == high; }
    bool is_dense() const { return dims.empty(); }
    bool operator==(const Region& other) const {
        return low == other.low && high == other.high && run_bytes == other.run_bytes && dims == other.dims;
    }
};

Region region_of(const MemoryAccess& access);
Region dense_region(const void* first, uint64_t bytes);

// Whether the regions share a byte. The number of steps is bounded: interleaved regions that need more steps count as
// disjoint.
bool overlap(const Region& a, const Region& b);

}  // namespace simulated_cann
