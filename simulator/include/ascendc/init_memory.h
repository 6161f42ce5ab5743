// Fill, InitGlobalMemory, InitOutput: write one value to a part of GM, through the UB that the TPipe's buffers leave
// free.
//
// Rules: Fill and InitGlobalMemory (the former name of Fill) come before InitBuffer. A call with another value needs an
// MTE3_V event before it, and copies to UB need an MTE3_MTE2 event after it. Cores are not synchronised. InitOutput has
// no page.
// Meaning: a Duplicate, a V_MTE3 event and copies of at most 255 * 256 bytes (InitOutput: 255 * 32). Ascend310P copies
// whole blocks, and the scalar unit stores the remaining elements.
// Cost: the sum of these instructions' costs.
// Sources: the page Fill of 高阶API; asc-devkit impl/adv_api/detail/utils/init_global_memory and
// impl/basic_api/kernel_operator_common_intf_impl.h for the steps.
#pragma once

#include "ascendc/allocator.h"
#include "ascendc/copy_pad.h"
#include "ascendc/duplicate.h"
#include "ascendc/queue.h"

namespace ascend_sim {

// Duplicates the value to free UB. If UB has the same bits already, the instruction stores nothing and needs no event,
// as the page says.
template <class T>
void fill_free_ub(const AscendC::LocalTensor<T>& free_ub, T value, uint32_t elements, Site site) {
    const auto bytes = int32_t(elements * sizeof(T));
    bool is_same = user_tag(free_ub.view()) == bytes;
    for (uint32_t i = 0; is_same && i < elements; ++i)
        is_same = std::memcmp(free_ub.data() + i, &value, sizeof value) == 0;
    if (!is_same) {
        AscendC::Duplicate(free_ub, value, int32_t(elements), site);
        set_user_tag(free_ub.view(), bytes);
        return;
    }
    start(Pipe::V, "Duplicate", site);
    finish_vector((uint32_t(bytes) + kRepeatBytes - 1) / kRepeatBytes, cycles_of(Cost::Repeat),
                  uint32_t(bytes) % kRepeatBytes != 0);
}

template <class T>
void copy_to_gm(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& value, uint64_t elements,
                Site site) {
    if constexpr (kIs310p) {
        const uint64_t blocks = elements * sizeof(T) / kBlockBytes;
        AscendC::DataCopyParams params;
        params.blockCount = 1;
        params.blockLen = uint16_t(blocks);
        if (blocks) AscendC::DataCopy(dst, value, params, site);
        for (uint64_t i = blocks * kBlockBytes / sizeof(T); i < elements; ++i) {
            T element;
            std::memcpy(&element, value.data(), sizeof element);
            dst.SetValue(i, element, site);
            clean_cache(uintptr_t(dst.data() + i), false, site);  // CANN cleans it at the TPipe's end at the latest
        }
    } else {
        AscendC::DataCopyExtParams params;
        params.blockCount = 1;
        params.blockLen = uint32_t(elements * sizeof(T));
        AscendC::DataCopyPad(dst, value, params, site);
    }
}

// Copies the value to `size` elements, in rounds of at most max_bytes bytes.
template <class T>
void init_memory(const AscendC::GlobalTensor<T>& dst, uint64_t size, T value, uint32_t max_bytes, const char* api,
                 Site site) {
    const UbView view = rest_of_ub(api, site);
    const uint32_t round_elements = std::min<uint32_t>(view.bytes, max_bytes) / sizeof(T);
    if (!round_elements) fatal_at(Rule::Buffer02, api, site, "the buffers left nothing of UB.");
    const AscendC::LocalTensor<T> free_ub(view);
    fill_free_ub(free_ub, value, round_elements, site);
    hand_over(Pipe::V, Pipe::MTE3, api, site);
    for (uint64_t done = 0; done < size; done += round_elements)
        copy_to_gm(dst[done], free_ub, std::min<uint64_t>(round_elements, size - done), site);
}

template <class T>
void fill_memory(const AscendC::GlobalTensor<T>& dst, uint64_t size, T value, const char* api, Site site) {
    ASCEND_SIM_NEEDS(Fill, T);
    if (has_tensors()) broken_at(Rule::Buffer07, api, site, "it must come before InitBuffer, whose memory it may use.");
    init_memory(dst, size, value, 255 * kRepeatBytes, api, site);
    barrier(int32_t(Pipe::MTE3), site);
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void Fill(GlobalTensor<T>& gmWorkspaceAddr, const uint64_t size, const T value, ASCEND_SIM_SITE) {
    ascend_sim::fill_memory(gmWorkspaceAddr, size, value, "Fill", site);
}
template <class T>
void InitGlobalMemory(GlobalTensor<T>& gmWorkspaceAddr, const uint64_t size, const T value, ASCEND_SIM_SITE) {
    ascend_sim::fill_memory(gmWorkspaceAddr, size, value, "InitGlobalMemory", site);
}
template <class T>
void InitOutput(GlobalTensor<T> gmWorkspaceAddr, uint32_t size, T value = 0, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(InitOutput, T);
    ascend_sim::init_memory(gmWorkspaceAddr, size, value, 255 * ascend_sim::kBlockBytes, "InitOutput", site);
}

}  // namespace AscendC
