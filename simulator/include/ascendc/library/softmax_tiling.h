// The tiling and the temporary memory of SoftMax and the functions related to it. The host's functions use it, and so
// does a kernel's function whose shape is not the tiling's. Plain C++.
//
// Source: the pages SoftMax/SimpleSoftMax Tiling, SoftmaxFlash Tiling, SoftmaxFlashV2 Tiling, SoftmaxGrad Tiling,
// LogSoftMax Tiling; the figures are those of asc-devkit's impl/adv_api/tiling/activation/softmax_tiling.cpp.
#pragma once

#include "tiling_structs.h"
#include "tmp_sizes.h"

namespace ascend_sim {

// The functions that differ in their temporary memory. Plain: SoftMax, LogSoftMax, SimpleSoftMax, and SoftmaxFlash
// without isUpdate.
enum class SoftmaxKind : uint8_t { Plain, FlashUpdate, FlashV2, Grad, GradFront };

// Returns the floats of temporary memory for each row of k elements. A block has 32 bytes of the results' type.
constexpr uint32_t softmax_floats(SoftmaxKind kind, uint32_t k, uint32_t type_bytes, uint32_t result_bytes,
                                  bool basic_block = false) {
    constexpr uint32_t kFold = 64, kLongBasicBlock = 1024;
    const uint32_t block = 32 / result_bytes;
    const bool is_half = type_bytes == 2;
    switch (kind) {
        case SoftmaxKind::FlashUpdate:
            return 4 * block + 2 * k;
        case SoftmaxKind::FlashV2:
            if (basic_block && k % kFold == 0)
                return block + (is_half ? k : 0) + (k == kLongBasicBlock ? 2 * kFold : kFold);
            return is_half ? 2 * block + k + kFold : block + kFold;
        case SoftmaxKind::Grad:
        case SoftmaxKind::GradFront:
            if (is_half) return 2 * block + 3 * k + kFold;
            return (kind == SoftmaxKind::Grad ? 2 * block : block) + k + kFold;
        default:
            return block + k + kFold;
    }
}

// The sizes that the host's functions return: for all rows, and for one row; on Ascend950 both are for all rows.
constexpr TmpSizes softmax_sizes(SoftmaxKind kind, uint32_t m, uint32_t k, uint32_t type_bytes, bool is950) {
    const uint32_t row = softmax_floats(kind, k, type_bytes, type_bytes), block = 32 / type_bytes;
    if (m == 0) return {0, 0};
    if (!is950) return {m * row * 4, row * 4};
    if (kind == SoftmaxKind::Grad || kind == SoftmaxKind::GradFront) {
        const uint32_t least = kind == SoftmaxKind::GradFront ? (m + 63) / 64 * 64 : (2 * m + 127) / 128 * 128;
        return {m * row * 4, least * 4};
    }
    const uint32_t most = m * (block + k + 64), least = m * (block + k);
    if (kind == SoftmaxKind::FlashUpdate) return {most * 4, least * 4};
    const uint32_t fold = m * (8 + k) + 256 + (m + 7) / 8 * 8;
    return {(most > fold ? most : fold) * 4, (least > fold ? least : fold) * 4};
}
constexpr TmpSizes softmax_flash_v2_sizes(uint32_t m, uint32_t k, uint32_t type_bytes, uint32_t result_bytes,
                                          bool update, bool basic_block, bool without_broadcast, bool is950) {
    const uint32_t block = 32 / result_bytes, tile = 32 / type_bytes;
    const bool is_half = type_bytes == 2, is_basic = basic_block && k % 64 == 0;
    const uint32_t row = softmax_floats(SoftmaxKind::FlashV2, k, type_bytes, result_bytes, basic_block);
    if (!is950) {
        uint32_t rows = m;
        if (is_basic && m % 8 == 0)
            while (rows * k >= 64 * 256) rows /= 2;
        const uint32_t all =
            is_basic && m % 8 ? softmax_floats(SoftmaxKind::FlashV2, k, type_bytes, result_bytes) : row;
        const uint32_t tiles = without_broadcast ? (tile < m ? tile : m) : is_basic ? 8 : 1;
        return {rows * all * 4, tiles * row * 4};
    }
    if (!update) {
        const uint32_t rest = m * k + 256 + (m + 7) / 8 * 8;
        const uint32_t most = m * (block + k + 64), least = m * (block + k);
        const uint32_t fold = m * 8 + rest, small_fold = m * (basic_block ? 4 : 8) + rest;
        return {(most > fold ? most : fold) * 4, (least > small_fold ? least : small_fold) * 4};
    }
    const uint32_t maxima = is_half ? (2 * m + 127) / 128 * 128 : (m + 63) / 64 * 64;
    const uint32_t least = maxima + m * (2 * block + (is_half ? k + (result_bytes == 2 ? 0 : block) : 0));
    if (m <= 2) return {least * 4, least * 4};
    const uint32_t wide = is_basic && m % 8 == 0 ? block : is_half ? 2 * block : block;
    return {m * (wide + (is_half ? k : 0) + 64) * 4, least * 4};
}

// Returns a filled tiling struct. `rows` is the number of rows of a tile.
template <class S>
constexpr S softmax_split(uint32_t m, uint32_t k, uint32_t result_bytes, uint32_t rows) {
    const uint32_t block = 32 / result_bytes;
    S t{};
    t.srcM = t.outMaxM = m;
    t.srcK = t.splitK = k;
    t.srcSize = m * k;
    t.outMaxK = t.reduceK = block;
    t.outMaxSize = m * block;
    t.splitM = t.reduceM = rows;
    t.splitSize = rows * k;
    t.reduceSize = rows * block;
    t.rangeM = rows ? m / rows : 0;
    t.tailM = rows ? m % rows : 0;
    t.tailSplitSize = t.tailM * k;
    t.tailReduceSize = t.tailM * block;
    return t;
}

// Returns the number of rows of a tile if the temporary memory holds `fit` rows. If the number is more than 8 but less
// than m, it is rounded down to a multiple of 8. If m is a multiple of 8 and a row has whole repeats, it divides m, and
// the tile has at most 255 repeats.
constexpr uint32_t softmax_rows(uint32_t m, uint32_t k, uint32_t fit, bool only_basic_block = false) {
    constexpr uint32_t kTile = 8, kRepeat = 64, kMost = 64 * 256;
    uint32_t rows = fit < m ? fit : m;
    if (!only_basic_block && rows < m && rows > kTile) rows = rows / kTile * kTile;
    if (rows > kTile && m % kTile == 0 && k % kRepeat == 0) {
        rows = rows / kTile * kTile;
        while (m % rows != 0) rows -= kTile;
        while (rows * k >= kMost) rows /= 2;
    }
    return rows;
}

constexpr SoftMaxTiling softmax_tiling(uint32_t m, uint32_t k, uint32_t type_bytes, uint32_t bytes,
                                       SoftmaxKind kind = SoftmaxKind::Plain) {
    const uint32_t fit = bytes / 4 / softmax_floats(kind, k, type_bytes, type_bytes);
    return softmax_split<SoftMaxTiling>(m, k, type_bytes, softmax_rows(m, k, fit));
}

constexpr SoftMaxTiling softmax_flash_v2_tiling(uint32_t m, uint32_t k, uint32_t type_bytes, uint32_t result_bytes,
                                                uint32_t bytes, bool basic_block, bool without_broadcast = false) {
    const bool is_basic = basic_block && k % 64 == 0 && m % 8 == 0;
    const uint32_t fit = bytes / 4 / softmax_floats(SoftmaxKind::FlashV2, k, type_bytes, result_bytes, is_basic);
    uint32_t rows = fit < m ? fit : m;
    if (is_basic) rows = softmax_rows(m, k, fit, true);
    const uint32_t tile = without_broadcast && type_bytes == 2 ? 16 : 8;
    if (rows < m && rows > tile) rows = rows / tile * tile;
    return softmax_split<SoftMaxTiling>(m, k, result_bytes, rows);
}

}  // namespace ascend_sim
