// The bytes of a view, and whether two views share a byte.
#pragma once

#include <cstdint>
#include <vector>

#include "cann/runtime/objects.h"

namespace simulated_cann {

// Runs of `run` bytes from `low`, repeated with the strides of `dims`, the largest stride first.
struct Region {
    struct Dim {
        int64_t stride, count;
        bool operator==(const Dim& other) const { return stride == other.stride && count == other.count; }
    };
    uintptr_t low = 0, high = 0;  // high is one past the last byte; low if the region is empty
    int64_t run = 0;
    std::vector<Dim> dims;

    bool empty() const { return low == high; }
    bool is_dense() const { return dims.empty(); }
    bool operator==(const Region& other) const {
        return low == other.low && high == other.high && run == other.run && dims == other.dims;
    }
};

Region region_of(const MemoryAccess& access);
Region dense_region(const void* first, uint64_t bytes);

// Exact up to a bound on the computation. Beyond the bound, two interleaved regions count as disjoint.
bool overlap(const Region& a, const Region& b);

}  // namespace simulated_cann
