// The tiling of Pad and UnPad; as norm_tiling.h.
//
// Source: the pages Pad Tiling, UnPad Tiling; the figures are those of asc-devkit's impl/adv_api/tiling/pad.
#pragma once

#include "tiling_structs.h"

namespace ascend_sim {

constexpr PadTiling pad_tiling(uint32_t height, uint32_t width, uint32_t original_width, uint32_t bytes,
                               uint32_t type_bytes) {
    constexpr uint32_t kMaxRepeats = 255, kWholeRepeats = 254, kLists = 16, kBlock = 32;
    const uint32_t in_block = kBlock / type_bytes;
    PadTiling t{};
    t.srcHeight = height;
    t.srcWidth = width;
    t.srcOriWidth = original_width;
    t.widthWithoutLastBlock = width - in_block;
    t.blocksPerRow = width * type_bytes / kBlock;
    t.heightTiling = kMaxRepeats;
    t.heightFractal = height / kMaxRepeats;
    t.heightFractalTail = height % kMaxRepeats;
    t.mainLoopOffset = kMaxRepeats * width;
    t.tailBlockOffset = t.heightFractal * t.mainLoopOffset + t.widthWithoutLastBlock;
    if (bytes == 0) return t;
    const uint32_t unit = kLists * kBlock / type_bytes, units = bytes / type_bytes / unit / 2, rows = kLists * units;
    t.tmpBuffer1BlockNum = units;
    t.tmpBuffer1RowNum = t.widthTiling = t.brcbTiling = rows;
    t.tmpBuffer2Offset = units * unit;
    if (rows == 0) return t;
    t.widthFractal = width / rows;
    t.widthFractalTail = width % rows;
    t.widthFractalTailAlingned = ((t.widthFractalTail - 1) / in_block + 1) * in_block;
    t.brcbFractal = height * width / rows;
    t.brcbFractalTail = height * width % rows;
    t.maxRepeatTimes = kWholeRepeats;
    t.brcbTilingRepeatTimes = rows / 8 / kWholeRepeats;
    t.brcbTilingRepeatTimesTail = rows / 8 % kWholeRepeats;
    t.brcbFractalTailRepeatTimes = t.brcbFractalTail / 8 / kWholeRepeats;
    t.brcbFractalTailRepeatTimesTail = t.brcbFractalTail / 8 % kWholeRepeats;
    return t;
}

constexpr UnPadTiling un_pad_tiling(uint32_t height, uint32_t width, uint32_t bytes, uint32_t type_bytes) {
    constexpr uint32_t kLists = 16, kBlock = 32;
    UnPadTiling t{};
    t.srcHeight = height;
    t.srcWidth = width;
    if (bytes == 0) return t;
    const uint32_t unit = kLists * kBlock / type_bytes, units = bytes / type_bytes / unit / 2, rows = kLists * units;
    t.tmpBuffer1BlockNum = units;
    t.tmpBuffer1RowNum = t.widthTiling = rows;
    t.tmpBuffer2Offset = units * unit;
    if (rows == 0) return t;
    t.widthFractal = (width + rows - 1) / rows;
    t.widthFractalTail = width % rows ? width % rows : rows;
    return t;
}

}  // namespace ascend_sim
