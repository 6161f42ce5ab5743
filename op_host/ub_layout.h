// Layouts of UB and the search for the best one, for the tiles of all kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace npu_rope {

struct UbRegion {
    int64_t offset = 0, bytes = 0;
};

// Places the regions one after another. Returns their total size.
template <size_t n>
int64_t place_regions(const std::array<UbRegion*, n>& regions) {
    int64_t end = 0;
    for (UbRegion* region : regions) {
        region->offset = end;
        end += region->bytes;
    }
    return end;
}

// The layout (std::optional) of the cheapest tile that fits; nothing if none fits.
template <typename Call, typename Tile>
auto best_layout(const Call& call, const std::vector<Tile>& candidates) -> decltype(layout_of(call, Tile{})) {
    decltype(layout_of(call, Tile{})) best;
    for (const Tile& tile : candidates) {
        if (best && !costs_less(tile, best->tile)) continue;
        if (auto layout = layout_of(call, tile)) best = layout;
    }
    return best;
}

}  // namespace npu_rope
