// The frequency of each table lane, which each core computes once. A core divides the tiling's turns by freq_factors,
// if the call has them. It copies the turns of each pair to the lanes of the pair and splits them for the products of
// sine_table.h.
//
// Let w be the turns per position, and p = 2048 high + low a position with |low| <= 1024 and |high| <= 2048. Then
//     p w = low w1 + high w2 (mod 1),   w1 = w,   w2 = 2048 w - round(2048 w).
// w1 and w2 are each stored as hi + lo. hi is a multiple of 2^-13, so that the products with hi and their sum are exact
// in float32.
#pragma once

#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "pair_index.h"

namespace rotation {

using namespace memory;

constexpr float kHighUnit = 2048.0f;     // positions in one unit of `high`
constexpr float kGridPerTurn = 8192.0f;  // hi parts are multiples of 1/kGridPerTurn
// A larger freq_factor would overflow in SplitInHalves(). The pair of a factor of this size does not rotate.
constexpr float kLargestFactor = 1e30f;
constexpr float kVeltkampFactor = 4097.0f;  // 2^12 + 1: Veltkamp's splitting of a float32 into halves of 12 bits

class LaneFrequencies {
public:
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, LocalTensor<float> scratch) {
        tiling_ = tiling;
        width_ = tiling->table_width;
        pairs_ = RoundUp(tiling->n_dims / 2, kBlockFloats);
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->lane_bytes));
        FloatAllocator lanes(buffer_.Get<float>());
        w1_hi_ = lanes.Take(width_);
        w1_lo_ = lanes.Take(width_);
        w2_hi_ = lanes.Take(width_);
        w2_lo_ = lanes.Take(width_);
        FloatAllocator temps(scratch);
        for (int32_t k = 0; k < kRopeSetupPairTemps; ++k) pair_temp_[k] = temps.Take(pairs_);
        loaded_event_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
    }

    // Starts the copies that Build() waits for.
    __aicore__ inline void Load(GM_ADDR turns, GM_ADDR freq_factors) {
        LoadTurns(pair_temp_[0], turns + __builtin_offsetof(RopeTurns, hi));
        LoadTurns(pair_temp_[1], turns + __builtin_offsetof(RopeTurns, lo));
        if (tiling_->has_factors != 0) LoadFactors(pair_temp_[2], freq_factors);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    // by_lane: the table has one lane for each lane of a head's row; otherwise one for each pair.
    __aicore__ inline void Build(AscendC::TPipe* pipe, PairIndex* index, bool by_lane) {
        if (by_lane) FindPairs(index);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
        pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(loaded_event_);
        if (tiling_->has_factors != 0) DivideByFactors();
        if (by_lane) {
            LocalTensor<float> hi = index->Temp(3), lo = index->Temp(4);
            GatherTurns(hi, lo, *index);
            SplitTurns(hi, lo, *index);
        } else {
            SplitTurns(pair_temp_[0], pair_temp_[1], *index);
        }
    }

    __aicore__ inline LocalTensor<float> W1Hi() const { return w1_hi_; }
    __aicore__ inline LocalTensor<float> W1Lo() const { return w1_lo_; }
    __aicore__ inline LocalTensor<float> W2Hi() const { return w2_hi_; }
    __aicore__ inline LocalTensor<float> W2Lo() const { return w2_lo_; }

private:
    __aicore__ inline void LoadTurns(LocalTensor<float> dst, GM_ADDR turns) {
        AscendC::GlobalTensor<float> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(turns));
        AscendC::DataCopy(dst, source, static_cast<uint32_t>(pairs_));
    }

    // The caller guarantees only n_dims/2 factors. The rest of the last block becomes 1.
    __aicore__ inline void LoadFactors(LocalTensor<float> dst, GM_ADDR factors) {
        AscendC::GlobalTensor<float> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(factors));
        int32_t count = tiling_->n_dims / 2;
#if __CCE_AICORE__ == 200
        int32_t aligned = count / kBlockFloats * kBlockFloats;
        if (aligned > 0) AscendC::DataCopy(dst, source, static_cast<uint32_t>(aligned));
        for (int32_t i = aligned; i < pairs_; ++i) dst.SetValue(i, i < count ? source.GetValue(i) : 1.0f);
        SyncPipes<AscendC::HardEvent::S_V>();
#else
        AscendC::DataCopyExtParams run(1, static_cast<uint32_t>(count) * sizeof(float), 0, 0, 0);
        AscendC::DataCopyPadExtParams<float> pad(true, 0, static_cast<uint8_t>(pairs_ - count), 1.0f);
        AscendC::DataCopyPad(dst, source, run, pad);
