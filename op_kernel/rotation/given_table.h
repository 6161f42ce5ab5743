// The table of a call that passes its cosines and sines. Each token has a row of its own in GM, or position_ids
// select its row. Rows are widened to float32 and stored in the layout that the rotation reads.
//
// A row has one entry per pair or one entry per lane. With c1, s1 the entries of a pair's first lane and c2, s2
// those of its second lane, (x1, x2) becomes (x1 c1 - x2 s1, x2 c2 + x1 s2). The backward rotation is the
// transpose, (x1 c1 + x2 s2, x2 c2 - x1 s1).
#pragma once

#include "../memory/row_bursts.h"
#include "../memory/row_numbers.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "../rotary_tiling_data.h"
#include "kernel_operator.h"
#include "pair_index.h"

namespace rotation {

using namespace memory;

struct RotarySource {
    GM_ADDR cos;
    GM_ADDR sin;
    GM_ADDR position_ids;
    const RotaryTableTiling* tiling;
};

// C: type of the tables. key: kRopeHalves, kRopeSwapByShifts or kRopeSwapByGather.
template <typename C, int32_t key>
class GivenTable {
public:
    using Source = RotarySource;

    // setup: unused; scratch: scratch memory of every Build().
    __aicore__ inline void Init(AscendC::TPipe* pipe, const RopeTilingHead* td, const Source& source,
                                LocalTensor<float> setup, LocalTensor<float> scratch) {
        td_ = td;
        tiling_ = source.tiling;
        source_ = source;
        width_ = td->table_width;
        wide_ = scratch;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(td->table_bytes));
        sin_ = buffer_.Get<float>();
        cos_ = sin_[td->cos_offset_bytes / static_cast<int32_t>(sizeof(float))];
        pipe->InitBuffer(rows_, 1, static_cast<uint32_t>(td->source_bytes));
        bursts_.Init(td, tiling_->row, tiling_->pitch);
        row_numbers_.Init(td, source.position_ids);
        if constexpr (key != kRopeHalves) {
            pipe->InitBuffer(lanes_, static_cast<uint32_t>(td->lane_bytes));
            Floats lanes(lanes_.Get<float>());
            sign_ = lanes.Take(width_);
            cos_entry_ = lanes.Take(width_).template ReinterpretCast<uint32_t>();
            sin_entry_ = lanes.Take(width_).template ReinterpretCast<uint32_t>();
        }
    }

    __aicore__ inline void LoadConstants() {}

    // For each table lane: the offsets of its cosine and its sine in a row, and the sine's sign.
    __aicore__ inline void BuildConstants(PairIndex* index) {
        if constexpr (key != kRopeHalves) {
            index->FindPairs();
            LocalTensor<float> lane = index->Temp(0), sign = index->Temp(1), pair = index->Temp(2);
            AscendC::Muls(sign_, sign, Backward() ? -1.0f : 1.0f, width_);
            OrderV();
            if (EntryPerLane() && Backward()) {
                // The partner's entry: lane + step for a pair's first lane, lane - step for its second.
                AscendC::Muls(sign, sign, -static_cast<float>(index->PairStep()), width_);
                OrderV();
                AscendC::Add(sign, sign, lane, width_);
                OrderV();
                ToOffsets(sin_entry_, sign, sizeof(float), width_);
            }
            ToOffsets(cos_entry_, EntryPerLane() ? lane : pair, sizeof(float), width_);
            if (!(EntryPerLane() && Backward())) sin_entry_ = cos_entry_;
        }
    }

