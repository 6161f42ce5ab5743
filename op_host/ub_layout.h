// Layouts of UB and the search for the best one, for the tiles of all kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "op_host/work_split.h"
#include "op_kernel/rope_tiling_data.h"

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

// Sets the numbers of heads of a call whose sides have these numbers of heads.
inline void set_heads(CommonTiling& common, std::initializer_list<int64_t> sides) {
    const int64_t* heads = sides.begin();
    int64_t end = 0;
    for (int32_t& side_end : common.heads_end) side_end = to_int32(end += heads == sides.end() ? 0 : *heads++);
    common.heads = to_int32(end);
}

// The number of heads of a side.
inline int64_t heads_of_side(const CommonTiling& common, int side) {
    return common.heads_end[side] - (side == 0 ? 0 : common.heads_end[side - 1]);
}

// Sets the fields of the tiling that all layouts determine in the same way. buffers: the number of input buffers.
template <typename Layout>
void set_common_layout(CommonTiling& common, const Layout& layout, int64_t buffers = 2) {
    common.tile_tokens[0] = to_int32(layout.tile.tokens);
    common.tile_heads = to_int32(layout.tile.heads);
    common.gather_rows = to_int32(layout.gather_rows);
    common.setup_lanes = to_int32(layout.setup_lanes);
    common.queue_bytes = to_int32(layout.inputs.bytes / buffers);
    common.tail_offset_bytes = to_int32(layout.tail_offset);
    common.work_bytes = to_int32(layout.work.bytes);
    common.temp_offset_bytes = to_int32(layout.temp_offset);
    common.gather_bytes = to_int32(layout.gather_offsets.bytes);
}

// Returns the layout of the cheapest tile that fits UB, or std::nullopt if no tile fits.
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
