// Vector operations on rows of float32 in UB. An instruction covers up to 64 lanes of up to 255 rows, or all lanes of
// one row. The helpers choose the way with fewer instructions.
#pragma once

#include "kernel_operator.h"
#include "vector_steps.h"

namespace memory {

enum class RowOp { kMul, kAdd, kSub, kMax };

template <RowOp op>
__aicore__ inline void ApplyRowOp(LocalTensor<float> dst, LocalTensor<float> a, LocalTensor<float> b, uint64_t* mask,
                                  int32_t repeats, const AscendC::BinaryRepeatParams& step) {
    auto repeat_times = static_cast<uint8_t>(repeats);
    if constexpr (op == RowOp::kMul) {
        AscendC::Mul(dst, a, b, mask, repeat_times, step);
    } else if constexpr (op == RowOp::kAdd) {
        AscendC::Add(dst, a, b, mask, repeat_times, step);
    } else if constexpr (op == RowOp::kSub) {
        AscendC::Sub(dst, a, b, mask, repeat_times, step);
    } else {
        AscendC::Max(dst, a, b, mask, repeat_times, step);
    }
}

// Rows of float32. `pitch` is the distance from one row to the next, in floats; 0: all rows are the same row.
struct PitchedRows {
    LocalTensor<float> data;
    int32_t pitch;
    bool is_broadcast;  // a row is one value, which is stored in all 8 lanes of a block
};

// One row, as the only row or as the same operand for every row.
__aicore__ inline PitchedRows OneRow(LocalTensor<float> row) { return PitchedRows{row, 0, false}; }

// Whether an instruction's 8-bit repeat stride, in blocks, can be this pitch.
__aicore__ inline bool FitsRepeatStride(int32_t pitch) {
    return pitch / kBlockFloats == static_cast<uint8_t>(pitch / kBlockFloats);
}

// The repeat stride of an instruction, in blocks. A single repeat needs none.
__aicore__ inline uint8_t RepeatStride(int32_t pitch, int32_t repeats) {
    return repeats == 1 ? 0 : static_cast<uint8_t>(pitch / kBlockFloats);
}

// Whether the repeats of an instruction go over rows instead of along a row: true if the pitch fits the repeat stride
// and this way needs no more instructions.
__aicore__ inline bool RepeatsOverRows(int32_t rows, int32_t width, int32_t longest_pitch) {
    int32_t chunks = (width + kRepeatFloats - 1) / kRepeatFloats;
    int32_t instructions_along = rows * (width % kRepeatFloats == 0 ? 1 : 2);
    return (rows == 1 || FitsRepeatStride(longest_pitch)) &&
           chunks * ((rows + kMaxRepeats - 1) / kMaxRepeats) <= instructions_along;
}

__aicore__ inline int32_t MaxOf(int32_t a, int32_t b) { return a > b ? a : b; }

// dst = a op b in lanes [0, width) of every row; b may be a broadcast. The caller adds the vector barrier.
template <RowOp op>
__aicore__ inline void ApplyPerRow(const PitchedRows& dst, const PitchedRows& a, const PitchedRows& b, int32_t rows,
                                   int32_t width) {
    uint8_t b_block_step = b.is_broadcast ? 0 : 1;
    LaneRange lanes{0, width};
    if (RepeatsOverRows(rows, width, MaxOf(dst.pitch, MaxOf(a.pitch, b.pitch)))) {
        for (int32_t row = 0; row < rows; row += kMaxRepeats) {
            int32_t repeats = MinOf(rows - row, kMaxRepeats);
            AscendC::BinaryRepeatParams step(1, 1, b_block_step, RepeatStride(dst.pitch, repeats),
                                             RepeatStride(a.pitch, repeats), RepeatStride(b.pitch, repeats));
            for (int32_t first_lane = 0; first_lane < width; first_lane += kRepeatFloats) {
                uint64_t mask[2] = {MaskOf(lanes, first_lane), 0};
                ApplyRowOp<op>(dst.data[row * dst.pitch + first_lane], a.data[row * a.pitch + first_lane],
                               b.data[row * b.pitch + (b.is_broadcast ? 0 : first_lane)], mask, repeats, step);
            }
        }
        return;
    }
    constexpr uint8_t kRepeatBlocks = kRepeatFloats / kBlockFloats;
    AscendC::BinaryRepeatParams step(1, 1, b_block_step, kRepeatBlocks, kRepeatBlocks,
                                     b.is_broadcast ? 0 : kRepeatBlocks);
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

// Reduces each row by op to its first lanes, at most `limit` of them. limit is 8 times a power of two. Each step
// combines two halves, so that the error of a sum grows with the logarithm of its number of terms. Returns the number
// of lanes that are left.
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

// Adds `count` rows [width] without gaps to the first one. Each step adds the second half of the rows to the first
// half.
__aicore__ inline void AddRowsAsTree(LocalTensor<float> rows, int32_t count, int32_t width) {
    while (count > 1) {
        int32_t half = 1;
        while (2 * half < count) half *= 2;
        AscendC::Add(rows, rows, rows[half * width], (count - half) * width);
        VectorBarrier();
        count = half;
    }
}

// sums[row] = the sum of the row's first `width` lanes; width is at most 64. Rows of 64 lanes are first reduced to 8
// sums each, in `blocks`. The caller has initialised `blocks` up to a multiple of 8 rows.
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

// Copies each float of `numbers`, one for each row, to all lanes of its own block.
__aicore__ inline void BroadcastRows(LocalTensor<float> blocks, LocalTensor<float> numbers, int32_t count) {
    AscendC::Brcb(blocks, numbers, static_cast<uint8_t>((count + kBlockFloats - 1) / kBlockFloats),
                  AscendC::BrcbRepeatParams(1, kBlockFloats));
    VectorBarrier();
}

// Sets `lanes` to 0 in every row. They must be in one group of 64 lanes.
__aicore__ inline void ClearLanes(LocalTensor<float> rows, int32_t pitch, int32_t count, const LaneRange& lanes) {
    int32_t first_lane = lanes.first / kRepeatFloats * kRepeatFloats;
    uint64_t mask[2] = {MaskOf(lanes, first_lane), 0};
    if (mask[0] == 0) return;
    const int32_t max_repeats = FitsRepeatStride(pitch) ? kMaxRepeats : 1;
    for (int32_t row = 0; row < count; row += max_repeats) {
        int32_t repeats = MinOf(count - row, max_repeats);
        AscendC::Duplicate(rows[row * pitch + first_lane], 0.0f, mask, static_cast<uint8_t>(repeats), 1,
                           RepeatStride(pitch, repeats));
    }
    VectorBarrier();
}

// The rounding mode from float32 to a 16-bit type: ties to even on every SoC.
template <typename OutT>
__aicore__ inline constexpr AscendC::RoundMode NarrowMode() {
    return SameType<OutT, half>::value ? AscendC::RoundMode::CAST_NONE : AscendC::RoundMode::CAST_RINT;
}

// dst = src rounded to OutT, in lanes [0, width) of every row. The caller adds the vector barrier.
template <typename OutT>
__aicore__ inline void NarrowRows(LocalTensor<OutT> dst, int32_t dst_pitch, LocalTensor<float> src, int32_t src_pitch,
                                  int32_t rows, int32_t width) {
    constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(OutT));
    if (dst_pitch == src_pitch && width == src_pitch) {
        AscendC::Cast(dst, src, NarrowMode<OutT>(), static_cast<uint32_t>(rows * width));
        return;
    }
    if (!RepeatsOverRows(rows, width, MaxOf(src_pitch, dst_pitch / 2))) {
        for (int32_t row = 0; row < rows; ++row)
            AscendC::Cast(dst[row * dst_pitch], src[row * src_pitch], NarrowMode<OutT>(), static_cast<uint32_t>(width));
        return;
    }
    for (int32_t row = 0; row < rows; row += kMaxRepeats) {
        int32_t repeats = MinOf(rows - row, kMaxRepeats);
        AscendC::UnaryRepeatParams step(1, 1, static_cast<uint8_t>(repeats == 1 ? 0 : dst_pitch / kBlockItems),
                                        RepeatStride(src_pitch, repeats));
        for (int32_t first_lane = 0; first_lane < width; first_lane += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(LaneRange{0, width}, first_lane), 0};
            AscendC::Cast(dst[row * dst_pitch + first_lane], src[row * src_pitch + first_lane], NarrowMode<OutT>(),
                          mask, static_cast<uint8_t>(repeats), step);
        }
    }
}

// Rounds rows to the nearest numbers of RoundedT and converts them back to float32. Afterwards temp begins with the
// rows as RoundedT.
template <typename RoundedT>
__aicore__ inline void RoundTo(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
    LocalTensor<RoundedT> narrow = temp.ReinterpretCast<RoundedT>();
    AscendC::Cast(narrow, rows, NarrowMode<RoundedT>(), static_cast<uint32_t>(count));
    VectorBarrier();
    ToFloats(rows, narrow, count);
}

}  // namespace memory
