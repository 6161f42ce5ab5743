// The tiling of SoftMax and its kin, and their temporary memory: for the host's functions, and for a kernel's function
// whose shape is not the tiling's. Plain C++.
//
// Source: the pages SoftMax/SimpleSoftMax Tiling, SoftmaxFlash Tiling, SoftmaxFlashV2 Tiling, SoftmaxGrad Tiling,
// LogSoftMax Tiling; the figures are those of asc-devkit's impl/adv_api/tiling/activation/softmax_tiling.cpp.
#pragma once

#include <cstdint>

#include "ascendc/library/tiling_structs.h"

namespace ascend_sim {

// Floats of temporary memory for each row. Blocks are those of the results' type.
enum class SoftmaxKind : uint8_t { Plain, FlashUpdate, FlashV2, Grad, GradFront };

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

// Fills a tiling struct; get and set of the host's classes are the fields of the kernel's structs.
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

// The rows of a tile: multiples of 8; if rows have whole repeats, a divisor of m whose elements fit 255 repeats.
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
    const uint32_t fit =
        bytes / 4 / softmax_floats(SoftmaxKind::FlashV2, k, type_bytes, result_bytes, is_basic);
    uint32_t rows = fit < m ? fit : m;
    if (is_basic) rows = softmax_rows(m, k, fit, true);
    const uint32_t tile = without_broadcast && type_bytes == 2 ? 16 : 8;
    if (rows < m && rows > tile) rows = rows / tile * tile;
    return softmax_split<SoftMaxTiling>(m, k, result_bytes, rows);
}

}  // namespace ascend_sim
