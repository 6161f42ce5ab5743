// Sizes of the temporary memory of AscendQuant, AscendDequant and AscendAntiQuant. Like tmp_sizes.h, plain C++ for host
// and kernel.
//
// Source: the pages GetAscendQuantMaxMinTmpSize, GetAscendDequantMaxMinTmpSize, GetAscendAntiQuantMaxMinTmpSize. The
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
    constexpr uint32_t kRepeatFloats = 64, kBlockFloats = 8;
    return {(kRepeatFloats + m * n + n + kBlockFloats) * 4, (kRepeatFloats + n + n + kBlockFloats) * 4};
}
// rows and columns are those of src. scales: the number of scales, 1 if all elements have the same scale.
constexpr TmpSizes anti_quant_sizes(uint32_t rows, uint32_t columns, uint32_t scales, bool transposed,
                                    bool to_bfloat16) {
    if (!to_bfloat16) return {0, 0};
    if (scales == 1) return {rows * columns * 4, 1024};
    const uint32_t bytes = transposed ? 80 * scales * 4 : scales * 8 + 64 * rows * 4;
    return {bytes, bytes};
}

}  // namespace ascend_sim
