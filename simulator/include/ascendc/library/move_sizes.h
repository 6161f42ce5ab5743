// Sizes of the temporary memory of CumSum, DropOut, Select with a mask of bytes, and Pad. Like tmp_sizes.h, plain C++
// for host and kernel.
//
// Source: the pages GetCumSumMaxMinTmpSize, GetDropOutMaxMinTmpSize, GetSelectMaxMinTmpSize, Pad Tiling. The figures
// are those of asc-devkit's impl/adv_api/tiling.
#pragma once

#include "tmp_sizes.h"

namespace ascend_sim {

// Along rows, CumSum transposes 16 rows at a time, adds, and transposes back. Halves become floats.
constexpr TmpSizes cum_sum_sizes(uint32_t rows, uint32_t columns, uint32_t type_bytes, bool last_axis) {
    constexpr uint32_t kRows = 16;
    if (!last_axis) {
        const uint32_t bytes = type_bytes == 2 ? rows * columns * 4 : 0;
        return {bytes, bytes};
    }
    const uint32_t padded_rows = (rows + kRows - 1) / kRows * kRows,
                   row_bytes = columns * (2 * type_bytes + (type_bytes == 2 ? 2 : 0));
    return {padded_rows * row_bytes, kRows * row_bytes};
}

constexpr TmpSizes drop_out_sizes(uint32_t elements) {
    constexpr uint32_t kLeast = 512;
    return {2 * elements * 4 > kLeast ? 2 * elements * 4 : kLeast, kLeast};
}

// columns: elements of a row of the sources. mask_columns: elements of a row of the mask.
constexpr TmpSizes select_sizes(uint32_t elements, uint32_t columns, uint32_t mask_columns, uint32_t mask_bytes,
                                bool reuse_mask) {
    constexpr uint32_t kMaxElements = 4096, kReserved = 512, kLeast = 1024;
    const auto bytes_of_halves = [](uint32_t n) {
        const uint32_t bytes = (n + 31) / 32 * 32 * 2 + kReserved;
        return bytes > kLeast ? bytes : kLeast;
    };
    const bool copies_mask = mask_columns != columns && !reuse_mask && mask_columns > 1;
    const uint32_t mask_copy_bytes = copies_mask ? (elements * mask_bytes + 31) / 32 * 32 : 0;
    return {bytes_of_halves(elements) + mask_copy_bytes,
            bytes_of_halves(elements > kMaxElements ? kMaxElements : elements) + mask_copy_bytes};
}

// Two arrays, each with 16 blocks of 32 bytes for 16 elements.
constexpr TmpSizes pad_sizes(uint32_t elements) {
    constexpr uint32_t kUnit = 16 * 32 * 2;
    return {(elements + 15) / 16 * kUnit, kUnit};
}

}  // namespace ascend_sim
