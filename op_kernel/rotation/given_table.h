// The table of a call that passes cosines and sines. Each token has its own row of the tables in GM, or position_ids
// select its row. The kernel converts the rows to float32 and stores them in the layout that the rotation reads.
//
// A row has one entry for each pair or one entry for each lane. Let c1, s1 be the entries of a pair's first lane and
// c2, s2 those of its second lane. Then (x1, x2) becomes (x1 c1 - x2 s1, x2 c2 + x1 s2). The backward rotation is the
// transpose, (x1 c1 + x2 s2, x2 c2 - x1 s1).
//
// With several planes of ids, a token has a row for each plane, and each entry is that of the row of its own plane.
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

// The tables that the call passes, in GM.
struct RotarySource {
    GM_ADDR cos;
    GM_ADDR sin;
    GM_ADDR position_ids;
    const RotaryTableTiling* tiling;
    GM_ADDR turns;  // RopeTurns, of which plane_lanes are read; only with several planes
};

// EntryT: type of the tables. key: the tiling key, kRopeHalves, kRopeSwapByShifts or kRopeSwapByGather.
template <typename EntryT, int32_t key>
class GivenTable {
public:
    using Source = RotarySource;

    // setup: unused. scratch: scratch memory of each call of Build().
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, const Source& source,
                                LocalTensor<float> setup, LocalTensor<float> scratch) {
        tiling_ = tiling;
        table_tiling_ = source.tiling;
        source_ = source;
        width_ = tiling->table_width;
        wide_rows_ = scratch;
        pipe->InitBuffer(buffer_, static_cast<uint32_t>(tiling->table_bytes));
        sin_ = buffer_.Get<float>();
        cos_ = sin_[tiling->cos_offset_bytes / static_cast<int32_t>(sizeof(float))];
        pipe->InitBuffer(row_queue_, 1, static_cast<uint32_t>(tiling->source_bytes));
        bursts_.Init(tiling, table_tiling_->row_entries, table_tiling_->row_pitch);
        row_numbers_.Init(source.position_ids, table_tiling_->id_stride, table_tiling_->id_words);
        if constexpr (key != kRopeHalves) {
            pipe->InitBuffer(lanes_, static_cast<uint32_t>(tiling->lane_bytes));
            FloatAllocator lanes(lanes_.Get<float>());
            sign_ = lanes.Take(width_);
            cos_offsets_ = lanes.Take(width_).template ReinterpretCast<uint32_t>();
            sin_offsets_ = lanes.Take(width_).template ReinterpretCast<uint32_t>();
        }
    }

    __aicore__ inline void LoadConstants() {}

    // Computes for each table lane the offsets of its cosine and its sine in a row, and the sign of the sine.
    __aicore__ inline void BuildConstants(PairIndex* index) {
        if constexpr (key != kRopeHalves) {
            index->FindPairs();
            LocalTensor<float> lane = index->Temp(0), sign = index->Temp(1), pair = index->Temp(2);
            AscendC::Muls(sign_, sign, IsBackward() ? -1.0f : 1.0f, width_);
            VectorBarrier();
            if (HasEntryPerLane() && IsBackward()) {
                // The sine of the partner: entry lane + step for a pair's first lane, lane - step for its second lane.
                AscendC::Muls(sign, sign, -static_cast<float>(index->PairStep()), width_);
                VectorBarrier();
                AscendC::Add(sign, sign, lane, width_);
                VectorBarrier();
                ToByteOffsets(sin_offsets_, sign, sizeof(float), width_);
            }
            ToByteOffsets(cos_offsets_, HasEntryPerLane() ? lane : pair, sizeof(float), width_);
            if (!(HasEntryPerLane() && IsBackward())) sin_offsets_ = cos_offsets_;
        }
    }

    // Starts to load the rows of a block, while the vector unit still rotates the previous block. tile: the first one
    // of the block.
    __aicore__ inline void Load(const Tile& tile) {
        LocalTensor<EntryT> cos = row_queue_.template AllocTensor<EntryT>();
        LocalTensor<EntryT> sin = cos[SinOffset()];
        bool loads_each_row = table_tiling_->has_ids != 0;
#if __CCE_AICORE__ == 200
        loads_each_row = loads_each_row || IsUnaligned();
        if (IsUnaligned()) SyncPipes<AscendC::HardEvent::V_S>();
#endif
        if (loads_each_row) {
            for (int32_t plane = 0; plane < Planes(); ++plane)
                for (int32_t t = 0; t < tile.block_tokens; ++t) {
                    RowPlace row = PlaceOf(tile, t, plane);
                    int32_t at = plane * PlaneStep() + t * table_tiling_->row_pitch;
                    LoadRow(cos[at], source_.cos, OffsetOf(row, table_tiling_->cos_stride));
                    LoadRow(sin[at], source_.sin, OffsetOf(row, table_tiling_->sin_stride));
                }
        } else {
            RowPlace row{tile.batch, tile.token};
            LoadRows(cos, source_.cos, OffsetOf(row, table_tiling_->cos_stride), tile.block_tokens,
                     table_tiling_->cos_stride[1]);
            LoadRows(sin, source_.sin, OffsetOf(row, table_tiling_->sin_stride), tile.block_tokens,
                     table_tiling_->sin_stride[1]);
        }
#if __CCE_AICORE__ == 200
        if (IsUnaligned()) SyncPipes<AscendC::HardEvent::S_V>();
#endif
        row_queue_.EnQue(cos);
    }

    __aicore__ inline void Build(int32_t tokens) {
        LocalTensor<EntryT> cos = row_queue_.template DeQue<EntryT>();
        LocalTensor<EntryT> sin = cos[SinOffset()];
        if constexpr (key == kRopeHalves) {
            BuildHalves(cos, sin, tokens);
        } else {
            // If a row has one entry for each lane and the window has whole blocks, the row already has the layout that
            // the rotation reads. Only the backward rotation needs the sine of the partner.
            bool has_table_layout = HasEntryPerLane() && width_ == tiling_->n_dims;
            if (has_table_layout) Widen(cos_, cos, width_, tokens);
            if (has_table_layout && !IsBackward()) Widen(sin_, sin, width_, tokens);
            VectorBarrier();
            if (!has_table_layout) GatherEntries(cos_, cos, cos_offsets_, tokens);
            if (!has_table_layout || IsBackward()) GatherEntries(sin_, sin, sin_offsets_, tokens);
        }
        row_queue_.FreeTensor(cos);
        if constexpr (key != kRopeHalves) ApplySigns(tokens);
        VectorBarrier();
    }

    __aicore__ inline LocalTensor<float> Sin(int32_t row) const { return sin_[row * width_]; }
    __aicore__ inline LocalTensor<float> Cos(int32_t row) const { return cos_[row * width_]; }

    __aicore__ inline void Finish() {}

