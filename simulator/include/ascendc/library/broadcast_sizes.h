// Sizes of the temporary memory of Broadcast. Like tmp_sizes.h, plain C++ for host and kernel.
//
// Source: the page GetBroadCastMaxMinTmpSize. The figures are those of asc-devkit's impl/adv_api/tiling/pad.
#pragma once

#include "tmp_sizes.h"

namespace ascend_sim {

constexpr uint64_t round_up_64(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The sizes that the host's function returns: memory for the cast of 8-bit elements to half, and for the steps. `most`
// can be less than `least` if there are few rows.
constexpr TmpSizes broadcast_sizes(uint64_t src_rows, uint64_t src_columns, uint64_t rows, uint64_t columns,
                                   uint32_t type_bytes, bool is310p, bool is950) {
    const uint64_t source = src_rows * src_columns, all = rows * columns;
    const uint32_t cast_bytes = type_bytes == 1 ? uint32_t(round_up_64(source, 16) + round_up_64(all, 16)) * 2 : 0;
    if (source == all || source == 1)
        return type_bytes == 1 ? TmpSizes{cast_bytes + 32, cast_bytes + 32} : TmpSizes{0, 0};
    if (is950) return {0, 0};
    if (src_columns != 1) return {cast_bytes + 32, cast_bytes + 32};
    const uint32_t bytes = type_bytes == 1 ? 2 : type_bytes, elements_per_block = 32 / bytes;
    if (is310p) {
        const uint32_t least = uint32_t(elements_per_block * ((columns + 7) / 8) * bytes);
        return {uint32_t(32 + cast_bytes + all * bytes), 32 + cast_bytes + least};
    }
    const uint32_t least_block_bytes = elements_per_block * elements_per_block * bytes,
                   most_block_bytes = uint32_t(round_up_64(rows, 8) * elements_per_block * bytes);
    if (columns % elements_per_block == 0) return {most_block_bytes + cast_bytes, least_block_bytes + cast_bytes};
    const uint64_t row_bytes = round_up_64(columns, elements_per_block) * bytes;
    return {uint32_t(most_block_bytes + rows * row_bytes + cast_bytes),
            uint32_t(least_block_bytes + elements_per_block * row_bytes + cast_bytes)};
}

}  // namespace ascend_sim
