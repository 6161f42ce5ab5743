// LocalMemAllocator: tensors of UB at successive addresses, for kernels without a TPipe. PopStackBuffer: the UB that a
// TPipe's buffers leave free.
//
// Rules: a kernel uses either a TPipe or static tensors, whose UB addresses it chooses. It has at most one
// LocalMemAllocator. Without a TPipe, it calls InitSocState first and PipeBarrier<PIPE_ALL> last. Tensors are aligned
// to 32 bytes.
// Sources: the pages of LocalMemAllocator; the guide's page 静态Tensor编程. PopStackBuffer has no page; its source is
// asc-devkit impl/basic_api/kernel_pop_stack_buffer.h.
#pragma once

#include "ascendc/tensor.h"

namespace AscendC {

template <Hardware hard = Hardware::UB>
class LocalMemAllocator {
    static_assert(hard == Hardware::UB, "LocalMemAllocator: the simulator has vector cores only, whose memory is UB");

public:
    explicit LocalMemAllocator(ASCEND_SIM_SITE) { ascend_sim::static_allocator_created(site); }
    uint32_t GetCurAddr() const { return next_address_; }

    template <TPosition pos, class T>
    LocalTensor<T> Alloc(uint32_t tileSize, ASCEND_SIM_SITE) {
        const LocalTensor<T> tensor(pos, next_address_, tileSize, site);
        next_address_ =
            ascend_sim::ub_address(int64_t(next_address_) + (ascend_sim::bytes_of<T>(tileSize) + 31) / 32 * 32);
        return tensor;
    }
    template <class T>
    LocalTensor<T> Alloc(uint32_t tileSize, ASCEND_SIM_SITE) {
        return Alloc<TPosition::VECCALC, T>(tileSize, site);
    }
    template <TPosition pos, class T, uint32_t tileSize>
    LocalTensor<T> Alloc(ASCEND_SIM_SITE) {
        return Alloc<pos, T>(tileSize, site);
    }
    template <class T, uint32_t tileSize>
    LocalTensor<T> Alloc(ASCEND_SIM_SITE) {
        return Alloc<TPosition::VECCALC, T>(tileSize, site);
    }

private:
    uint32_t next_address_ = 0;
};

template <class T, TPosition pos>
bool PopStackBuffer(LocalTensor<T>& pop, ASCEND_SIM_SITE) {
    const ascend_sim::UbView view = ascend_sim::rest_of_ub("PopStackBuffer", site);
    if (!view.bytes)
        ascend_sim::fatal_at(ascend_sim::Rule::Buffer02, "PopStackBuffer", site, "the buffers left nothing of UB.");
    pop = LocalTensor<T>(view, pos);
    return true;
}

}  // namespace AscendC