private:
    static constexpr int32_t kBlockItems = kBlockBytes / static_cast<int32_t>(sizeof(EntryT));  // elements of 32 bytes

    __aicore__ inline bool HasEntryPerLane() const { return table_tiling_->row_entries == tiling_->n_dims; }
    __aicore__ inline bool IsBackward() const { return table_tiling_->backward != 0; }
    __aicore__ inline int32_t SinOffset() const { return Planes() * PlaneStep(); }
    __aicore__ inline int32_t Planes() const { return tiling_->planes; }
    // Distance from the rows of one plane to those of the next one, in entries.
    __aicore__ inline int32_t PlaneStep() const { return tiling_->block_tokens * table_tiling_->row_pitch; }

    // ---- from GM

    // The place of a row in a table: batch and token; with position_ids, 0 and the number of the row.
    struct RowPlace {
        int64_t batch;
        int64_t token;
    };

    // The host rejects invalid position_ids where it can read them. The kernel replaces a number outside the table by
    // that of the nearest row, so it never reads elsewhere.
    __aicore__ inline RowPlace PlaceOf(const Tile& tile, int32_t t, int32_t plane) {
        if (table_tiling_->has_ids == 0) return RowPlace{tile.batch, tile.token + t};
        int64_t row = row_numbers_.Get(tile.batch, tile.token + t, tiling_->plane_offset[plane]);
        if (row < 0) row = 0;
        if (row >= table_tiling_->table_rows) row = table_tiling_->table_rows - 1;
        return RowPlace{0, row};
    }

    __aicore__ inline int64_t OffsetOf(const RowPlace& place, const int64_t* stride) const {
        return place.batch * stride[0] + place.token * stride[1];
    }

    __aicore__ inline void LoadRows(LocalTensor<EntryT> dst, GM_ADDR memory, int64_t first, int64_t count,
                                    int64_t stride) {
        bursts_.LoadRows(dst, memory, first, count, stride, table_tiling_->row_entries);
    }

    __aicore__ inline void LoadRow(LocalTensor<EntryT> dst, GM_ADDR memory, int64_t first) {
#if __CCE_AICORE__ == 200
        if (IsUnaligned()) {
            LoadUnalignedRow(dst, TensorAt<EntryT>(memory, first));
            return;
        }
#endif
        LoadRows(dst, memory, first, 1, 0);
    }

