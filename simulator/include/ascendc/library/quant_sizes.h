// Temporary memory of AscendQuant, AscendDequant and AscendAntiQuant; as tmp_sizes.h.
//
// Source: the pages GetAscendQuantMaxMinTmpSize, GetAscendDequantMaxMinTmpSize, GetAscendAntiQuantMaxMinTmpSize; the
// figures are those of asc-devkit's impl/adv_api/tiling/quantization.
#pragma once

#include "tmp_sizes.h"

namespace ascend_sim {

constexpr TmpSizes quant_sizes(uint32_t elements) {
    constexpr uint32_t kLeast = 512;
    const uint32_t most = elements * 2 > kLeast ? elements * 2 : kLeast;
    return {(most + 31) / 32 * 32, kLeast};
}
constexpr TmpSizes dequant_sizes(uint32_t m, uint32_t n) {
    constexpr uint32_t kRepeat = 64, kBlock = 8;  // floats
    return {(kRepeat + m * n + n + kBlock) * 4, (kRepeat + n + n + kBlock) * 4};
}
// rows, columns: of src; `scales` is 1 for one scale of all elements.
constexpr TmpSizes anti_quant_sizes(uint32_t rows, uint32_t columns, uint32_t scales, bool transposed,
                                    bool to_bfloat16) {
    if (!to_bfloat16) return {0, 0};
    if (scales == 1) return {rows * columns * 4, 1024};
    const uint32_t bytes = transposed ? 80 * scales * 4 : scales * 8 + 64 * rows * 4;
    return {bytes, bytes};
}

}  // namespace ascend_sim
