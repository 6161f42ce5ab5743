// The tiling of Pad and UnPad. Like norm_tiling.h, plain C++ for host and kernel.
//
// Source: the pages Pad Tiling, UnPad Tiling. The figures are those of asc-devkit's impl/adv_api/tiling/pad.
#pragma once

#include "tiling_structs.h"

namespace ascend_sim {

// bytes: the size of the temporary memory.
constexpr PadTiling pad_tiling(uint32_t height, uint32_t width, uint32_t original_width, uint32_t bytes,
                               uint32_t type_bytes) {
    constexpr uint32_t kMaxRepeats = 255, kMaxBrcbRepeats = 254, kTransposeRows = 16, kBlockBytes = 32;
    const uint32_t elements_per_block = kBlockBytes / type_bytes;
    PadTiling tiling{};
    tiling.srcHeight = height;
    tiling.srcWidth = width;
    tiling.srcOriWidth = original_width;
    tiling.widthWithoutLastBlock = width - elements_per_block;
    tiling.blocksPerRow = width * type_bytes / kBlockBytes;
    tiling.heightTiling = kMaxRepeats;
    tiling.heightFractal = height / kMaxRepeats;
    tiling.heightFractalTail = height % kMaxRepeats;
    tiling.mainLoopOffset = kMaxRepeats * width;
    tiling.tailBlockOffset = tiling.heightFractal * tiling.mainLoopOffset + tiling.widthWithoutLastBlock;
    if (bytes == 0) return tiling;
    const uint32_t tile_elements = kTransposeRows * kBlockBytes / type_bytes,
                   tiles = bytes / type_bytes / tile_elements / 2, rows = kTransposeRows * tiles;
    tiling.tmpBuffer1BlockNum = tiles;
    tiling.tmpBuffer1RowNum = tiling.widthTiling = tiling.brcbTiling = rows;
    tiling.tmpBuffer2Offset = tiles * tile_elements;
    if (rows == 0) return tiling;
    tiling.widthFractal = width / rows;
    tiling.widthFractalTail = width % rows;
    tiling.widthFractalTailAlingned = ((tiling.widthFractalTail - 1) / elements_per_block + 1) * elements_per_block;
    tiling.brcbFractal = height * width / rows;
    tiling.brcbFractalTail = height * width % rows;
    tiling.maxRepeatTimes = kMaxBrcbRepeats;
    tiling.brcbTilingRepeatTimes = rows / 8 / kMaxBrcbRepeats;
    tiling.brcbTilingRepeatTimesTail = rows / 8 % kMaxBrcbRepeats;
    tiling.brcbFractalTailRepeatTimes = tiling.brcbFractalTail / 8 / kMaxBrcbRepeats;
    tiling.brcbFractalTailRepeatTimesTail = tiling.brcbFractalTail / 8 % kMaxBrcbRepeats;
    return tiling;
}

constexpr UnPadTiling un_pad_tiling(uint32_t height, uint32_t width, uint32_t bytes, uint32_t type_bytes) {
    constexpr uint32_t kTransposeRows = 16, kBlockBytes = 32;
    UnPadTiling tiling{};
    tiling.srcHeight = height;
    tiling.srcWidth = width;
    if (bytes == 0) return tiling;
    const uint32_t tile_elements = kTransposeRows * kBlockBytes / type_bytes,
                   tiles = bytes / type_bytes / tile_elements / 2, rows = kTransposeRows * tiles;
    tiling.tmpBuffer1BlockNum = tiles;
    tiling.tmpBuffer1RowNum = tiling.widthTiling = rows;
    tiling.tmpBuffer2Offset = tiles * tile_elements;
    if (rows == 0) return tiling;
    tiling.widthFractal = (width + rows - 1) / rows;
    tiling.widthFractalTail = width % rows ? width % rows : rows;
    return tiling;
}

}  // namespace ascend_sim
