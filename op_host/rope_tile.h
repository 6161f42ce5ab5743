// The tile of a rotation kernel: the layout of UB for a tile, and the tiles among which best_layout() chooses. Pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "op_host/ub_layout.h"
#include "op_kernel/rope_tiling_data.h"

namespace npu_rope {

// The properties of a call on which its layouts depend. A kernel computes tables from positions or loads given ones.
struct RopeTileCall {
    const CommonTiling* common = nullptr;  // its tile and its layout of UB are not read
    int32_t sides = 1;                     // tensors that the call rotates
    int64_t ub_bytes = 0;                  // what the kernel may allocate
    int64_t item_bytes = 0, out_bytes = 0;
    int32_t key = 0;                           // kRopeHalves, ...
    int64_t position_bytes = 0;                // of one token, for all planes
    int64_t entry_bytes = 0, entry_pitch = 0;  // of given tables: an entry, and entries from a row to the next
    bool normalizes = false;                   // each head is normalized before its rotation
    bool normalizes_partners = false;          // each head's partners are also normalized
};

// A candidate.
struct RopeTile {
    int64_t tokens = 0, heads = 0;  // of a tile of side 0
    int64_t table_tokens = 0;       // least number of tokens of one table, if a unit has as many

    int64_t rows() const { return tokens * heads; }
};

// The layout of UB for a tile. CommonTiling and HeadNormTiling explain the names.
struct RopeLayout {
    RopeTile tile;
    int64_t block_tokens = 0, token_slots = 0, side1_tokens = 0, gather_rows = 0, setup_lanes = 0;
    int64_t tail_offset = 0, temp_offset = 0, cos_offset = 0;  // in bytes, inside a buffer, work and table
    UbRegion inputs, outputs;                                  // two buffers each
    UbRegion work, gather_offsets, frequencies, table, source, entry_offsets, stats, factors, scales, raw_scales;

    // In the order in which the kernels allocate them.
    std::array<UbRegion*, 12> regions() {
        return {&inputs, &outputs,       &work,  &gather_offsets, &frequencies, &table,
                &source, &entry_offsets, &stats, &factors,        &scales,      &raw_scales};
    }
};

// Returns nothing if the layout exceeds UB.
std::optional<RopeLayout> layout_of(const RopeTileCall& call, const RopeTile& tile);

// Tiles that the kernel's instructions support, whether or not their layouts fit.
std::vector<RopeTile> tile_candidates(const RopeTileCall& call);

// A tile costs less if a table serves more tokens. For equal tables, more rows cost less, because DMAs are longer.
inline bool costs_less(const RopeTile& a, const RopeTile& b) {
    return a.table_tokens != b.table_tokens ? a.table_tokens > b.table_tokens : a.rows() > b.rows();
}

}  // namespace npu_rope
