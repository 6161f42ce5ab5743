// Brcb: each of eight scalars per repeat becomes a 32-byte block.
//
// Rules: src and dst aligned to 32 bytes and disjoint; 16- and 32-bit types; 8 * repeatTime elements are read,
// whole blocks are written. Ascend310P uses the top 8 KiB of UB.
// Meaning: block j of repeat r holds src[8 * r + j] in every element.   Cost: one cycle a repeat.
#pragma once

#include "ascendc/arithmetic.h"

namespace AscendC {

template <class T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const npu_sim::RepeatTime repeatTime,
          const BrcbRepeatParams& p, NPU_SIM_SITE) {
    NPU_SIM_NEEDS(Brcb, T);
    npu_sim::start(npu_sim::Pipe::V, "Brcb", site);
    if (npu_sim::kIs310p) npu_sim::uses_reserved_ub("Brcb");
    constexpr uint32_t kInBlock = npu_sim::kBlockBytes / sizeof(T);
    const npu_sim::Lanes lanes = npu_sim::Lanes::first(sizeof(T), npu_sim::kRepeatBytes / sizeof(T), repeatTime);
    const npu_sim::Operand<T> to{"dst", dst, p.dstBlkStride, p.dstRepStride};
    const npu_sim::Layout layout = npu_sim::layout_of(to);
    npu_sim::check_aligned("src", src.view().addr);
    const uint32_t scalars = lanes.repeats() * npu_sim::kBlocksPerRepeat;
    const npu_sim::Range read{src.view().addr, int64_t(src.view().addr + scalars * sizeof(T))};
    npu_sim::reads("src", src.view(), &read, scalars ? 1 : 0);
    const uint32_t at = dst.view().addr;
    if (scalars) npu_sim::check_apart("dst", {at, uint32_t(at + npu_sim::extent_of(lanes, layout))}, "src", read);
    npu_sim::check_destination(to, lanes);
    for (uint32_t i = 0; i < scalars; ++i) {
        const uint32_t offset = layout.offset(i / 8, i % 8 * kInBlock);
        T* const block = dst.data() + offset / sizeof(T);
        const T value = src.data()[i];
        for (uint32_t k = 0; k < kInBlock; ++k) block[k] = value;
    }
    npu_sim::finish_vector(lanes.repeats(), npu_sim::cycles_of(npu_sim::Cost::Repeat));
}

}  // namespace AscendC
