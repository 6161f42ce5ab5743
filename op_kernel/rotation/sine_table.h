// Compute the table of a block of tokens, mscale * sin and mscale * cos of each lane, from the positions.
//
// The angle is in turns, split as in lane_frequencies.h, and reduced to r in [-1/2, 1/2]. polynomials.h gives
// s = sin(pi r) and c2 = 2 cos(pi r). Then sin(2 pi r) = s c2 and cos(2 pi r) = 1 - 2 s^2. These formulas hold in every
// quadrant. The error is within 2^-20 for |position| < 2^22.
#pragma once

#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "lane_frequencies.h"
#include "polynomials.h"
#include "positions.h"

namespace rotation {

using namespace memory;

class SineTable {
public:
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, LocalTensor<float> scratch,
                                GM_ADDR turns) {
        tiling_ = tiling;
        width_ = tiling->table_width;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->table_bytes));
        sin_ = buffer_.Get<float>();
        cos_ = sin_[tiling->cos_offset_bytes / static_cast<int32_t>(sizeof(float))];
        FloatAllocator temps(scratch);
        for (int32_t k = 0; k < kRopeTableTemps; ++k) temp_[k] = temps.Take(tiling->block_tokens * width_);
        for (int32_t k = 0; k < kSlotVectors; ++k) slot_[k] = temps.Take(tiling->token_slots);
        low_ = temps.Take(tiling->token_slots * kBlockFloats);
        high_ = temps.Take(tiling->token_slots * kBlockFloats);
        if (tiling->planes > 1) ReadPlaneLanes(turns);
    }

    template <typename PositionT>
    __aicore__ inline void Build(Positions<PositionT>* positions, const LaneFrequencies& lanes, int32_t tokens) {
        positions->WaitForLoad();
        for (int32_t plane = 0; plane < tiling_->planes; ++plane) {
            positions->Convert(slot_[0], slot_[1], plane, tokens);
            SplitPositions(tokens);
            MultiplyTurns(lanes, plane, tokens);
        }
        positions->ReleaseBuffer();
        VectorBarrier();
        AscendC::Add(temp_[0], temp_[0], sin_, tokens * width_);
        AscendC::Add(temp_[1], temp_[1], cos_, tokens * width_);
        VectorBarrier();
        ReduceToHalfTurn(tokens * width_);
        ComputeSinCos(tokens * width_);
    }

    __aicore__ inline LocalTensor<float> Sin(int32_t row) const { return sin_[row * width_]; }
    __aicore__ inline LocalTensor<float> Cos(int32_t row) const { return cos_[row * width_]; }

