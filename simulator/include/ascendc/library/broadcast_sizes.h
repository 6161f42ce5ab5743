// Temporary memory of Broadcast; as tmp_sizes.h.
//
// Source: the page GetBroadCastMaxMinTmpSize; the figures are those of asc-devkit's impl/adv_api/tiling/pad.
#pragma once

#include "tmp_sizes.h"

namespace ascend_sim {

constexpr uint64_t round_up_64(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The sizes that the host's function returns: memory of the conversion of 8-bit elements, and of the steps. With few
// rows `most` can be less than `least`.
constexpr TmpSizes broadcast_sizes(uint64_t src_rows, uint64_t src_columns, uint64_t rows, uint64_t columns,
                                   uint32_t type_bytes, bool is310p, bool is950) {
    const uint64_t source = src_rows * src_columns, all = rows * columns;
    const uint32_t cast = type_bytes == 1 ? uint32_t(round_up_64(source, 16) + round_up_64(all, 16)) * 2 : 0;
    if (source == all || source == 1) return type_bytes == 1 ? TmpSizes{cast + 32, cast + 32} : TmpSizes{0, 0};
    if (is950) return {0, 0};
    if (src_columns != 1) return {cast + 32, cast + 32};
    const uint32_t bytes = type_bytes == 1 ? 2 : type_bytes, in_block = 32 / bytes;
    if (is310p) {
        const uint32_t least = uint32_t(in_block * ((columns + 7) / 8) * bytes);
        return {uint32_t(32 + cast + all * bytes), 32 + cast + least};
    }
    const uint32_t blocks = in_block * in_block * bytes,
                   most_blocks = uint32_t(round_up_64(rows, 8) * in_block * bytes);
    if (columns % in_block == 0) return {most_blocks + cast, blocks + cast};
    const uint64_t row = round_up_64(columns, in_block) * bytes;
    return {uint32_t(most_blocks + rows * row + cast), uint32_t(blocks + in_block * row + cast)};
}

}  // namespace ascend_sim
