// The tiles of the norms' kernels. A tile is whole rows or a chunk of one row. layout_of() returns the layout of UB for
// a tile; row_tiles() and chunk_tiles() return the tiles from which best_layout() chooses. All are pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "op_host/ub_layout.h"
#include "op_kernel/rms_norm_tiling_data.h"

namespace npu_rope {

// The properties of a call on which its layouts depend.
struct RmsNormTileCall {
    const CommonTiling* common = nullptr;  // layout_of() does not read its tile sizes and UB sizes
    int64_t ub_bytes = 0;                  // bytes that the kernel may allocate
    int64_t n = 0;                         // elements of a row
    int64_t x_bytes = 0, out_bytes = 0;    // bytes of an element of x; of scale, out and grad
    bool adds = false, backward = false;   // add_rms_norm, rms_norm_backward
    bool scale_shared = true;              // all rows have one scale
    int64_t scale_pitch = 0;               // distance in UB from the scale of a row to the next one, in elements
};

// A tile: whole rows, or a chunk of one row.
struct RmsNormTile {
    int64_t tokens = 1, heads = 1;
    int64_t chunk = 0;         // elements; 0: whole rows
    bool keeps_row = false;    // UB keeps a row between its passes; in rms_norm_backward: the sums of dscale
    bool keeps_scale = false;  // UB keeps the scale after its first load

    int64_t rows() const { return tokens * heads; }
};

// The layout of UB for a tile. RmsNormTilingData explains the names.
struct RmsNormLayout {
    RmsNormTile tile;
    int64_t levels = 0, gather_rows = 0, setup_lanes = 0;
    int64_t tail_offset = 0;                           // in an input or output buffer, in bytes
    int64_t g_offset = 0, temp_offset = 0;             // in `work`, in bytes
    UbRegion inputs, outputs, residuals, sums, grads;  // two buffers each
    UbRegion row, work, stats, dscale, scale, raw_scale, gather_offsets;

    std::array<UbRegion*, 12> regions() {
        return {&inputs, &outputs, &residuals, &sums,  &grads,     &row,
                &work,   &stats,   &dscale,    &scale, &raw_scale, &gather_offsets};
    }
};

// Returns nothing if the layout exceeds UB.
std::optional<RmsNormLayout> layout_of(const RmsNormTileCall& call, const RmsNormTile& tile);

// Return tiles of whole rows, or chunks. Their layouts may exceed UB.
std::vector<RmsNormTile> row_tiles(const RmsNormTileCall& call);
std::vector<RmsNormTile> chunk_tiles(const RmsNormTileCall& call);

// A tile costs less if UB keeps more between the passes over a row. If UB keeps the same, the larger tile costs less.
inline bool costs_less(const RmsNormTile& a, const RmsNormTile& b) {
    if (a.keeps_row != b.keeps_row) return a.keeps_row;
    if (a.keeps_scale != b.keeps_scale) return a.keeps_scale;
    return a.chunk != b.chunk ? a.chunk > b.chunk : a.rows() > b.rows();
}

}  // namespace npu_rope