private:
    static constexpr int32_t kSlotVectors = 5;
    static_assert(kSlotVectors + 2 * kBlockFloats == kRopeTokenTemps, "the tiling reserves memory for them");

    // Splits each position into 2048 high + low. low_ and high_ have a block of 8 equal floats for each token.
    // An instruction takes longer if its count is no multiple of a repeat.
    __aicore__ inline void SplitPositions(int32_t tokens) {
        LocalTensor<float> position = slot_[0], high = slot_[2], low = slot_[3];
        int32_t count = RoundUp(tokens, kRepeatFloats);
        AscendC::Muls(high, position, 1.0f / kHighUnit, count);
        VectorBarrier();
        Round(high, high, slot_[4], count);
        AscendC::Muls(low, high, -kHighUnit, count);
        VectorBarrier();
        AscendC::Add(low, low, position, count);
        VectorBarrier();
        auto blocks = static_cast<uint8_t>(RoundUp(tokens, kBlockFloats) / kBlockFloats);
        AscendC::Brcb(low_, low, blocks, AscendC::BrcbRepeatParams(1, kBlockFloats));
        AscendC::Brcb(high_, high, blocks, AscendC::BrcbRepeatParams(1, kBlockFloats));
        VectorBarrier();
    }

    __aicore__ inline void ReadPlaneLanes(GM_ADDR turns) {
        AscendC::GlobalTensor<uint64_t> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(turns + __builtin_offsetof(RopeTurns, plane_lanes)));
        int32_t chunks = (width_ + kRepeatFloats - 1) / kRepeatFloats;
        for (int32_t plane = 0; plane < tiling_->planes; ++plane)
            for (int32_t chunk = 0; chunk < chunks; ++chunk)
                plane_lanes_[plane][chunk] = source.GetValue(static_cast<uint64_t>(plane * kRopeMaxChunks + chunk));
    }

    // Computes the four products of low w1 + high w2 in the lanes of a plane: the exact ones in temp_[0] and sin_, the
    // small ones in temp_[1] and cos_. MulAddDst is not used, because its rounding is not documented.
    __aicore__ inline void MultiplyTurns(const LaneFrequencies& lanes, int32_t plane, int32_t tokens) {
        MultiplyLanes(temp_[0], low_, lanes.Part(0), plane, tokens);
        MultiplyLanes(temp_[1], low_, lanes.Part(1), plane, tokens);
        MultiplyLanes(sin_, high_, lanes.Part(2), plane, tokens);
        MultiplyLanes(cos_, high_, lanes.Part(3), plane, tokens);
    }

    // dst = positions * lanes in the lanes of a plane. Each repeat of an instruction processes one token.
    __aicore__ inline void MultiplyLanes(LocalTensor<float> dst, LocalTensor<float> positions, LocalTensor<float> lanes,
                                         int32_t plane, int32_t tokens) {
        AscendC::BinaryRepeatParams step(1, 0, 1, static_cast<uint8_t>(width_ / kBlockFloats), 1, 0);
        for (int32_t first = 0; first < width_; first += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(LaneRange{0, width_}, first), 0};
            if (tiling_->planes > 1) mask[0] = plane_lanes_[plane][first / kRepeatFloats];
            if (mask[0] != 0)
                AscendC::Mul(dst[first], positions, lanes[first], mask, static_cast<uint8_t>(tokens), step);
        }
    }

    // Sets temp_[0] to r, the turns minus their nearest integer.
    __aicore__ inline void ReduceToHalfTurn(int32_t count) {
        AscendC::Add(temp_[2], temp_[0], temp_[1], count);
        VectorBarrier();
        Round(temp_[2], temp_[2], sin_, count);
        AscendC::Sub(temp_[0], temp_[0], temp_[2], count);
        VectorBarrier();
        AscendC::Add(temp_[0], temp_[0], temp_[1], count);
        VectorBarrier();
    }

    // One step of Horner's method for both polynomials in z.
    __aicore__ inline void HornerStep(float sin_coefficient, float cos_coefficient, LocalTensor<float> z,
                                      int32_t count) {
        AscendC::Adds(sin_, sin_, sin_coefficient, count);
        AscendC::Adds(cos_, cos_, cos_coefficient, count);
        VectorBarrier();
        AscendC::Mul(sin_, sin_, z, count);
        AscendC::Mul(cos_, cos_, z, count);
        VectorBarrier();
    }

    // Computes sin_ and cos_ from r. The coefficients of c2 include the factor mscale.
    __aicore__ inline void ComputeSinCos(int32_t count) {
        LocalTensor<float> r = temp_[0], z = temp_[1], square = temp_[2];
        float mscale = tiling_->mscale;
        AscendC::Mul(z, r, r, count);
        VectorBarrier();
        AscendC::Muls(sin_, z, kSin4, count);
        AscendC::Muls(cos_, z, kCos5 * mscale, count);
        VectorBarrier();
        HornerStep(kSin3, kCos4 * mscale, z, count);
        HornerStep(kSin2, kCos3 * mscale, z, count);
        HornerStep(kSin1, kCos2 * mscale, z, count);
        AscendC::Adds(sin_, sin_, kSin0, count);
        AscendC::Adds(cos_, cos_, kCos1 * mscale, count);
        VectorBarrier();
        AscendC::Mul(sin_, sin_, r, count);
        AscendC::Mul(cos_, cos_, z, count);
        VectorBarrier();
        AscendC::Axpy(sin_, r, 2.0f, count);  // s
        AscendC::Adds(cos_, cos_, kCos0 * mscale, count);
        VectorBarrier();
        AscendC::Mul(square, sin_, sin_, count);
        VectorBarrier();
        AscendC::Mul(sin_, sin_, cos_, count);
        AscendC::Muls(square, square, -2.0f * mscale, count);
        VectorBarrier();
        AscendC::Adds(cos_, square, mscale, count);
        VectorBarrier();
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t width_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> sin_, cos_, low_, high_;
    LocalTensor<float> temp_[kRopeTableTemps];
    LocalTensor<float> slot_[kSlotVectors];  // vectors with one float for each token slot
    uint64_t plane_lanes_[kRopeMaxPlanes][kRopeMaxChunks];
};

}  // namespace rotation
