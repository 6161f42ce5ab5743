#include "cann/runtime/regions.h"

#include <algorithm>

namespace simulated_cann {
namespace {

constexpr int kMaxSteps = 200000;

// A region without its first `skipped` dims, moved to another first byte.
struct Part {
    const Region* region;
    size_t skipped;
    uintptr_t low, high;

    bool is_dense() const { return skipped == region->dims.size(); }
};

Part as_part(const Region& region) { return {&region, 0, region.low, region.high}; }

bool overlap(const Part& a, const Part& b, int* steps) {
    if (a.low >= b.high || b.low >= a.high) return false;
    if (a.is_dense() && b.is_dense()) return true;
    if (a.is_dense() || (!b.is_dense() && b.high - b.low > a.high - a.low)) return overlap(b, a, steps);
    // `a` is split along its first dim, at the indices whose bytes reach into b's span.
    const Region::Dim& dim = a.region->dims[a.skipped];
    const auto reach = int64_t(a.high - a.low) - (dim.count - 1) * dim.stride;
    const int64_t before = int64_t(b.low) - int64_t(a.low) - reach;  // indices up to before / stride end before b
    const int64_t first = before < 0 ? 0 : before / dim.stride + 1;
    const int64_t last = std::min(dim.count - 1, (int64_t(b.high - a.low) - 1) / dim.stride);
    for (int64_t i = first; i <= last; ++i) {
        if (--*steps < 0) return false;
        const uintptr_t low = a.low + uintptr_t(i * dim.stride);
        if (overlap({a.region, a.skipped + 1, low, low + uintptr_t(reach)}, b, steps)) return true;
    }
    return false;
}

}  // namespace

Region region_of(const MemoryAccess& access) {
    Region region;
    region.low = reinterpret_cast<uintptr_t>(access.first);
    region.run = access.item_bytes;
    for (size_t d = 0; d < access.shape.size(); ++d) {
        if (access.shape[d] == 0) {
            region.high = region.low;
            region.dims.clear();
            return region;
        }
        int64_t stride = access.strides[d] * access.item_bytes;
        if (access.shape[d] == 1 || stride == 0) continue;
        if (stride < 0) {
            region.low -= uintptr_t(-stride * (access.shape[d] - 1));
            stride = -stride;
        }
        region.dims.push_back({stride, access.shape[d]});
    }
    std::sort(region.dims.begin(), region.dims.end(),
              [](const Region::Dim& a, const Region::Dim& b) { return a.stride > b.stride; });
    // Merge contiguous dims: the innermost dims into a longer run, adjacent dims into one dim.
    while (!region.dims.empty() && region.dims.back().stride <= region.run) {
        const Region::Dim dim = region.dims.back();
        region.run = (dim.count - 1) * dim.stride + region.run;
        region.dims.pop_back();
    }
    for (size_t d = region.dims.size(); d-- > 1;)
        if (region.dims[d - 1].stride == region.dims[d].stride * region.dims[d].count) {
            region.dims[d - 1] = {region.dims[d].stride, region.dims[d - 1].count * region.dims[d].count};
            region.dims.erase(region.dims.begin() + std::ptrdiff_t(d));
        }
    region.high = region.low + uintptr_t(region.run);
    for (const Region::Dim& dim : region.dims) region.high += uintptr_t((dim.count - 1) * dim.stride);
    return region;
}

Region dense_region(const void* first, uint64_t bytes) {
    Region region;
    region.low = reinterpret_cast<uintptr_t>(first);
    region.high = region.low + bytes;
    region.run = int64_t(bytes);
    return region;
}

bool overlap(const Region& a, const Region& b) {
    if (a.empty() || b.empty()) return false;
    int steps = kMaxSteps;
    return overlap(as_part(a), as_part(b), &steps);
}

}  // namespace simulated_cann