    // Loads the rows of the block that starts with this tile, while the vector unit still rotates the block before.
    __aicore__ inline void Load(const Tile& tile) {
        LocalTensor<C> cos = rows_.template AllocTensor<C>();
        LocalTensor<C> sin = cos[SinOffset()];
        bool one_by_one = tiling_->has_ids != 0;
#if __CCE_AICORE__ == 200
        one_by_one = one_by_one || IsUnaligned();
        if (IsUnaligned()) HandOver<AscendC::HardEvent::V_S>();
#endif
        if (one_by_one) {
            for (int32_t t = 0; t < tile.block_tokens; ++t) {
                Place row = PlaceOf(tile, t);
                LoadRow(cos[t * tiling_->pitch], source_.cos, OffsetOf(row, tiling_->cos_stride));
                LoadRow(sin[t * tiling_->pitch], source_.sin, OffsetOf(row, tiling_->sin_stride));
            }
        } else {
            Place row{tile.batch, tile.token};
            LoadRows(cos, source_.cos, OffsetOf(row, tiling_->cos_stride), tile.block_tokens, tiling_->cos_stride[1]);
            LoadRows(sin, source_.sin, OffsetOf(row, tiling_->sin_stride), tile.block_tokens, tiling_->sin_stride[1]);
        }
#if __CCE_AICORE__ == 200
        if (IsUnaligned()) HandOver<AscendC::HardEvent::S_V>();
#endif
        rows_.EnQue(cos);
    }

    __aicore__ inline void Build(int32_t tokens) {
        LocalTensor<C> cos = rows_.template DeQue<C>();
        LocalTensor<C> sin = cos[SinOffset()];
        if constexpr (key == kRopeHalves) {
            BuildHalves(cos, sin, tokens);
        } else {
            // With one entry per lane and a window of whole blocks, a row already has the layout that the rotation
            // reads. Only the backward rotation needs the partner's sine.
            bool in_order = EntryPerLane() && width_ == td_->n_dims;
            if (in_order) Widen(cos_, cos, width_, tokens);
            if (in_order && !Backward()) Widen(sin_, sin, width_, tokens);
            OrderV();
            if (!in_order) Spread(cos_, cos, cos_entry_, tokens);
            if (!in_order || Backward()) Spread(sin_, sin, sin_entry_, tokens);
        }
        rows_.FreeTensor(cos);
        if constexpr (key != kRopeHalves) ApplySigns(tokens);
        OrderV();
    }

    __aicore__ inline LocalTensor<float> Sin(int32_t row) const { return sin_[row * width_]; }
    __aicore__ inline LocalTensor<float> Cos(int32_t row) const { return cos_[row * width_]; }

    __aicore__ inline void Finish() {}

private:
    static constexpr int32_t kBlock = kBlockBytes / static_cast<int32_t>(sizeof(C));  // elements of 32 bytes

    __aicore__ inline bool EntryPerLane() const { return tiling_->row == td_->n_dims; }
    __aicore__ inline bool Backward() const { return tiling_->backward != 0; }
    __aicore__ inline int32_t SinOffset() const { return td_->block_tokens * tiling_->pitch; }

    // ---- from GM

    // Place of a row in a table: batch and token, or 0 and the row's number with position_ids.
    struct Place {
        int64_t batch;
        int64_t token;
    };

    // The host rejects invalid position_ids where it can read them. The kernel clamps a number outside the table to
    // the nearest row, so it never reads elsewhere.
    __aicore__ inline Place PlaceOf(const Tile& tile, int32_t t) {
        if (tiling_->has_ids == 0) return Place{tile.batch, tile.token + t};
        int64_t row = row_numbers_.Get(tile.batch, tile.token + t);
        if (row < 0) row = 0;
        if (row >= tiling_->table_rows) row = tiling_->table_rows - 1;
        return Place{0, row};
    }

    __aicore__ inline int64_t OffsetOf(const Place& place, const int64_t* stride) const {
        return place.batch * stride[0] + place.token * stride[1];
    }

    __aicore__ inline void LoadRows(LocalTensor<C> dst, GM_ADDR memory, int64_t first, int64_t count, int64_t stride) {
        bursts_.LoadRows(dst, memory, first, count, stride, tiling_->row);
    }

    __aicore__ inline void LoadRow(LocalTensor<C> dst, GM_ADDR memory, int64_t first) {
#if __CCE_AICORE__ == 200
        if (IsUnaligned()) {
            LoadUnalignedRow(dst, TensorAt<C>(memory, first));
            return;
        }
#endif
        LoadRows(dst, memory, first, 1, 0);
    }

#if __CCE_AICORE__ == 200
    __aicore__ inline bool IsUnaligned() const { return tiling_->row % kBlock != 0; }

