// Shared helpers of the mini kernels. A kernel with a marked line breaks one rule there, or differs from such a kernel
// in one detail and keeps the rule. mini_kernels.py describes the marks.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

// x is an input and y an output, kBytes each, unless a test launches the entry otherwise.
#define KERNEL(name) \
    extern "C" __global__ __aicore__ void name(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling)

constexpr uint32_t kBytes = 16384;

template <class T>
__aicore__ inline GlobalTensor<T> global(GM_ADDR address, uint64_t elements = kBytes / sizeof(T)) {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer((__gm__ T*)address, elements);
    return tensor;
}

// Orders later work of the event's second pipe after all earlier work of its first pipe.
template <HardEvent event>
__aicore__ inline void order() {
    const int32_t id = GetTPipePtr()->FetchEventID(event);
    SetFlag<event>(id);
    WaitFlag<event>(id);
}

// One buffer of UB without queues. All its floats are 1 before the kernel's own instructions begin.
class Ub {
   public:
    __aicore__ inline explicit Ub(uint32_t bytes) {
        pipe_.InitBuffer(buffer_, bytes);
        LocalTensor<float> all = buffer_.Get<float>();
        Duplicate(all, 1.0f, int32_t(all.GetSize()));
        PipeBarrier<PIPE_ALL>();
    }
    template <class T>
    __aicore__ inline LocalTensor<T> at(uint32_t byte, uint32_t elements) {
        return buffer_.GetWithOffset<T>(elements, byte);
    }

   private:
    TPipe pipe_;
    TBuf<TPosition::VECCALC> buffer_;
};

// A queue into the vector unit and one out of it.
template <int32_t depth = 1>
struct Queues {
    __aicore__ inline explicit Queues(uint8_t buffers = 2, uint32_t bytes = 256) {
        pipe.InitBuffer(in, buffers, bytes);
        pipe.InitBuffer(out, buffers, bytes);
    }
    TPipe pipe;
    TQue<TPosition::VECIN, depth> in;
    TQue<TPosition::VECOUT, depth> out;
};
