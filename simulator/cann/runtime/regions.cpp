#include "cann/runtime/regions.h"

#include <algorithm>

namespace simulated_cann {
namespace {

constexpr int kMaxSteps = 200000;  // bound on the loop iterations of one overlap()

// A part of a region: one index in each of its first `skipped_dims` dimensions. It has the bytes from `low` to `high`.
struct SubRegion {
    const Region* region;
    size_t skipped_dims;
    uintptr_t low, high;

    bool is_dense() const { return skipped_dims == region->dims.size(); }
};

SubRegion whole_region(const Region& region) { return {&region, 0, region.low, region.high}; }

bool overlap(const SubRegion& a, const SubRegion& b, int* steps_left) {
    if (a.low >= b.high || b.low >= a.high) return false;
    if (a.is_dense() && b.is_dense()) return true;
    if (a.is_dense() || (!b.is_dense() && b.high - b.low > a.high - a.low)) return overlap(b, a, steps_left);
    // Split `a` along its first dimension. Only indices whose bytes reach into the range of b need a test.
    const Region::Dim& dim = a.region->dims[a.skipped_dims];
    const auto part_bytes = int64_t(a.high - a.low) - (dim.count - 1) * dim.stride;
    // The bytes between the end of the first index and b. Indices up to gap_bytes / stride end before b.
    const int64_t gap_bytes = int64_t(b.low) - int64_t(a.low) - part_bytes;
    const int64_t first = gap_bytes < 0 ? 0 : gap_bytes / dim.stride + 1;
    const int64_t last = std::min(dim.count - 1, (int64_t(b.high - a.low) - 1) / dim.stride);
    for (int64_t i = first; i <= last; ++i) {
        if (--*steps_left < 0) return false;
        const uintptr_t low = a.low + uintptr_t(i * dim.stride);
        if (overlap({a.region, a.skipped_dims + 1, low, low + uintptr_t(part_bytes)}, b, steps_left)) return true;
    }
    return false;
}

}  // namespace

Region region_of(const MemoryAccess& access) {
    Region region;
    region.low = reinterpret_cast<uintptr_t>(access.first);
    region.run_bytes = access.item_bytes;
    for (size_t dim_index = 0; dim_index < access.shape.size(); ++dim_index) {
        if (access.shape[dim_index] == 0) {
            region.high = region.low;
            region.dims.clear();
            return region;
        }
        int64_t stride = access.strides[dim_index] * access.item_bytes;
        if (access.shape[dim_index] == 1 || stride == 0) continue;
        if (stride < 0) {
            region.low -= uintptr_t(-stride * (access.shape[dim_index] - 1));
            stride = -stride;
        }
        region.dims.push_back({stride, access.shape[dim_index]});
    }
    std::sort(region.dims.begin(), region.dims.end(),
              [](const Region::Dim& a, const Region::Dim& b) { return a.stride > b.stride; });
    // Merge contiguous dimensions: the innermost ones into a longer run, adjacent ones into one dimension.
    while (!region.dims.empty() && region.dims.back().stride <= region.run_bytes) {
        const Region::Dim dim = region.dims.back();
        region.run_bytes = (dim.count - 1) * dim.stride + region.run_bytes;
        region.dims.pop_back();
    }
    for (size_t dim_index = region.dims.size(); dim_index-- > 1;)
        if (region.dims[dim_index - 1].stride == region.dims[dim_index].stride * region.dims[dim_index].count) {
            region.dims[dim_index - 1] = {region.dims[dim_index].stride,
                                          region.dims[dim_index - 1].count * region.dims[dim_index].count};
            region.dims.erase(region.dims.begin() + std::ptrdiff_t(dim_index));
        }
    region.high = region.low + uintptr_t(region.run_bytes);
    for (const Region::Dim& dim : region.dims) region.high += uintptr_t((dim.count - 1) * dim.stride);
    return region;
}

Region dense_region(const void* first, uint64_t bytes) {
    Region region;
    region.low = reinterpret_cast<uintptr_t>(first);
    region.high = region.low + bytes;
    region.run_bytes = int64_t(bytes);
    return region;
}

bool overlap(const Region& a, const Region& b) {
    if (a.empty() || b.empty()) return false;
    int steps_left = kMaxSteps;
    return overlap(whole_region(a), whole_region(b), &steps_left);
}

}  // namespace simulated_cann
