// The tiles of the rotation kernels. layout_of() returns the layout of UB for a tile; tile_candidates() returns the
// tiles from which best_layout() chooses. Both are pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "op_host/row_factors_tiling.h"
#include "op_host/ub_layout.h"
#include "op_kernel/rope_tiling_data.h"

namespace npu_rope {

constexpr int64_t kMaxNormRows = 512;  // of a tile with a norm: each row needs memory for its statistics

// The properties of a call on which its layouts depend. The kernel computes tables from positions or loads given
// tables.
struct RopeTileCall {
    const CommonTiling* common = nullptr;      // layout_of() does not read its tile sizes and UB sizes
    int32_t sides = 1;                         // tensors of heads
    int64_t ub_bytes = 0;                      // bytes that the kernel may allocate
    int64_t item_bytes = 0, out_bytes = 0;     // bytes of an element of x, and of out
    int32_t key = 0;                           // the tiling key: kRopeHalves, ...
    int64_t position_bytes = 0;                // bytes of a token's positions on all planes
    int64_t entry_bytes = 0, entry_pitch = 0;  // given tables: bytes of an entry; entries from one row to the next
    bool normalizes = false;                   // each head is normalized before its rotation
    bool normalizes_partners = false;          // each head's partners are also normalized

    // qkv_norm_rope_cache
    int64_t whole_heads = 0;       // a tile has all heads of a side with up to that many, to normalize them together
    bool stores_any_type = false;  // the kernel converts float32 rows to the type of each output
    int64_t buffers = 2;           // number of input buffers, and of output buffers
    int64_t value_size = 0;        // the head size of values; 0: the call has none
    int64_t out_row_bytes[kRopeMaxSides] = {};  // a row of a head of each output in UB
    RowFactorsPlaces factors = {};              // the rows of scales, biases and quantization

    // The elements of the longest head, and those of its row in UB.
    int64_t max_head_size() const { return std::max<int64_t>(has_rotated_heads() ? common->head_size : 0, value_size); }
    int64_t max_row_pitch() const {
        return std::max<int64_t>(has_rotated_heads() ? common->row_pitch : 0, value_pitch());
    }
    bool has_rotated_heads() const { return common->heads_end[kRopeRotatedSides - 1] > 0; }
    int64_t value_pitch() const { return round_up(value_size, kUbBlockBytes / item_bytes); }
};

// A tile, and the size of its table.
struct RopeTile {
    int64_t tokens = 0, heads = 0;  // of a tile of side 0
    int64_t table_tokens = 0;       // minimum number of tokens of one table, unless a unit has fewer

    int64_t rows() const { return tokens * heads; }
};

// The layout of UB for a tile. Most names are explained in CommonTiling and HeadNormTiling.
struct RopeLayout {
    RopeTile tile;
    int64_t block_tokens = 0, token_slots = 0, gather_rows = 0, setup_lanes = 0;
    int64_t tile_tokens[kRopeMaxSides] = {};  // tokens of a tile of each side
    int64_t tail_offset = 0;                  // in an input or output buffer, in bytes
    int64_t temp_offset = 0;                  // in `work`, in bytes
    int64_t staging_offset = 0;               // in `work`, in bytes: behind the scratch memory of constants and tables
    int64_t cos_offset = 0;                   // in `table`, in bytes
    int64_t buffers = 2;                      // number of input buffers, and of output buffers
    UbRegion inputs, outputs;
    UbRegion work, gather_offsets, frequencies, table, source, entry_offsets, stats, factors, scales, raw_scales;

    // In the order in which the kernels allocate them.
    std::array<UbRegion*, 12> regions() {
        return {&inputs, &outputs,       &work,  &gather_offsets, &frequencies, &table,
                &source, &entry_offsets, &stats, &factors,        &scales,      &raw_scales};
    }
};

// Returns nothing if the layout exceeds UB.
std::optional<RopeLayout> layout_of(const RopeTileCall& call, const RopeTile& tile);

// Returns tiles that the kernel's instructions support. Their layouts may exceed UB.
std::vector<RopeTile> tile_candidates(const RopeTileCall& call);

// A tile costs less if a table serves more tokens. For equal tables, more rows cost less, because DMAs are longer.
inline bool costs_less(const RopeTile& a, const RopeTile& b) {
    return a.table_tokens != b.table_tokens ? a.table_tokens > b.table_tokens : a.rows() > b.rows();
}

}  // namespace npu_rope
