// LocalMemAllocator: tensors of UB at successive addresses, for kernels without a TPipe. PopStackBuffer: the rest of
// UB after a TPipe's buffers.
//
// Rules: a kernel has either a TPipe or such tensors, and one LocalMemAllocator. It calls InitSocState first and
// PipeBarrier<PIPE_ALL> last. Tensors begin on 32 bytes.
// Sources: the pages of LocalMemAllocator; the guide's page 静态Tensor编程; PopStackBuffer has no page, so asc-devkit
// impl/basic_api/kernel_pop_stack_buffer.h.
#pragma once

#include "ascendc/tensor.h"

namespace AscendC {

template <Hardware hard = Hardware::UB>
class LocalMemAllocator {
    static_assert(hard == Hardware::UB, "LocalMemAllocator: the simulator has vector cores only, whose memory is UB");

public:
    explicit LocalMemAllocator(ASCEND_SIM_SITE) { ascend_sim::static_allocator_created(site); }
    uint32_t GetCurAddr() const { return next_; }

    template <TPosition pos, class T>
    LocalTensor<T> Alloc(uint32_t tileSize, ASCEND_SIM_SITE) {
        const LocalTensor<T> tensor(pos, next_, tileSize, site);
        next_ = ascend_sim::ub_address(int64_t(next_) + (ascend_sim::bytes_of<T>(tileSize) + 31) / 32 * 32);
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
    uint32_t next_ = 0;
};

template <class T, TPosition pos>
bool PopStackBuffer(LocalTensor<T>& pop, ASCEND_SIM_SITE) {
    const ascend_sim::UbView view = ascend_sim::rest_of_ub("PopStackBuffer", site);
    if (!view.bytes)
        ascend_sim::stuck_at(ascend_sim::Rule::Buffer02, "PopStackBuffer", site, "the buffers left nothing of UB.");
    pop = LocalTensor<T>(view, pos);
    return true;
}

}  // namespace AscendC