#if __CCE_AICORE__ == 200
    __aicore__ inline bool IsUnaligned() const { return table_tiling_->row_entries % kBlockItems != 0; }

    // A DMA copies the whole blocks of a row; the scalar unit copies the remaining elements.
    __aicore__ inline void LoadUnalignedRow(LocalTensor<EntryT> dst, AscendC::GlobalTensor<EntryT> row) {
        int32_t aligned = table_tiling_->row_entries / kBlockItems * kBlockItems;
        if (aligned > 0) AscendC::DataCopy(dst, row, static_cast<uint32_t>(aligned));
        for (int32_t i = aligned; i < table_tiling_->row_pitch; ++i)
            dst.SetValue(static_cast<uint32_t>(i), i < table_tiling_->row_entries
                                                       ? row.GetValue(static_cast<uint64_t>(i))
                                                       : static_cast<EntryT>(0.0f));
    }
#endif

    // ---- in UB

    // For kRopeHalves: a row of the table has the entries of the first lanes, then those of the second lanes. The
    // caller adds the vector barrier.
    __aicore__ inline void BuildHalves(LocalTensor<EntryT> cos, LocalTensor<EntryT> sin, int32_t tokens) {
        int32_t half = tiling_->n_dims / 2;
        Widen(cos_, cos, width_, tokens);
        if (HasEntryPerLane() && !IsBackward()) {
            // MultiplyHalves() multiplies x1 by s2 and x2 by s1.
            Widen(sin_, sin, half, tokens, half);
            Widen(sin_[half], sin, half, tokens);
        } else {
            Widen(sin_, sin, width_, tokens);
        }
        if (!IsBackward()) return;
        VectorBarrier();
        AscendC::Muls(sin_, sin_, -1.0f, tokens * width_);
    }

    // Converts `entries` entries of each row to float32, from number `first` on. The caller adds the vector barrier.
    __aicore__ inline void Widen(LocalTensor<float> dst, LocalTensor<EntryT> src, int32_t entries, int32_t tokens,
                                 int32_t first = 0) {
        for (int32_t plane = 0; plane < Planes(); ++plane)
            WidenPlane(dst, width_, src[plane * PlaneStep()], LaneRange{first, first + entries}, tokens, plane);
    }

    // dst[lane - lanes.first] = src[lane] as float32, for those entries of `lanes` that belong to the plane. dst_pitch:
    // from one row of dst to the next.
    __aicore__ inline void WidenPlane(LocalTensor<float> dst, int32_t dst_pitch, LocalTensor<EntryT> src,
                                      const LaneRange& lanes, int32_t tokens, int32_t plane) {
        AscendC::UnaryRepeatParams step(1, 1, static_cast<uint8_t>(dst_pitch / kBlockFloats),
                                        static_cast<uint8_t>(table_tiling_->row_pitch / kBlockItems));
        for (int32_t lane = lanes.first; lane < lanes.end; lane += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(LaneRange{lane, lanes.end}, lane) & PlaneMask(plane, lane), 0};
            if (mask[0] == 0) continue;
            LocalTensor<float> to = dst[lane - lanes.first];
            if constexpr (sizeof(EntryT) == sizeof(float)) {
                AscendC::Muls(to, src[lane], 1.0f, mask, static_cast<uint8_t>(tokens), step);
            } else {
                AscendC::Cast(to, src[lane], AscendC::RoundMode::CAST_NONE, mask, static_cast<uint8_t>(tokens), step);
            }
        }
    }

    // The entries from number `lane` on that belong to the plane.
    __aicore__ inline uint64_t PlaneMask(int32_t plane, int32_t lane) {
        if (Planes() == 1) return ~uint64_t{0};
        int32_t chunk = lane / kRepeatFloats, shift = lane % kRepeatFloats;
        uint64_t mask = PlaneChunk(plane, chunk) >> shift;
        if (shift != 0) mask |= PlaneChunk(plane, chunk + 1) << (kRepeatFloats - shift);
        return mask;
    }

    __aicore__ inline uint64_t PlaneChunk(int32_t plane, int32_t chunk) {
        if (chunk >= kRopeMaxChunks) return 0;
        AscendC::GlobalTensor<uint64_t> masks;
        masks.SetGlobalBuffer(
            reinterpret_cast<__gm__ uint64_t*>(source_.turns + __builtin_offsetof(RopeTurns, plane_lanes)));
        return masks.GetValue(static_cast<uint64_t>(plane * kRopeMaxChunks + chunk));
    }

    // Copies the entries of each row to the lanes of the table, by Gather. offsets: the byte offset of each
    // lane's entry.
    __aicore__ inline void GatherEntries(LocalTensor<float> dst, LocalTensor<EntryT> rows,
                                         LocalTensor<uint32_t> offsets, int32_t tokens) {
        LocalTensor<float> wide = WidenAll(rows, tokens);
        for (int32_t t = 0; t < tokens; ++t)
            AscendC::Gather(dst[t * width_], wide, offsets,
                            static_cast<uint32_t>(t * table_tiling_->row_pitch) * sizeof(float),
                            static_cast<uint32_t>(width_));
        VectorBarrier();
    }

    __aicore__ inline LocalTensor<float> WidenAll(LocalTensor<EntryT> rows, int32_t tokens) {
        if (Planes() > 1) {
            int32_t pitch = table_tiling_->row_pitch;
            for (int32_t plane = 0; plane < Planes(); ++plane)
                WidenPlane(wide_rows_, pitch, rows[plane * PlaneStep()], LaneRange{0, table_tiling_->row_entries},
                           tokens, plane);
            VectorBarrier();
            return wide_rows_;
        }
        if constexpr (sizeof(EntryT) == sizeof(float)) {
            return rows;
        } else {
            AscendC::Cast(wide_rows_, rows, AscendC::RoundMode::CAST_NONE,
                          static_cast<uint32_t>(tokens * table_tiling_->row_pitch));
            VectorBarrier();
            return wide_rows_;
        }
    }

    // Negates the sines of the first lanes of the pairs, so that the sines have the signs of the rotation. The caller
    // adds the vector barrier.
    __aicore__ inline void ApplySigns(int32_t tokens) {
        auto row_blocks = static_cast<uint8_t>(width_ / kBlockFloats);
        AscendC::BinaryRepeatParams step(1, 1, 1, row_blocks, row_blocks, 0);
        for (int32_t first_lane = 0; first_lane < width_; first_lane += kRepeatFloats) {
            uint64_t mask[2] = {MaskOf(LaneRange{0, width_}, first_lane), 0};
            AscendC::Mul(sin_[first_lane], sin_[first_lane], sign_[first_lane], mask, static_cast<uint8_t>(tokens),
                         step);
        }
    }

    const CommonTiling* tiling_ = nullptr;
    const RotaryTableTiling* table_tiling_ = nullptr;
    Source source_{};
    int32_t width_ = 0;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_, lanes_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> row_queue_;
    RowBursts<EntryT> bursts_;
    RowNumbers row_numbers_;
    LocalTensor<float> sin_, cos_, wide_rows_, sign_;
    LocalTensor<uint32_t> cos_offsets_, sin_offsets_;
};

}  // namespace rotation
