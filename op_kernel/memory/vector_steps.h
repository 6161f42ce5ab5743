// Helpers for the vector code of all kernels: barriers, synchronisation of pipes, rounding and index vectors. The
// kernels contain every barrier that they need; they do not rely on the compiler's automatic synchronisation.
#pragma once

#include "kernel_operator.h"

namespace memory {

using AscendC::LocalTensor;

constexpr int32_t kBlockBytes = 32;
constexpr int32_t kBlockFloats = 8;
constexpr int32_t kRepeatFloats = 64;
constexpr int32_t kMaxRepeats = 255;

// Rounding mode of a Cast from int32 to float32, for integers that float32 represents exactly. Every mode gives the
// same result, but each SoC supports only one of these two.
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

// Later vector instructions start after all earlier ones have completed. The helpers below end with this barrier, so
// that later vector instructions can read their results.
__aicore__ inline void VectorBarrier() { AscendC::PipeBarrier<PIPE_V>(); }

// dst = src as float32. src has elements of 16 bits.
template <typename T>
__aicore__ inline void ToFloats(LocalTensor<float> dst, LocalTensor<T> src, int32_t count) {
    AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
    VectorBarrier();
}

// Returns the id of an event that is not in use.
template <AscendC::HardEvent event>
__aicore__ inline int32_t FetchEvent() {
    using namespace AscendC;
    return static_cast<int32_t>(GetTPipePtr()->FetchEventID(event));
}

// Later instructions of the event's second pipe start after all earlier instructions of its first pipe have completed.
template <AscendC::HardEvent event>
__aicore__ inline void SyncPipes() {
    int32_t id = FetchEvent<event>();
    AscendC::SetFlag<event>(id);
    AscendC::WaitFlag<event>(id);
}

// Rounds to the nearest integer, half to even. Ascend310P converts through int32 in `temp`, because it has no other
// way.
__aicore__ inline void Round(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp, int32_t count) {
#if __CCE_AICORE__ == 200
    LocalTensor<int32_t> integers = temp.ReinterpretCast<int32_t>();
    AscendC::Cast(integers, src, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
    VectorBarrier();
    AscendC::Cast(dst, integers, kExactToFloat, static_cast<uint32_t>(count));
#else
    AscendC::Cast(dst, src, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
#endif
    VectorBarrier();
}

// dst = floor(src / divisor), for small integers, as round((src + 0.5) / divisor - 0.5). The added 0.5 / divisor is
// larger than the error of the division.
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

// dst = 0, 1, 2, ... CreateVecIndex() uses slow scalar code, so it writes only the first 64 numbers. Each later step
// doubles the number of written elements.
__aicore__ inline void FillAscending(LocalTensor<float> dst, int32_t count) {
    SyncPipes<AscendC::HardEvent::V_S>();
    AscendC::CreateVecIndex(dst, 0.0f, static_cast<uint32_t>(MinOf(count, kRepeatFloats)));
    VectorBarrier();
    for (int32_t written = kRepeatFloats; written < count; written *= 2) {
        AscendC::Adds(dst[written], dst, static_cast<float>(written), MinOf(written, count - written));
        VectorBarrier();
    }
}

// Converts the element indices in `numbers` to byte offsets for Gather. Overwrites `numbers`.
__aicore__ inline void ToByteOffsets(LocalTensor<uint32_t> dst, LocalTensor<float> numbers, int32_t item_bytes,
                                     int32_t count) {
    AscendC::Muls(numbers, numbers, static_cast<float>(item_bytes), count);
    VectorBarrier();
    AscendC::Cast(dst.ReinterpretCast<int32_t>(), numbers, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(count));
    VectorBarrier();
}

// dst = src with neighbouring 16-bit elements exchanged. Two shifts by 16 bits exchange the halves of each 32-bit word.
// up, down: scratch memory of `count` elements each. src, up and down must not overlap. dst may be src or up.
template <typename T>
__aicore__ inline void SwapNeighbours(LocalTensor<T> dst, LocalTensor<T> src, LocalTensor<T> up, LocalTensor<T> down,
                                      int32_t count) {
#if __CCE_AICORE__ != 200
    constexpr uint32_t kHalfWordBits = 16;
    LocalTensor<uint32_t> pairs = src.template ReinterpretCast<uint32_t>();
    AscendC::ShiftLeft(up.template ReinterpretCast<uint32_t>(), pairs, kHalfWordBits, count / 2);
    AscendC::ShiftRight(down.template ReinterpretCast<uint32_t>(), pairs, kHalfWordBits, count / 2);
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

// Mask of an instruction that starts at lane `first_lane`: bit i is set if lane first_lane + i is in `lanes`.
__aicore__ inline uint64_t MaskOf(const LaneRange& lanes, int32_t first_lane) {
    int32_t from = lanes.first > first_lane ? lanes.first - first_lane : 0;
    int32_t to = MinOf(lanes.end - first_lane, kRepeatFloats);
    uint64_t below_to = to == kRepeatFloats ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
    return below_to & ~((uint64_t{1} << from) - 1);
}

// Divides a buffer of floats into parts. Each part starts on a 32-byte border.
class FloatAllocator {
public:
    __aicore__ inline explicit FloatAllocator(LocalTensor<float> all) : all_(all) {}
    __aicore__ inline LocalTensor<float> Take(int32_t count) {
        LocalTensor<float> part = all_[used_];
        used_ += RoundUp(count, kBlockFloats);
        return part;
    }

    // The memory after the parts.
    __aicore__ inline LocalTensor<float> Rest() const { return all_[used_]; }

private:
    LocalTensor<float> all_;
    int32_t used_ = 0;
};

}  // namespace memory
