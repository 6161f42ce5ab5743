// Brcb: each of eight scalars per repeat becomes a 32-byte block.
//
// Rules: src and dst are aligned to 32 bytes and disjoint; 16- and 32-bit types. The instruction reads 8 * repeatTime
// elements and writes whole blocks. Ascend310P uses the top 8 KiB of UB.
// Meaning: block j of repeat r holds src[8 * r + j] in every element.
// Cost: one cycle a repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

template <class T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascend_sim::RepeatTime repeatTime,
          const BrcbRepeatParams& params, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(Brcb, T);
    ascend_sim::start(ascend_sim::Pipe::V, "Brcb", site);
    if (ascend_sim::kIs310p) ascend_sim::uses_reserved_ub("Brcb");
    constexpr uint32_t kElementsPerBlock = ascend_sim::kBlockBytes / sizeof(T);
    const ascend_sim::Lanes lanes =
        ascend_sim::Lanes::first(sizeof(T), ascend_sim::kRepeatBytes / sizeof(T), repeatTime);
    const ascend_sim::Operand<T> operand{"dst", dst, params.dstBlkStride, params.dstRepStride};
    const ascend_sim::Layout layout = ascend_sim::layout_of(operand);
    ascend_sim::check_aligned("src", src.view().addr);
    const uint32_t scalars = lanes.repeats() * ascend_sim::kBlocksPerRepeat;
    const ascend_sim::Range read{src.view().addr, int64_t(src.view().addr + scalars * sizeof(T))};
    ascend_sim::reads("src", src.view(), &read, scalars ? 1 : 0);
    const uint32_t dst_addr = dst.view().addr;
    if (scalars)
        ascend_sim::check_disjoint("dst", {dst_addr, uint32_t(dst_addr + ascend_sim::extent_of(lanes, layout))}, "src",
                                   read);
    ascend_sim::check_destination(operand, lanes);
    for (uint32_t i = 0; i < scalars; ++i) {
        const uint32_t offset = layout.offset(i / 8, i % 8 * kElementsPerBlock);
        T* const block = dst.data() + offset / sizeof(T);
        const T value = src.data()[i];
        for (uint32_t j = 0; j < kElementsPerBlock; ++j) block[j] = value;
    }
    ascend_sim::finish_vector(lanes.repeats(), ascend_sim::cycles_of(ascend_sim::Cost::Repeat));
}

}  // namespace AscendC