    // A DMA copies the whole blocks of a row; the scalar unit copies the remaining elements.
    __aicore__ inline void LoadUnalignedRow(LocalTensor<C> dst, AscendC::GlobalTensor<C> row) {
        int32_t aligned = tiling_->row / kBlock * kBlock;
        if (aligned > 0) AscendC::DataCopy(dst, row, static_cast<uint32_t>(aligned));
        for (int32_t i = aligned; i < tiling_->pitch; ++i)
            dst.SetValue(static_cast<uint32_t>(i),
                         i < tiling_->row ? row.GetValue(static_cast<uint64_t>(i)) : static_cast<C>(0.0f));
    }
#endif

    // ---- in UB

    // The caller orders the vector instructions.
    __aicore__ inline void BuildHalves(LocalTensor<C> cos, LocalTensor<C> sin, int32_t tokens) {
        int32_t half = td_->n_dims / 2;
        Widen(cos_, cos, width_, tokens);
        if (EntryPerLane() && !Backward()) {
            // x1 is multiplied by s2, x2 by s1.
            Widen(sin_, sin[half], half, tokens);
            Widen(sin_[half], sin, half, tokens);
        } else {
            Widen(sin_, sin, width_, tokens);
        }
        if (!Backward()) return;
        OrderV();
        AscendC::Muls(sin_, sin_, -1.0f, tokens * width_);
    }

    // The first `entries` entries of every row as float32. The caller orders the vector instructions.
    __aicore__ inline void Widen(LocalTensor<float> dst, LocalTensor<C> src, int32_t entries, int32_t tokens) {
        AscendC::UnaryRepeatParams step(1, 1, static_cast<uint8_t>(width_ / kBlockFloats),
                                        static_cast<uint8_t>(tiling_->pitch / kBlock));
        for (int32_t chunk = 0; chunk < entries; chunk += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(Lanes{0, entries}, chunk), 0};
            if constexpr (sizeof(C) == sizeof(float)) {
                AscendC::Muls(dst[chunk], src[chunk], 1.0f, mask, static_cast<uint8_t>(tokens), step);
            } else {
                AscendC::Cast(dst[chunk], src[chunk], AscendC::RoundMode::CAST_NONE, mask, static_cast<uint8_t>(tokens),
                              step);
            }
        }
    }

    // Gathers the rows' entries in the order of the table's lanes.
    __aicore__ inline void Spread(LocalTensor<float> dst, LocalTensor<C> rows, LocalTensor<uint32_t> entries,
                                  int32_t tokens) {
        LocalTensor<float> wide = Wide(rows, tokens);
        for (int32_t t = 0; t < tokens; ++t)
            AscendC::Gather(dst[t * width_], wide, entries, static_cast<uint32_t>(t * tiling_->pitch) * sizeof(float),
                            static_cast<uint32_t>(width_));
        OrderV();
    }

    __aicore__ inline LocalTensor<float> Wide(LocalTensor<C> rows, int32_t tokens) {
        if constexpr (sizeof(C) == sizeof(float)) {
            return rows;
        } else {
            AscendC::Cast(wide_, rows, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(tokens * tiling_->pitch));
            OrderV();
            return wide_;
        }
    }

    // Negates the sines of each pair's first lane, so that the sine table contains the rotation's signs. The caller
    // orders the vector instructions.
    __aicore__ inline void ApplySigns(int32_t tokens) {
        auto row = static_cast<uint8_t>(width_ / kBlockFloats);
        AscendC::BinaryRepeatParams step(1, 1, 1, row, row, 0);
        for (int32_t chunk = 0; chunk < width_; chunk += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(Lanes{0, width_}, chunk), 0};
            AscendC::Mul(sin_[chunk], sin_[chunk], sign_[chunk], mask, static_cast<uint8_t>(tokens), step);
        }
    }

    const RopeTilingHead* td_ = nullptr;
    const RotaryTableTiling* tiling_ = nullptr;
    Source source_{};
    int32_t width_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_, lanes_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> rows_;
    RowBursts<C> bursts_;
    RowNumbers row_numbers_;
    LocalTensor<float> sin_, cos_, wide_, sign_;
    LocalTensor<uint32_t> cos_entry_, sin_entry_;
};

}  // namespace rotation
