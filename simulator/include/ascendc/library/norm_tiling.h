// The tiling and the temporary memory of norms. The host's functions return them, and the kernel's functions check
// them. Plain C++.
//
// Source: the pages LayerNorm Tiling, RmsNorm Tiling, Normalize Tiling, WelfordUpdate Tiling, WelfordFinalize Tiling,
// DeepNorm Tiling, GroupNorm Tiling, BatchNorm Tiling, LayerNormGrad Tiling, LayerNormGradBeta Tiling; the figures are
// those of asc-devkit's impl/adv_api/tiling/normalization.
#pragma once

#include "tiling_structs.h"
#include "tmp_sizes.h"

namespace ascend_sim {

// ---- [B, S, H]: LayerNorm, DeepNorm ---------------------------------------------------------------------------------

constexpr bool overwrites_source(uint32_t type_bytes, bool reuse) { return reuse && type_bytes == 4; }

// Arrays of float with the input's size, and two arrays for means and variances.
constexpr TmpSizes layer_norm_sizes(uint32_t rows, uint32_t h, uint32_t type_bytes, bool reuse) {
    const uint32_t arrays = overwrites_source(type_bytes, reuse) ? 2 : 3, means = 2 * round_up(rows * 4, 32);
    return {arrays * round_up(rows * h * 4, 32) + means, arrays * round_up(h * 4, 32) + means};
}

// Sets the fields for rounds of `round_rows` rows with h elements each. The temporary memory has `means` floats for
// means and variances, and then `arrays` arrays, each for the rows of one round.
template <class S>
constexpr void set_rounds(S* t, uint32_t rows, uint32_t h, uint32_t round_rows, uint32_t arrays, uint32_t means) {
    const uint32_t round_elements = round_rows * h, size = rows * h;
    t->inputXSize = size;
    t->meanVarSize = rows;
    t->numberOfTmpBuf = arrays;
    t->meanTmpTensorSize = t->varianceTmpTensorPos = t->varianceTmpTensorSize = round_up(rows, 8);
    t->oneTmpSize = t->inputRoundSize = t->bshCurLength = round_elements;
    t->firstTmpStartPos = means;
    t->secondTmpStartPos = means + round_elements;
    t->thirdTmpStartPos = means + 2 * round_elements;
    t->loopRound = size / round_elements;
    t->inputTailSize = size % round_elements;
    t->inputTailPos = size - t->inputTailSize;
    t->meanVarRoundSize = t->bsCurLength = round_rows;
    t->meanVarTailSize = t->inputTailSize / h;
    t->meanVarTailPos = rows - t->meanVarTailSize;
}

// Returns a struct with oneTmpSize 0 if the memory is too small for one row. For basic blocks, which only DeepNorm has,
// a round of more than 8 rows has whole groups of 8.
template <class S = LayerNormTiling>
constexpr S layer_norm_tiling(uint32_t b, uint32_t s, uint32_t h, uint32_t original_h, uint32_t bytes,
                              uint32_t type_bytes, bool reuse, bool basic_block = false) {
    const uint32_t rows = b * s, size = rows * h, means = type_bytes == 4 ? 0 : 2 * round_up(rows, 8);
    const uint32_t arrays = overwrites_source(type_bytes, reuse) ? 2 : 3;
    uint32_t round_elements = h ? (bytes / 4 - means) / arrays / h * h : 0;
    if (round_elements > size) round_elements = size;
    if (basic_block && round_elements >= 8 * h) round_elements = round_elements / (8 * h) * (8 * h);
    S t{};
    if (round_elements == 0 || bytes / 4 < means) return t;
    t.bLength = b;
    t.sLength = s;
    t.hLength = h;
    t.originalHLength = original_h;
    t.tmpBufSize = bytes / 4;
    set_rounds(&t, rows, h, round_elements / h, arrays, means);
    t.lastDimValueBack = 1.0f / float(original_h);
    return t;
}

// ---- [A, R]: Normalize, LayerNorm with rstd, Welford ----------------------------------------------------------------

constexpr TmpSizes normalize_sizes(uint32_t a, uint32_t r, uint32_t gamma_bytes, uint32_t type_bytes) {
    const uint32_t pitch = round_up(r, 32 / type_bytes), row = round_up(pitch * 4, 32);
    const uint32_t least = (gamma_bytes == 4 ? 2 : 4) * row, rstd = round_up(a * 4, 32);
    return {2 * row + 2 * round_up(round_up(a, 8) * pitch * 4, 32), rstd > least ? rstd : least};
}

constexpr TmpSizes layer_norm_separate_sizes(uint32_t a, uint32_t r, uint32_t type_bytes) {
    const uint32_t pitch = round_up(r, 32 / type_bytes), variances = round_up(a * 4, 32);
    const TmpSizes norm = normalize_sizes(a, r, type_bytes, type_bytes);
    const uint32_t most = 2 * round_up(a * pitch * 4, 32), least = 2 * round_up(pitch * 4, 32);
    return {(most > norm.most ? most : norm.most) + variances, (least > norm.least ? least : norm.least) + variances};
}
// On Ascend950: memory for partial sums, and for variances.
constexpr TmpSizes layer_norm_separate_sizes_950(uint32_t a, uint32_t r, bool rstd) {
    const uint32_t bytes = (round_up((r + 63) / 64, 128) + (rstd ? 1 : 2) * a) * 4;
    return {bytes, bytes};
}

constexpr LayerNormSeparateTiling layer_norm_separate_tiling(uint32_t a, uint32_t r, uint32_t bytes,
                                                             uint32_t type_bytes) {
    const uint32_t pitch = round_up(r, 32 / type_bytes), size = a * pitch, variances = round_up(a, 8);
    uint32_t round_elements = pitch ? (bytes / 4 - variances) / 2 / pitch * pitch : 0;
    if (round_elements > size) round_elements = size;
    LayerNormSeparateTiling t{};
    if (round_elements == 0 || bytes / 4 < variances) return t;
    t.aLength = a;
    t.rLength = r;
    t.inputXSize = size;
    t.meanVarSize = a;
    t.numberOfTmpBuf = 2;
    t.varianceTmpTensorSize = t.firstTmpStartPos = variances;
    t.tmpBufSize = bytes / 4;
    t.oneTmpSize = t.inputRoundSize = t.arCurLength = round_elements;
    t.secondTmpStartPos = variances + round_elements;
    t.loopRound = size / round_elements;
    t.inputTailSize = size % round_elements;
    t.inputTailPos = size - t.inputTailSize;
    t.meanVarRoundSize = t.aCurLength = round_elements / pitch;
    t.meanVarTailSize = t.inputTailSize / pitch;
    t.meanVarTailPos = a - t.meanVarTailSize;
    t.rValueBack = 1.0f / float(r);
    return t;
}
// On Ascend950: rHeadLength is the largest power of two that is at most r, and at least 64. oneTmpSize is its exponent.
// Sums are first scaled by k2Rec: 1 divided by a power of two that is not below r. k2RRec is that power divided by r.
constexpr LayerNormSeparateTiling layer_norm_separate_tiling_950(uint32_t r) {
    LayerNormSeparateTiling t{};
    uint32_t head = 64, power = 6;
    while (head * 2 <= r) head *= 2, ++power;
    const uint32_t scale = head < r ? 2 * head : head;
    t.rLength = r;
    t.oneTmpSize = power;
    t.rHeadLength = head;
    t.k2Rec = 1.0f / float(scale);
    t.k2RRec = float(scale) / float(r);
    return t;
}

constexpr TmpSizes welford_update_sizes(uint32_t rn, uint32_t ab, uint32_t type_bytes, bool reuse) {
    const uint32_t least = (type_bytes == 2 ? 3 : reuse ? 1 : 2) * 256;
    return {(rn * ab + 63) / 64 * least, least};
}
constexpr TmpSizes welford_finalize_sizes(uint32_t ab) { return {ab <= 64 ? 1024 : (128 + 2 * ab) * 4, 1024}; }
constexpr TmpSizes welford_finalize_sizes_950(uint32_t ab) {
    uint32_t power = 1;
    while (2 * power <= ab) power *= 2;
    const uint32_t bytes = (ab + round_up(power / 64, 128)) * 4;
    return {bytes, bytes};
}

// ---- RmsNorm --------------------------------------------------------------------------------------------------------

constexpr bool is_rms_norm_basic_block(uint32_t rows, uint32_t h) { return h % 64 == 0 && rows % 8 == 0 && h < 2048; }
constexpr TmpSizes rms_norm_sizes(uint32_t rows, uint32_t h, uint32_t type_bytes) {
    const uint32_t arrays = type_bytes == 2 ? 2 : 1;
    return {(arrays * rows * h + round_up(rows, 32 / type_bytes)) * 4, (arrays * h + 8) * 4};
}
constexpr RmsNormTiling rms_norm_tiling(uint32_t b, uint32_t s, uint32_t h, uint32_t original_h, uint32_t bytes,
                                        uint32_t type_bytes, bool basic_block) {
    const uint32_t arrays = type_bytes == 2 ? 2 : 1, floats = bytes / 4, size = b * s * h;
    uint32_t rows = 1;
    while (floats >= (rows + 1) * h * arrays + round_up(rows + 1, 8)) ++rows;
    if (rows > b * s) rows = b * s;
    if (basic_block)
        rows = rows < 8 ? rows : rows / 8 * 8;
    else if (rows > 255)
        rows = 255;
    RmsNormTiling t{};
    t.bLength = b;
    t.sLength = s;
    t.hLength = h;
    t.originalHLength = original_h;
    t.reciprocalOfHLength = float(1.0 / float(original_h));
    t.mainBshLength = rows * h;
    t.mainBsLength = rows;
    t.mainBsLengthAlign = round_up(rows, 8);
    t.loopRound = size / t.mainBshLength;
    t.tailBshLength = size % t.mainBshLength;
    t.inputTailPos = size - t.tailBshLength;
    t.tailBsLength = t.tailBshLength / h;
    return t;
}

}  // namespace ascend_sim
