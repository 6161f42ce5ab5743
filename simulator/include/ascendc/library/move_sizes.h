// Temporary memory of CumSum, DropOut, Select with a mask of bytes, and Pad; as tmp_sizes.h.
//
// Source: the pages GetCumSumMaxMinTmpSize, GetDropOutMaxMinTmpSize, GetSelectMaxMinTmpSize, Pad Tiling; the figures
// are those of asc-devkit's impl/adv_api/tiling.
#pragma once

#include "tmp_sizes.h"

namespace ascend_sim {

// Along rows: 16 rows at a time are transposed twice, and halves become floats.
constexpr TmpSizes cum_sum_sizes(uint32_t rows, uint32_t columns, uint32_t type_bytes, bool last_axis) {
    constexpr uint32_t kRows = 16;
    if (!last_axis) {
        const uint32_t bytes = type_bytes == 2 ? rows * columns * 4 : 0;
        return {bytes, bytes};
    }
    const uint32_t whole = (rows + kRows - 1) / kRows * kRows,
                   unit = columns * (2 * type_bytes + (type_bytes == 2 ? 2 : 0));
    return {whole * unit, kRows * unit};
}

constexpr TmpSizes drop_out_sizes(uint32_t elements) {
    constexpr uint32_t kLeast = 512;
    return {2 * elements * 4 > kLeast ? 2 * elements * 4 : kLeast, kLeast};
}

// columns: of the sources and of the mask.
constexpr TmpSizes select_sizes(uint32_t elements, uint32_t columns, uint32_t mask_columns, uint32_t mask_bytes,
                                bool reuse_mask) {
    constexpr uint32_t kMost = 4096, kReserved = 512, kLeast = 1024;
    const auto halves = [](uint32_t n) {
        const uint32_t bytes = (n + 31) / 32 * 32 * 2 + kReserved;
        return bytes > kLeast ? bytes : kLeast;
    };
    const bool copies_mask = mask_columns != columns && !reuse_mask && mask_columns > 1;
    const uint32_t mask = copies_mask ? (elements * mask_bytes + 31) / 32 * 32 : 0;
    return {halves(elements) + mask, halves(elements > kMost ? kMost : elements) + mask};
}

// Two arrays of 16 blocks for each 16 elements.
constexpr TmpSizes pad_sizes(uint32_t elements) {
    constexpr uint32_t kUnit = 16 * 32 * 2;
    return {(elements + 15) / 16 * kUnit, kUnit};
}

}  // namespace ascend_sim
