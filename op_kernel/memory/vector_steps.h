// Steps of vector code that kernels share: order inside and between pipes, rounding, index vectors. The code is correct
// without the compiler's automatic synchronisation.
#pragma once

#include "kernel_operator.h"

namespace memory {

using AscendC::LocalTensor;

constexpr int32_t kBlockBytes = 32;
constexpr int32_t kBlockFloats = 8;
constexpr int32_t kRepeatFloats = 64;
constexpr int32_t kMaxRepeats = 255;

// Rounding mode from int32 to float32, for integers that float32 holds. The mode does not change the result, but each
// SoC rejects modes that it does not have.
#if __CCE_AICORE__ == 200
constexpr AscendC::RoundMode kExactToFloat = AscendC::RoundMode::CAST_NONE;
#else
constexpr AscendC::RoundMode kExactToFloat = AscendC::RoundMode::CAST_RINT;
#endif

template <typename A, typename B>
struct SameType {
    static constexpr bool value = false;
};
template <typename A>
struct SameType<A, A> {
    static constexpr bool value = true;
};

__aicore__ inline int32_t RoundUp(int32_t n, int32_t multiple) { return (n + multiple - 1) / multiple * multiple; }
__aicore__ inline int32_t MinOf(int32_t a, int32_t b) { return a < b ? a : b; }

// Later vector instructions start after all earlier ones have completed. Every helper below orders its results before
// later vector instructions.
__aicore__ inline void VectorBarrier() { AscendC::PipeBarrier<PIPE_V>(); }

// dst = src as float32. src has elements of 16 bits.
template <typename T>
__aicore__ inline void ToFloats(LocalTensor<float> dst, LocalTensor<T> src, int32_t count) {
    AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
    VectorBarrier();
}

// Returns a free event id.
template <AscendC::HardEvent event>
__aicore__ inline int32_t FetchEvent() {
    using namespace AscendC;
    return static_cast<int32_t>(GetTPipePtr()->FetchEventID(event));
}

// Completes all earlier instructions of the event's first pipe before later instructions of its second pipe start.
template <AscendC::HardEvent event>
__aicore__ inline void SyncPipes() {
    int32_t id = FetchEvent<event>();
    AscendC::SetFlag<event>(id);
    AscendC::WaitFlag<event>(id);
}

// Rounds to the nearest integer, through int32: only this conversion exists on every SoC.
__aicore__ inline void Round(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp, int32_t count) {
    LocalTensor<int32_t> integers = temp.ReinterpretCast<int32_t>();
    AscendC::Cast(integers, src, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
    VectorBarrier();
    AscendC::Cast(dst, integers, kExactToFloat, static_cast<uint32_t>(count));
    VectorBarrier();
}

// dst = floor(src / divisor), for small integers. The added 0.5 / divisor is larger than the division's error.
__aicore__ inline void FloorDivide(LocalTensor<float> dst, LocalTensor<float> src, int32_t divisor,
                                   LocalTensor<float> temp, int32_t count) {
    float scale = 1.0f / static_cast<float>(divisor);
    AscendC::Muls(dst, src, scale, count);
    VectorBarrier();
    AscendC::Adds(dst, dst, 0.5f * scale - 0.5f, count);
    VectorBarrier();
    Round(dst, dst, temp, count);
}

// dst = src - quotient * divisor.
__aicore__ inline void Remainder(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> quotient,
                                 int32_t divisor, int32_t count) {
    AscendC::Muls(dst, quotient, -static_cast<float>(divisor), count);
    VectorBarrier();
    AscendC::Add(dst, dst, src, count);
    VectorBarrier();
}

// dst = 0, 1, 2, ... CreateVecIndex() writes the first 64 numbers, mostly by scalar code; doubling writes the rest.
__aicore__ inline void FillAscending(LocalTensor<float> dst, int32_t count) {
    SyncPipes<AscendC::HardEvent::V_S>();
    AscendC::CreateVecIndex(dst, 0.0f, static_cast<uint32_t>(MinOf(count, kRepeatFloats)));
    VectorBarrier();
    for (int32_t written = kRepeatFloats; written < count; written *= 2) {
        AscendC::Adds(dst[written], dst, static_cast<float>(written), MinOf(written, count - written));
        VectorBarrier();
    }
}

// Converts element numbers to byte offsets for Gather.
__aicore__ inline void ToByteOffsets(LocalTensor<uint32_t> dst, LocalTensor<float> numbers, int32_t item_bytes,
                                     int32_t count) {
    AscendC::Muls(numbers, numbers, static_cast<float>(item_bytes), count);
    VectorBarrier();
    AscendC::Cast(dst.ReinterpretCast<int32_t>(), numbers, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
    VectorBarrier();
}

// dst = src with neighbours exchanged, in elements of 16 bits: two shifts exchange the halves of each 32-bit word.
// up, down: scratch memory of `count` elements each. src, up and down do not overlap. dst may be src or up.
template <typename T>
__aicore__ inline void SwapNeighbours(LocalTensor<T> dst, LocalTensor<T> src, LocalTensor<T> up, LocalTensor<T> down,
                                      int32_t count) {
#if __CCE_AICORE__ != 200
    constexpr uint32_t kHalfWord = 16;
    LocalTensor<uint32_t> pairs = src.template ReinterpretCast<uint32_t>();
    AscendC::ShiftLeft(up.template ReinterpretCast<uint32_t>(), pairs, kHalfWord, count / 2);
    AscendC::ShiftRight(down.template ReinterpretCast<uint32_t>(), pairs, kHalfWord, count / 2);
    VectorBarrier();
    AscendC::Or(dst.template ReinterpretCast<uint16_t>(), up.template ReinterpretCast<uint16_t>(),
                down.template ReinterpretCast<uint16_t>(), count);
    VectorBarrier();
#endif
}

// Lanes [first, end) of a row of 32-bit elements.
struct LaneRange {
    int32_t first;
    int32_t end;
};

// Mask of `lanes` among the 64 lanes from `chunk` on.
__aicore__ inline uint64_t MaskOf(const LaneRange& lanes, int32_t chunk) {
    int32_t from = lanes.first > chunk ? lanes.first - chunk : 0;
    int32_t to = MinOf(lanes.end - chunk, kRepeatFloats);
    uint64_t below_to = to == kRepeatFloats ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
    return below_to & ~((uint64_t{1} << from) - 1);
}

// Splits a buffer of floats into parts, each on a 32-byte border.
class FloatAllocator {
public:
    __aicore__ inline explicit FloatAllocator(LocalTensor<float> all) : all_(all) {}
    __aicore__ inline LocalTensor<float> Take(int32_t count) {
        LocalTensor<float> part = all_[used_];
        used_ += RoundUp(count, kBlockFloats);
        return part;
    }

private:
    LocalTensor<float> all_;
    int32_t used_ = 0;
};

}  // namespace memory
