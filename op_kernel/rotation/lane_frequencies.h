// The frequency of each table lane, which each core computes once: the turns per position in the four parts that
// rope_tiling_data.h explains. The tiling has the parts of each pair, unless the call has freq_factors or too many
// pairs. Then a core divides the turns by the factors, if there are any, and splits them. If a table has a lane for
// each lane of a head, a core copies the parts of each pair to the lanes of the pair.
#pragma once

#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "pair_index.h"

namespace rotation {

using namespace memory;

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
        for (int32_t k = 0; k < kTurnParts; ++k) part_[k] = lanes.Take(width_);
        FloatAllocator temps(scratch);
        for (int32_t k = 0; k < kRopeSetupPairTemps; ++k) pair_temp_[k] = temps.Take(pairs_);
        loaded_event_ = pipe->AllocEventID<AscendC::HardEvent::MTE2_V>();
    }

    // Starts the copies that Build() waits for. by_lane: the table has one lane for each lane of a head's row;
    // otherwise one for each pair, and width_ is pairs_.
    __aicore__ inline void Load(GM_ADDR turns, GM_ADDR freq_factors, bool by_lane) {
        if (SplitsTurns()) {
            LoadTurns(pair_temp_[0], turns, 2);
            if (tiling_->has_factors != 0) LoadFactors(pair_temp_[2], freq_factors);
        } else {
            LoadTurns(by_lane ? pair_temp_[0] : part_[0], turns, kTurnParts);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
    }

    __aicore__ inline void Build(AscendC::TPipe* pipe, PairIndex* index, bool by_lane) {
        if (by_lane) FindPairs(index);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded_event_);
        pipe->ReleaseEventID<AscendC::HardEvent::MTE2_V>(loaded_event_);
        LocalTensor<float>* pair_parts = pair_temp_;
        if (SplitsTurns()) {
            if (tiling_->has_factors != 0) DivideByFactors();
            pair_parts = by_lane ? &pair_temp_[2] : part_;
            SplitTurns(pair_parts);
        }
        if (by_lane) GatherParts(pair_parts, *index);
    }

    // w1 hi, w1 lo, w2 hi, w2 lo of each lane.
    __aicore__ inline LocalTensor<float> Part(int32_t k) const { return part_[k]; }

private:
    __aicore__ inline bool SplitsTurns() const { return tiling_->has_factors != 0 || pairs_ > kSplitMaxPairs; }

    // Copies the first vectors of RopeTurns to adjacent vectors [pairs_].
    __aicore__ inline void LoadTurns(LocalTensor<float> dst, GM_ADDR turns, int32_t count) {
        AscendC::GlobalTensor<float> source;
        source.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(turns + __builtin_offsetof(RopeTurns, vectors)));
        AscendC::DataCopy(dst, source, static_cast<uint32_t>(count * pairs_));
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
        AscendC::Sub(lo, error, temp, pairs_);  // SplitTurns() reads lo after a barrier of its own
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

    __aicore__ inline void GatherParts(const LocalTensor<float>* pair_parts, const PairIndex& index) {
        LocalTensor<uint32_t> offsets = index.Temp(0).ReinterpretCast<uint32_t>();
        for (int32_t k = 0; k < kTurnParts; ++k)
            AscendC::Gather(part_[k], pair_parts[k], offsets, 0, static_cast<uint32_t>(width_));
        VectorBarrier();
        for (int32_t k = 0; k < kTurnParts; ++k) AscendC::Mul(part_[k], part_[k], index.Temp(1), width_);
        VectorBarrier();
    }

    // Splits the turns of each pair, hi + lo, after DivideByFactors().
    __aicore__ inline void SplitTurns(LocalTensor<float>* parts) {
        LocalTensor<float> hi = pair_temp_[0], lo = pair_temp_[1];
        LocalTensor<float> rest = pair_temp_[6], nearest = pair_temp_[7], temp = pair_temp_[8];
        RoundToGrid(parts[0], hi, temp);
        AscendC::Sub(parts[1], hi, parts[0], pairs_);
        AscendC::Muls(rest, hi, kHighUnit, pairs_);
        VectorBarrier();
        AscendC::Add(parts[1], parts[1], lo, pairs_);
        Round(nearest, rest, temp, pairs_);
        AscendC::Sub(rest, rest, nearest, pairs_);
        VectorBarrier();
        RoundToGrid(parts[2], rest, temp);
        AscendC::Sub(parts[3], rest, parts[2], pairs_);
        AscendC::Muls(nearest, lo, kHighUnit, pairs_);
        VectorBarrier();
        AscendC::Add(parts[3], parts[3], nearest, pairs_);
        VectorBarrier();
    }

    __aicore__ inline void RoundToGrid(LocalTensor<float> dst, LocalTensor<float> src, LocalTensor<float> temp) {
        AscendC::Muls(dst, src, kGridPerTurn, pairs_);
        VectorBarrier();
        Round(dst, dst, temp, pairs_);
        AscendC::Muls(dst, dst, 1.0f / kGridPerTurn, pairs_);
        VectorBarrier();
    }

    const CommonTiling* tiling_ = nullptr;
    int32_t width_ = 0;
    int32_t pairs_ = 0;  // n_dims/2, rounded up to whole blocks
    AscendC::TEventID loaded_event_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    LocalTensor<float> part_[kTurnParts];
    LocalTensor<float> pair_temp_[kRopeSetupPairTemps];
};

}  // namespace rotation
