// One vector instruction on rows of float32, and steps that cover all of them: up to 64 lanes of up to 255 rows at
// a time, or all lanes of one row, whichever needs fewer instructions.
#pragma once

#include "kernel_operator.h"
#include "vector_steps.h"

namespace memory {

enum class RowOp { kMul, kAdd, kSub, kMax };

template <RowOp op>
__aicore__ inline void ApplyRowOp(LocalTensor<float> dst, LocalTensor<float> a, LocalTensor<float> b, uint64_t* mask,
                                  int32_t repeats, const AscendC::BinaryRepeatParams& step) {
    auto times = static_cast<uint8_t>(repeats);
    if constexpr (op == RowOp::kMul) {
        AscendC::Mul(dst, a, b, mask, times, step);
    } else if constexpr (op == RowOp::kAdd) {
        AscendC::Add(dst, a, b, mask, times, step);
    } else if constexpr (op == RowOp::kSub) {
        AscendC::Sub(dst, a, b, mask, times, step);
    } else {
        AscendC::Max(dst, a, b, mask, times, step);
    }
}

// Rows at distances of `pitch` floats; 0: one row for all.
struct PitchedRows {
    LocalTensor<float> data;
    int32_t pitch;
    bool is_broadcast;  // a row is one value, in all lanes of a block
};

__aicore__ inline bool FitsRepeatStride(int32_t pitch) {
    return pitch / kBlockFloats == static_cast<uint8_t>(pitch / kBlockFloats);
}

// Distance from one repeat of an instruction to the next, in blocks; a single repeat takes no step.
__aicore__ inline uint8_t RepeatStride(int32_t pitch, int32_t repeats) {
    return repeats == 1 ? 0 : static_cast<uint8_t>(pitch / kBlockFloats);
}

// Whether to repeat over rows instead of along each row: true where the step fits an instruction and this order needs
// no more instructions.
__aicore__ inline bool RepeatOverRows(int32_t rows, int32_t width, int32_t longest_pitch) {
    int32_t chunks = (width + kRepeatFloats - 1) / kRepeatFloats;
    int32_t along = rows * (width % kRepeatFloats == 0 ? 1 : 2);
    return (rows == 1 || FitsRepeatStride(longest_pitch)) && chunks * ((rows + kMaxRepeats - 1) / kMaxRepeats) <= along;
}

__aicore__ inline int32_t MaxOf(int32_t a, int32_t b) { return a > b ? a : b; }

// dst = a op b in lanes [0, width) of every row; b may be spread. The caller orders the vector instructions.
template <RowOp op>
__aicore__ inline void ApplyPerRow(const PitchedRows& dst, const PitchedRows& a, const PitchedRows& b, int32_t rows,
                                   int32_t width) {
    uint8_t b_block_step = b.is_broadcast ? 0 : 1;
    LaneRange lanes{0, width};
    if (RepeatOverRows(rows, width, MaxOf(dst.pitch, MaxOf(a.pitch, b.pitch)))) {
        for (int32_t row = 0; row < rows; row += kMaxRepeats) {
            int32_t repeats = MinOf(rows - row, kMaxRepeats);
            AscendC::BinaryRepeatParams step(1, 1, b_block_step, RepeatStride(dst.pitch, repeats),
                                             RepeatStride(a.pitch, repeats), RepeatStride(b.pitch, repeats));
            for (int32_t chunk = 0; chunk < width; chunk += kRepeatFloats) {
                uint64_t mask[2] = {MaskOf(lanes, chunk), 0};
                ApplyRowOp<op>(dst.data[row * dst.pitch + chunk], a.data[row * a.pitch + chunk],
                               b.data[row * b.pitch + (b.is_broadcast ? 0 : chunk)], mask, repeats, step);
            }
        }
        return;
    }
    constexpr uint8_t kNext = kRepeatFloats / kBlockFloats;
    AscendC::BinaryRepeatParams step(1, 1, b_block_step, kNext, kNext, b.is_broadcast ? 0 : kNext);
    int32_t repeats = width / kRepeatFloats;
    for (int32_t row = 0; row < rows; ++row) {
        LocalTensor<float> to = dst.data[row * dst.pitch], from = a.data[row * a.pitch], by = b.data[row * b.pitch];
        for (int32_t i = 0; i < repeats; i += kMaxRepeats) {
            uint64_t mask[2] = {~uint64_t{0}, 0};
            int32_t lane = i * kRepeatFloats;
            ApplyRowOp<op>(to[lane], from[lane], by[b.is_broadcast ? 0 : lane], mask, MinOf(repeats - i, kMaxRepeats),
                           step);
        }
        int32_t rest = repeats * kRepeatFloats;
        if (rest == width) continue;
        uint64_t mask[2] = {MaskOf(lanes, rest), 0};
        ApplyRowOp<op>(to[rest], from[rest], by[b.is_broadcast ? 0 : rest], mask, 1, step);
    }
}

// Reduces each row by op to at most `limit` lanes, its first ones; limit is 8 times a power of two. Each step combines
// two halves, so that a sum's error grows with the logarithm of its number of terms. Returns the number of lanes left.
template <RowOp op>
__aicore__ inline int32_t FoldRows(LocalTensor<float> rows, int32_t pitch, int32_t count, int32_t width,
                                   int32_t limit) {
    while (width > limit) {
        int32_t half = limit;
        while (2 * half < width) half *= 2;
        PitchedRows low{rows, pitch, false}, high{rows[half], pitch, false};
        ApplyPerRow<op>(low, low, high, count, width - half);
        VectorBarrier();
        width = half;
    }
    return width;
}

// sums[row] = the sum of the row's first `width` lanes, at most 64. For 64 lanes, blocks are summed first, to 8 floats
// per row; the caller has initialised `blocks` up to a multiple of 8 rows.
__aicore__ inline void SumRows(LocalTensor<float> sums, LocalTensor<float> blocks, LocalTensor<float> rows,
                               int32_t pitch, int32_t width, int32_t count) {
    int32_t step = pitch / kBlockFloats;
    bool full_repeat = width == kRepeatFloats;
    for (int32_t row = 0; row < count; row += kMaxRepeats) {
        int32_t repeats = MinOf(count - row, kMaxRepeats);
        if (full_repeat) {
            AscendC::BlockReduceSum(blocks[row * kBlockFloats], rows[row * pitch], repeats, kRepeatFloats, 1, 1, step);
        } else {
            AscendC::WholeReduceSum(sums[row], rows[row * pitch], width, repeats, 1, 1, step);
        }
    }
    VectorBarrier();
    if (!full_repeat) return;
    AscendC::BlockReduceSum(sums, blocks, (count + kBlockFloats - 1) / kBlockFloats, kRepeatFloats, 1, 1,
                            kRepeatFloats / kBlockFloats);
    VectorBarrier();
}

// Spreads each row's number to all lanes of one block.
__aicore__ inline void BroadcastRows(LocalTensor<float> blocks, LocalTensor<float> numbers, int32_t count) {
    AscendC::Brcb(blocks, numbers, static_cast<uint8_t>((count + kBlockFloats - 1) / kBlockFloats),
                  AscendC::BrcbRepeatParams(1, kBlockFloats));
    VectorBarrier();
}

// Sets `lanes`, which are within one group of 64, to 0 in every row.
__aicore__ inline void ClearLanes(LocalTensor<float> rows, int32_t pitch, int32_t count, const LaneRange& lanes) {
    int32_t chunk = lanes.first / kRepeatFloats * kRepeatFloats;
    uint64_t mask[2] = {MaskOf(lanes, chunk), 0};
    if (mask[0] == 0) return;
    for (int32_t row = 0; row < count; row += kMaxRepeats) {
        int32_t repeats = MinOf(count - row, kMaxRepeats);
        AscendC::Duplicate(rows[row * pitch + chunk], 0.0f, mask, static_cast<uint8_t>(repeats), 1,
                           RepeatStride(pitch, repeats));
    }
    VectorBarrier();
}

// The rounding mode from float32 to a 16-bit type: ties to even on every SoC.
template <typename U>
__aicore__ inline constexpr AscendC::RoundMode NarrowMode() {
    return SameType<U, half>::value ? AscendC::RoundMode::CAST_NONE : AscendC::RoundMode::CAST_RINT;
}

// dst = src rounded, lanes [0, width) of every row. The caller orders the vector instructions.
template <typename U>
__aicore__ inline void NarrowRows(LocalTensor<U> dst, int32_t dst_pitch, LocalTensor<float> src, int32_t src_pitch,
                                  int32_t rows, int32_t width) {
    constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(U));
    if (dst_pitch == src_pitch && width == src_pitch) {
        AscendC::Cast(dst, src, NarrowMode<U>(), static_cast<uint32_t>(rows * width));
        return;
    }
    if (!RepeatOverRows(rows, width, MaxOf(src_pitch, dst_pitch / 2))) {
        for (int32_t row = 0; row < rows; ++row)
            AscendC::Cast(dst[row * dst_pitch], src[row * src_pitch], NarrowMode<U>(), static_cast<uint32_t>(width));
        return;
    }
    for (int32_t row = 0; row < rows; row += kMaxRepeats) {
        int32_t repeats = MinOf(rows - row, kMaxRepeats);
        AscendC::UnaryRepeatParams step(1, 1, static_cast<uint8_t>(repeats == 1 ? 0 : dst_pitch / kBlockItems),
                                        RepeatStride(src_pitch, repeats));
        for (int32_t chunk = 0; chunk < width; chunk += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(LaneRange{0, width}, chunk), 0};
            AscendC::Cast(dst[row * dst_pitch + chunk], src[row * src_pitch + chunk], NarrowMode<U>(), mask,
                          static_cast<uint8_t>(repeats), step);
        }
    }
}

// Rounds rows to the nearest numbers of R and converts them back. Afterwards temp starts with the rows as R.
template <typename R>
__aicore__ inline void RoundTo(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
    LocalTensor<R> narrow = temp.ReinterpretCast<R>();
    AscendC::Cast(narrow, rows, NarrowMode<R>(), static_cast<uint32_t>(count));
    VectorBarrier();
    ToFloats(rows, narrow, count);
}

}  // namespace memory
