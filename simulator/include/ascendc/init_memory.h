// Fill, InitGlobalMemory, InitOutput: write one value to a part of GM, through the rest of UB after the TPipe's
// buffers.
//
// Rules: Fill and InitGlobalMemory (its former name) come before InitBuffer; a call with another value needs an
// MTE3_V event before it, and copies to UB need an MTE3_MTE2 event after it. Cores are not synchronised. InitOutput has
// no page.
// Meaning: a composition of Duplicate, a V_MTE3 event and copies of at most 255 * 256 bytes (InitOutput: 255 * 32).
// Ascend310P copies whole blocks, and the scalar unit stores the rest.
// Cost: that of the instructions.
// Sources: the page Fill of 高阶API; asc-devkit impl/adv_api/detail/utils/init_global_memory and
// impl/basic_api/kernel_operator_common_intf_impl.h for the steps.
#pragma once

#include "ascendc/allocator.h"
#include "ascendc/copy_pad.h"
#include "ascendc/duplicate.h"
#include "ascendc/queue.h"

namespace ascend_sim {

// Duplicate. A second one that stores the same bits to the same memory needs no event, as the page says.
template <class T>
void fill_rest(const AscendC::LocalTensor<T>& rest, T value, uint32_t elements, Site site) {
    const auto bytes = int32_t(elements * sizeof(T));
    bool is_same = user_tag(rest.view()) == bytes;
    for (uint32_t i = 0; is_same && i < elements; ++i)
        is_same = std::memcmp(rest.data() + i, &value, sizeof value) == 0;
    if (!is_same) {
        AscendC::Duplicate(rest, value, int32_t(elements), site);
        set_user_tag(rest.view(), bytes);
        return;
    }
    start(Pipe::V, "Duplicate", site);
    finish_vector((uint32_t(bytes) + kRepeatBytes - 1) / kRepeatBytes, cycles_of(Cost::Repeat),
                  uint32_t(bytes) % kRepeatBytes != 0);
}

template <class T>
void copy_value(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& value, uint64_t elements,
                Site site) {
    if constexpr (kIs310p) {
        const uint64_t blocks = elements * sizeof(T) / kBlockBytes;
        AscendC::DataCopyParams p;
        p.blockCount = 1;
        p.blockLen = uint16_t(blocks);
        if (blocks) AscendC::DataCopy(dst, value, p, site);
        for (uint64_t i = blocks * kBlockBytes / sizeof(T); i < elements; ++i) {
            T last;
            std::memcpy(&last, value.data(), sizeof last);
            dst.SetValue(i, last, site);
            clean_cache(uintptr_t(dst.data() + i), false, site);  // at the latest the TPipe's end does so
        }
    } else {
        AscendC::DataCopyExtParams p;
        p.blockCount = 1;
        p.blockLen = uint32_t(elements * sizeof(T));
        AscendC::DataCopyPad(dst, value, p, site);
    }
}

// Copies the value in rounds of at most `most` bytes.
template <class T>
void init_memory(const AscendC::GlobalTensor<T>& dst, uint64_t size, T value, uint32_t most, const char* api,
                 Site site) {
    const UbView view = rest_of_ub(api, site);
    const uint32_t round = std::min<uint32_t>(view.bytes, most) / sizeof(T);
    if (!round) stuck_at(Rule::Buffer02, api, site, "the buffers left nothing of UB.");
    const AscendC::LocalTensor<T> rest(view);
    fill_rest(rest, value, round, site);
    order_pipes_by_event(Pipe::V, Pipe::MTE3, api, site);
    for (uint64_t done = 0; done < size; done += round)
        copy_value(dst[done], rest, std::min<uint64_t>(round, size - done), site);
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