#endif
    }

    // Computes (hi + lo) / factor minus the nearest integer, as a sum of two numbers. The remainder of the first
    // quotient must be exact, but the vector unit has no fused multiply-add. Veltkamp's splitting and Dekker's product
    // therefore compute the rounding error of the product.
    __aicore__ inline void DivideByFactors() {
        LocalTensor<float> hi = pair_temp_[0], lo = pair_temp_[1], factor = pair_temp_[2], quotient = pair_temp_[3];
        LocalTensor<float> quotient_hi = pair_temp_[4], quotient_lo = pair_temp_[5], factor_hi = pair_temp_[6],
                           factor_lo = pair_temp_[7];
        LocalTensor<float> product = pair_temp_[8], error = pair_temp_[9], temp = pair_temp_[10];
        AscendC::Mins(factor, factor, kLargestFactor, pairs_);
        VectorBarrier();
        AscendC::Div(quotient, hi, factor, pairs_);
        VectorBarrier();
        SplitInHalves(quotient_hi, quotient_lo, quotient, temp);
        SplitInHalves(factor_hi, factor_lo, factor, temp);
        AscendC::Mul(product, quotient, factor, pairs_);
        AscendC::Mul(error, quotient_hi, factor_hi, pairs_);
        VectorBarrier();
        AscendC::Sub(error, error, product, pairs_);
        AddProduct(error, quotient_hi, factor_lo, temp);
        AddProduct(error, quotient_lo, factor_hi, temp);
        AddProduct(error, quotient_lo, factor_lo, temp);
        AscendC::Sub(hi, hi, product, pairs_);
        VectorBarrier();
        AscendC::Sub(hi, hi, error, pairs_);
        VectorBarrier();
        AscendC::Add(hi, hi, lo, pairs_);
        VectorBarrier();
        AscendC::Div(error, hi, factor, pairs_);  // the quotient's lower part
        Round(temp, quotient, pair_temp_[11], pairs_);
        AscendC::Sub(quotient, quotient, temp, pairs_);
        VectorBarrier();
        AscendC::Add(hi, quotient, error, pairs_);
        VectorBarrier();
        AscendC::Sub(temp, hi, quotient, pairs_);
        VectorBarrier();
        AscendC::Sub(lo, error, temp, pairs_);
        VectorBarrier();
    }

    __aicore__ inline void SplitInHalves(LocalTensor<float> hi, LocalTensor<float> lo, LocalTensor<float> src,
                                         LocalTensor<float> temp) {
        AscendC::Muls(temp, src, kVeltkampFactor, pairs_);
        VectorBarrier();
        AscendC::Sub(hi, temp, src, pairs_);
        VectorBarrier();
        AscendC::Sub(hi, temp, hi, pairs_);
        VectorBarrier();
        AscendC::Sub(lo, src, hi, pairs_);  // the caller's next VectorBarrier() comes before lo is read
    }

    // dst += a * b. The previous instruction may still write dst: the barrier after the product waits for it as well.
    __aicore__ inline void AddProduct(LocalTensor<float> dst, LocalTensor<float> a, LocalTensor<float> b,
                                      LocalTensor<float> temp) {
        AscendC::Mul(temp, a, b, pairs_);
        VectorBarrier();
        AscendC::Add(dst, dst, temp, pairs_);
        VectorBarrier();
    }

    // Sets Temp(0) to the offsets of the turns of each table lane's pair, and Temp(1) to their signs. The sign is minus
    // for the first lane of a pair, so that the sines have the signs of the rotation.
    __aicore__ inline void FindPairs(PairIndex* index) {
        index->FindPairs();
        ToByteOffsets(index->Temp(0).ReinterpretCast<uint32_t>(), index->Temp(2), sizeof(float), width_);
    }

    __aicore__ inline void GatherTurns(LocalTensor<float> hi, LocalTensor<float> lo, const PairIndex& index) {
        LocalTensor<uint32_t> offsets = index.Temp(0).ReinterpretCast<uint32_t>();
        AscendC::Gather(hi, pair_temp_[0], offsets, 0, static_cast<uint32_t>(width_));
        AscendC::Gather(lo, pair_temp_[1], offsets, 0, static_cast<uint32_t>(width_));
        VectorBarrier();
        AscendC::Mul(hi, hi, index.Temp(1), width_);
        AscendC::Mul(lo, lo, index.Temp(1), width_);
        VectorBarrier();
    }

    __aicore__ inline void SplitTurns(LocalTensor<float> hi, LocalTensor<float> lo, const PairIndex& index) {
        LocalTensor<float> rest = index.Temp(0), nearest = index.Temp(1), temp = index.Temp(2);
        RoundToGrid(w1_hi_, hi, temp);
        AscendC::Sub(w1_lo_, hi, w1_hi_, width_);
        AscendC::Muls(rest, hi, kHighUnit, width_);
        VectorBarrier();
        AscendC::Add(w1_lo_, w1_lo_, lo, width_);
        Round(nearest, rest, temp, width_);
        AscendC::Sub(rest, rest, nearest, width_);
        VectorBarrier();
        RoundToGrid(w2_hi_, rest, temp);
        AscendC::Sub(w2_lo_, rest, w2_hi_, width_);
        AscendC::Muls(nearest, lo, kHighUnit, width_);
        VectorBarrier();
        AscendC::Add(w2_lo_, w2_lo_, nearest, width_);
        VectorBarrier();
    }

    __aicore__ inline void RoundToGrid(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp) {
        AscendC::Muls(dst, src, kGridPerTurn, width_);
        VectorBarrier();
        Round(dst, dst, temp, width_);
        AscendC::Muls(dst, dst, 1.0f / kGridPerTurn, width_);
        VectorBarrier();
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t width_ = 0;
    int32_t pairs_ = 0;  // n_dims/2, rounded up to whole blocks
    AscendC::TEventID loaded_event_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> w1_hi_, w1_lo_, w2_hi_, w2_lo_;
    LocalTensor<float> pair_temp_[kRopeSetupPairTemps];
};

}  // namespace rotation
