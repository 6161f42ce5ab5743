// The tiling and the temporary memory of GroupNorm, BatchNorm, LayerNormGrad and LayerNormGradBeta. Like norm_tiling.h,
// plain C++ for host and kernel.
//
// Source: the pages GroupNorm Tiling, BatchNorm Tiling, LayerNormGrad Tiling, LayerNormGradBeta Tiling; the figures are
// those of asc-devkit's impl/adv_api/tiling/normalization.
#pragma once

#include <cstring>

#include "norm_tiling.h"

namespace ascend_sim {

// ---- GroupNorm: [N, C, H, W], whose channels are filled to whole blocks ---------------------------------------------

struct GroupShape {
    uint32_t n, c, hw, groups, type_bytes;
    // With the filling.
    constexpr uint32_t channel_elements() const { return round_up(hw * type_bytes, 32) / type_bytes; }
    constexpr uint32_t group_elements() const { return c / groups * channel_elements(); }
    constexpr uint32_t rows() const { return n * groups; }  // a row is a group of one batch
};

constexpr TmpSizes group_norm_sizes(const GroupShape& s, bool reuse) {
    const uint32_t arrays = overwrites_source(s.type_bytes, reuse) ? 2 : 3, means = 2 * round_up(s.rows() * 4, 32);
    return {arrays * s.n * s.c * s.channel_elements() * 4 + means, arrays * s.group_elements() * 4 + means};
}
// Returns the largest number of lanes that divides a group; it is a multiple of 8 and at most 64.
constexpr uint32_t group_lanes(uint32_t group) {
    uint32_t lanes = group < 64 ? group : 64;
    while (lanes > 8 && group % lanes) lanes -= 8;
    return lanes;
}
constexpr GroupNormTiling group_norm_tiling(const GroupShape& s, uint32_t bytes, bool reuse) {
    const uint32_t group = s.group_elements(), rows = s.rows(), means = s.type_bytes == 4 ? 0 : 2 * round_up(rows, 8);
    const uint32_t arrays = overwrites_source(s.type_bytes, reuse) ? 2 : 3, floats = bytes / 32 * 8;
    uint32_t repeat_blocks = 8;  // a divisor of the group's blocks
    while (group / 8 % repeat_blocks) --repeat_blocks;
    const bool is_small = s.channel_elements() <= 64 && group <= 64 * repeat_blocks;
    uint32_t round_rows = (floats - means) / arrays / group;
    if (is_small) {
        const uint32_t most = 255 / (group / group_lanes(group)) / 8 * 8;
        if (most < round_rows) round_rows = most;
    }
    GroupNormTiling t{};
    if (floats < means || round_rows == 0 || (s.type_bytes == 2 && round_rows * group < s.c)) return t;
    if (round_rows > rows) round_rows = rows;
    t.n = s.n;
    t.c = s.c;
    t.hw = s.hw;
    t.g = s.groups;
    t.d = s.c / s.groups;
    t.hwAlignSize = s.channel_elements();
    t.dhwAlignSize = group;
    t.tmpBufSize = floats;
    set_rounds(&t, rows, group, round_rows, arrays, means);
    t.factor = 1.0f / float(t.d * s.hw);
    t.smallShape = is_small;
    return t;
}

// ---- BatchNorm: [B, S * H] ------------------------------------------------------------------------------------------

constexpr bool is_batch_norm_basic_block(uint32_t b, uint32_t sh) { return sh % 64 == 0 && b % 8 == 0; }

constexpr TmpSizes batch_norm_sizes(uint32_t b, uint32_t sh, uint32_t type_bytes, bool basic_block) {
    const uint32_t means = 2 * round_up(sh * 4, 32), least_row_bytes = basic_block ? 256 : type_bytes == 2 ? 64 : 32;
    return {3 * round_up(b * sh * 4, 32) + means, 3 * b * least_row_bytes + means};
}
constexpr BatchNormTiling batch_norm_tiling(uint32_t b, uint32_t sh, uint32_t bytes, uint32_t type_bytes,
                                            bool basic_block) {
    const uint32_t size = b * sh, array = round_up(sh, 8), means = type_bytes == 4 ? 0 : 2 * array;
    const uint32_t unit = b * (type_bytes == 4 ? 8 : 16);
    BatchNormTiling t{};
    if (unit == 0 || bytes / 4 < means) return t;
    uint32_t round_elements = (bytes / 4 - means) / 3 / unit * unit;
    if (round_elements > size) round_elements = size;
    if (round_elements == 0) return t;
    uint32_t columns = round_elements / b;
    if (basic_block && columns % 64) {
        columns = columns / 64 * 64;
        round_elements = columns * b;
    }
    if (round_elements == 0) return t;
    t.originalBLength = b;
    t.meanVarSize = sh;
    t.varianceTmpTensorPos = array;
    t.tmpBufSize = bytes / 4;
    t.oneTmpSize = t.bshCurLength = round_elements;
    t.firstTmpStartPos = means;
    t.secondTmpStartPos = means + round_elements;
    t.thirdTmpStartPos = means + 2 * round_elements;
    t.loopRound = size / round_elements;
    t.inputTailSize = size % round_elements;
    t.inputTailPos = (size - t.inputTailSize) / b;
    t.meanVarTailSize = t.inputTailSize / b;
    t.meanVarTailPos = sh - t.meanVarTailSize;
    t.shCurLength = columns;
    t.firstDimValueBack = 1.0f / float(b);
    t.castHalfRepStride = 4;
    t.shCurLengthBlockNum = columns / 8;
    t.castHalfOutRepStride = sh / 16;
    return t;
}

// ---- LayerNormGrad, LayerNormGradBeta -------------------------------------------------------------------------------

constexpr uint32_t layer_norm_grad_arrays(uint32_t type_bytes, bool reuse) {
    return type_bytes == 2 ? 9 : reuse ? 4 : 6;
}

constexpr TmpSizes layer_norm_grad_sizes(uint32_t rows, uint32_t h, uint32_t type_bytes, bool reuse, bool is950) {
    if (is950) {
        const uint32_t bytes = overwrites_source(type_bytes, reuse) ? 0 : 2 * round_up(h, 8) * 4;
        return {bytes, bytes};
    }
    const uint32_t size = rows * h, square = h * h, unit = layer_norm_grad_arrays(type_bytes, reuse) * type_bytes;
    return {(size > square ? size : square) * unit, (size < square ? size : square) * unit};
}
inline LayerNormGradTiling layer_norm_grad_tiling(uint32_t b, uint32_t s, uint32_t h, uint32_t original_h,
                                                  uint32_t bytes, uint32_t type_bytes, bool reuse, bool is950) {
    const uint32_t size = b * s * h;
    LayerNormGradTiling t{};
    uint32_t round_elements = 1, rows = 1;
    if (!is950) {
        rows = round_up(bytes / 4 / layer_norm_grad_arrays(type_bytes, reuse) / h, 32 / type_bytes);
        round_elements = rows * h;
        if (round_elements == 0) return t;
    }
    uint32_t next_position = round_elements;  // the array tmpTensorBSH is at 0
    auto add_array = [&] {
        const uint32_t position = next_position;
        next_position += round_elements;
        return position;
    };
    t.pdVarTensorPos = add_array();
    t.pdMeanTensorPos = add_array();
    if (!overwrites_source(type_bytes, reuse)) {
        t.x1TensorPos = add_array();
        t.x2TensorPos = add_array();
    }
    t.x3TensorPos = add_array();
    if (type_bytes == 2) {
        t.tmpTensorPos = add_array();
        t.tmpTensor1Pos = add_array();
        t.tmpTensor2Pos = add_array();
    }
    t.tmpTensorBSHSize = t.pdVarTensorSize = t.pdMeanTensorSize = t.x1TensorSize = t.x2TensorSize = round_elements;
    t.x3TensorSize = t.tmpTensorSize = t.tmpTensor1Size = t.tmpTensor2Size = round_elements;
    t.stackBufferSize = bytes;
    t.bLength = b;
    t.sLength = s;
    t.hLength = h;
    t.originalHLength = original_h;
    t.oneCalSize = round_elements;
    t.nohCalSize = rows;
    t.loopNum = size / round_elements;
    t.tailSize = size % round_elements;
    t.nohTailSize = t.tailSize / h;
    const float back = 1.0f / float(original_h), twice = 2.0f / float(original_h);
    std::memcpy(&t.lastDimValueBack, &back, sizeof back);
    std::memcpy(&t.lastDimValueBackMulTwo, &twice, sizeof twice);
    return t;
}

constexpr TmpSizes layer_norm_grad_beta_sizes(uint32_t rows, uint32_t h, uint32_t type_bytes) {
    const uint32_t unit = (type_bytes == 2 ? 4 : 2) * h * 4;
    return {rows * unit, unit};
}
constexpr LayerNormGradBetaTiling layer_norm_grad_beta_tiling(uint32_t b, uint32_t s, uint32_t h, uint32_t original_h,
                                                              uint32_t bytes, uint32_t type_bytes) {
    const uint32_t rows = b * s, size = rows * h, floats = bytes / 4;
    LayerNormGradBetaTiling t{};
    if (h == 0 || floats < 2 * h) return t;
    uint32_t round_elements = (type_bytes == 2 ? (floats - 2 * h) / 2 : floats) / h * h;
    if (round_elements > size) round_elements = size;
    if (round_elements == 0) return t;
    t.stackBufferSize = floats;
    t.bLength = b;
    t.sLength = s;
    t.hLength = h;
    t.originalHLength = original_h;
    t.bshLength = size;
    t.bsLength = rows;
    t.oneCalSize = t.bshCurLength = round_elements;
    t.numberOfTmpBuf = type_bytes == 2 ? 2 : 1;
    t.loopRound = size / round_elements;
    t.inputTailSize = size % round_elements;
    t.inputTailPos = size - t.inputTailSize;
    t.bsTailSize = t.inputTailSize / h;
    t.bsCurLength = round_elements / h;
    if (type_bytes == 2) {
        t.betaTempTensorPos = h;
        t.inputDyTmpTensorPos = 2 * h;
        t.resForGammaTmpTensorPos = 2 * h + round_elements;
    }
    return t;
}

}  // namespace ascend_sim
