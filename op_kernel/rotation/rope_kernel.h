// Rotary position embedding: the kernel of rope, rope_qk, rope_set_rows, rotary_mul and rotary_mul_qk, and of
// rms_norm_rope, which normalizes the heads first. It rotates rows [B,S,N,D] of one or two tensors. It computes the
// sines and cosines from positions, or the call passes tables of them. It writes tensors of the same sizes or rows of a
// cache.
//
// A core processes units. A unit has consecutive tokens and, of each token, the same consecutive heads. The core splits
// the tokens of a unit into blocks. Each block has one table of sines and cosines in UB, which all heads share. A block
// is split into tiles, each of at most one UB buffer. While one tile is rotated, the next one is loaded and the
// previous one is stored. 16-bit rows are rotated in float32 and rounded once.
#pragma once

#include "../memory/cache_rows.h"
#include "../memory/packed_rows.h"
#include "../memory/row_bursts.h"
#include "../memory/row_steps.h"
#include "../memory/scalar_rows.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../norm/head_norm.h"
#include "../rope_tiling_data.h"
#include "computed_table.h"
#include "given_table.h"
#include "kernel_operator.h"
#include "tile_loop.h"
#include "tile_rotation.h"

namespace rotation {

using namespace memory;
using namespace norm;

struct RopeArguments {
    GM_ADDR x[2];     // one for each side
    GM_ADDR out[2];   // one for each side; the cache if the launch scatters
    GM_ADDR indices;  // if the launch scatters: the number of each token's row in the cache
};

// T: type of x. OutT: type of out, which is T or, if T is float, a 16-bit type. Table: ComputedTable or GivenTable.
// key: the tiling key, kRopeHalves, kRopeSwapByShifts or kRopeSwapByGather. scatters: out is a cache. Norm: NoNorm or
// HeadNorm; with HeadNorm, the tiling decides whether side 1 is stored in a cache.
template <typename T, typename OutT, typename Table, int32_t key, bool scatters, typename Norm = NoNorm>
class RopeKernel {
public:
    __aicore__ inline void Run(AscendC::TPipe* pipe, const CommonTiling* tiling, const RopeArguments& arguments,
                               const typename Table::Source& source, const typename Norm::Source& norm) {
        TileWindow window;
        if (!window.Begin(tiling, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        Init(pipe, tiling, arguments, source);
        norm_.Init(pipe, tiling, norm);
        table_.LoadConstants();
        table_.Load(window.current);
        LoadTile(window.current);
        BuildConstants();
        table_.Build(window.current.block_tokens);
        norm_.Prepare();
        ProcessTiles(this, &table_, &window);
        Finish();
    }

    // ---- for ProcessTiles()

    __aicore__ inline LocalTensor<T> NextInput() { return in_.template DeQue<T>(); }

    __aicore__ inline void LoadTile(const Tile& tile) {
        LocalTensor<T> x = in_.template AllocTensor<T>();
        GM_ADDR memory = arguments_.x[tile.side];
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyPacked) packed_.Load(x, memory, tile);
        if (tiling_->copy_mode == kCopyScalar) scalars_.Load(x, memory, tile);
        if (tiling_->copy_mode == kCopyBursts)
#endif
            bursts_.Load(x, memory, tile);
        in_.EnQue(x);
    }

    __aicore__ inline void StoreTile(const Tile& tile) {
        LocalTensor<OutT> y = out_.template DeQue<OutT>();
        GM_ADDR memory = arguments_.out[tile.side];
#if __CCE_AICORE__ == 200
        if constexpr (!scatters)
            if (tiling_->copy_mode == kCopyPacked)
                packed_.Store(memory, y, tile);  // a launch that scatters is never packed
        if (tiling_->copy_mode == kCopyScalar) Store(&out_scalars_, memory, y, tile);
        if (tiling_->copy_mode == kCopyBursts)
#endif
            Store(&out_bursts_, memory, y, tile);
        out_.FreeTensor(y);
    }

    __aicore__ inline void ProcessTile(LocalTensor<T> x, const Tile& tile) {
        rotation_.Begin(tile, table_.Sin(tile.table_row), table_.Cos(tile.table_row));
        element_count_ = tile.tokens * tile.heads * tiling_->row_pitch;
#if __CCE_AICORE__ == 200
        if constexpr (!scatters)
            if (tiling_->copy_mode == kCopyPacked) {
                RotateRuns(x, tile);
                return;
            }
#endif
        if constexpr (kNarrows) {
            RotateFloat32To16Bit(x);
        } else if constexpr (kIsFloat) {
            RotateFloat32(x, tile);
        } else {
            Rotate16Bit(x, tile);
        }
    }

private:
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);
    static constexpr bool kNarrows = sizeof(OutT) < sizeof(T);
    static constexpr bool kMayScatter = scatters || Norm::kNormalizes;

    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, const RopeArguments& arguments,
                                const typename Table::Source& source) {
        tiling_ = tiling;
        arguments_ = arguments;
        pipe->InitBuffer(in_, 2, static_cast<uint32_t>(tiling->queue_bytes));
        pipe->InitBuffer(out_, 2, static_cast<uint32_t>(tiling->queue_bytes));
        pipe->InitBuffer(work_, static_cast<uint32_t>(tiling->work_bytes));
        if (tiling->gather_bytes > 0) pipe->InitBuffer(offsets_, static_cast<uint32_t>(tiling->gather_bytes));
        rows_ = work_.template Get<float>();
        temp_ = rows_[static_cast<uint32_t>(tiling->temp_offset_bytes) / sizeof(float)];
        rotation_.Init(tiling, rows_);
        table_.Init(pipe, tiling, source, rotation_.Index().Rest(), rows_);
        bursts_.Init(tiling, tiling->head_size, tiling->row_pitch);
        out_bursts_.Init(tiling, tiling->head_size, tiling->out_pitch);
        if constexpr (kMayScatter) cache_.Init(tiling, arguments.indices);
#if __CCE_AICORE__ == 200
        if (tiling->copy_mode == kCopyPacked) packed_.Init(tiling, RunOffsets());
        scalars_.Init(tiling, tiling->head_size, tiling->row_pitch);
        out_scalars_.Init(tiling, tiling->head_size, tiling->out_pitch);
#endif
    }

    // Call once per core. Computes the Gather offsets first, because they need nothing from GM.
    __aicore__ inline void BuildConstants() {
        rotation_.BuildConstants(&offsets_, tiling_->copy_mode == kCopyPacked);
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyPacked) packed_.BuildOffsets(rotation_.Index());
#endif
        table_.BuildConstants(&rotation_.Index());
    }

    template <typename Mover>
    __aicore__ inline void Store(Mover* mover, GM_ADDR memory, LocalTensor<OutT> y, const Tile& tile) {
        if constexpr (kMayScatter)
            if (scatters || norm_.Scatters(tile)) {
                // All rows are one block.
                cache_.Store(mover, memory, y, tile,
                             CacheLayout{tiling_->cache_rows, tiling_->cache_rows, tiling_->out_pitch});
                return;
            }
        mover->Store(memory, y, tile);
    }

    __aicore__ inline void Finish() {
        table_.Finish();
#if __CCE_AICORE__ == 200
        if (tiling_->copy_mode == kCopyScalar) out_scalars_.Finish(arguments_.out[0]);
#endif
    }

    // float32: rotates from the input buffer to the output buffer, without the work buffer.
    __aicore__ inline void RotateFloat32(LocalTensor<T> x, const Tile& tile) {
        if constexpr (Norm::kNormalizes) norm_.Apply(x, temp_, tile);
        LocalTensor<OutT> y = out_.template AllocTensor<OutT>();
        if (!RotatesAllLanes()) {
            AscendC::DataCopy(y, x, static_cast<uint32_t>(element_count_));
            VectorBarrier();
        }
        rotation_.Multiply(y, x, temp_, false);
        in_.FreeTensor(x);
        rotation_.Add(y, temp_);
        out_.EnQue(y);
    }

    // float32 in, 16 bits out: also rounds the lanes that are not rotated.
    __aicore__ inline void RotateFloat32To16Bit(LocalTensor<T> x) {
        LocalTensor<OutT> y = out_.template AllocTensor<OutT>();
        if (!RotatesAllLanes()) {
            AscendC::DataCopy(rows_, x, static_cast<uint32_t>(element_count_));
            VectorBarrier();
        }
        rotation_.Multiply(rows_, x, temp_, false);
        in_.FreeTensor(x);
        rotation_.Add(rows_, temp_);
        if (tiling_->out_pitch == tiling_->row_pitch &&
            (!RotatesAllLanes() || tiling_->row_pitch == tiling_->head_size)) {
            AscendC::Cast(y, rows_, NarrowMode<OutT>(), static_cast<uint32_t>(element_count_));
        } else {
            rotation_.NarrowLanes(y, rows_, 0, LaneRange{0, tiling_->head_size});
        }
        VectorBarrier();
        out_.EnQue(y);
    }

    // 16 bits: rotates float32 rows in the work buffer.
    __aicore__ inline void Rotate16Bit(LocalTensor<T> x, const Tile& tile) {
        if constexpr (Norm::kNormalizes) {
            ToFloats(rows_, x, element_count_);
            if constexpr (key == kRopeSwapByShifts) {
                norm_.ApplyWithPartners(rows_, temp_, x, tile);
                in_.FreeTensor(x);
            } else {
                in_.FreeTensor(x);
                norm_.Apply(rows_, temp_, tile);
            }
            rotation_.RotateInPlace(rows_, temp_);
            LocalTensor<OutT> y = out_.template AllocTensor<OutT>();
            Narrow(y);
            out_.EnQue(y);
        } else {
            Rotate16BitWithoutNorm(x);
        }
    }

    __aicore__ inline void Rotate16BitWithoutNorm(LocalTensor<T> x) {
        LocalTensor<OutT> y = out_.template AllocTensor<OutT>();
        if (!NarrowsAllLanes()) AscendC::DataCopy(y, x, static_cast<uint32_t>(element_count_));
        // Exchange the partners as 16-bit elements, then convert them. The memory of the float32 rows is scratch memory
        // until ToFloats() below writes them.
        if constexpr (key == kRopeSwapByShifts) {
            LocalTensor<T> swapped = rows_.ReinterpretCast<T>();
            SwapNeighbours(swapped, x, swapped, temp_.ReinterpretCast<T>(), element_count_);
            ToFloats(temp_, swapped, element_count_);
        }
        ToFloats(rows_, x, element_count_);
        in_.FreeTensor(x);
        rotation_.RotateInPlace(rows_, temp_);
        Narrow(y);
        out_.EnQue(y);
    }

    // Rounds the rotated lanes to OutT. y already contains the bits of the other lanes. Their conversion through
    // float32 would change the payload of a NaN and, in saturating mode, an infinity.
    __aicore__ inline void Narrow(LocalTensor<OutT> y) {
        if (NarrowsAllLanes()) {
            AscendC::Cast(y, rows_, NarrowMode<OutT>(), static_cast<uint32_t>(element_count_));
        } else {
            rotation_.NarrowRotated(y, rows_);
        }
        VectorBarrier();
    }

#if __CCE_AICORE__ == 200
    // Memory for the offsets of packed_. It follows the offsets of the partners, if the kernel has them.
    __aicore__ inline LocalTensor<uint32_t> RunOffsets() {
        int32_t before = key == kRopeSwapByGather ? tiling_->gather_rows * tiling_->row_pitch : 0;
        return offsets_.template Get<uint32_t>()[static_cast<uint32_t>(before)];
    }

    __aicore__ inline void RotateRuns(LocalTensor<T> x, const Tile& tile) {
        LocalTensor<T> y = out_.template AllocTensor<T>();
        if constexpr (kIsFloat) {
            packed_.Unpack(rows_, x, tile);
            in_.FreeTensor(x);
            NormalizeUnpackedRows(tile);
            rotation_.RotateInPlace(rows_, temp_);
            packed_.Pack(y, rows_, tile);
        } else {
            LocalTensor<T> narrow = temp_.template ReinterpretCast<T>();
            packed_.Unpack(narrow, x, tile);
            AscendC::Cast(rows_, narrow, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(element_count_));
            VectorBarrier();
            NormalizeUnpackedRows(tile);
            rotation_.RotateInPlace(rows_, temp_);
            if (!NarrowsAllLanes()) packed_.Unpack(narrow, x, tile);  // again, for the lanes that are not rotated
            in_.FreeTensor(x);
            Narrow(narrow);
            packed_.Pack(y, narrow, tile);
        }
        out_.EnQue(y);
    }

    // Clears the padding first, because Gather has filled it with the row's last element.
    __aicore__ inline void NormalizeUnpackedRows(const Tile& tile) {
        if constexpr (Norm::kNormalizes) {
            ClearLanes(rows_, tiling_->row_pitch, tile.tokens * tile.heads,
                       LaneRange{tiling_->head_size, tiling_->row_pitch});
            norm_.Apply(rows_, temp_, tile);
        }
    }
#endif

    __aicore__ inline bool RotatesAllLanes() const { return tiling_->n_dims == tiling_->head_size; }
    // Whether every lane of the result is rounded from float32, because all lanes are rotated or normalized.
    __aicore__ inline bool NarrowsAllLanes() const { return Norm::kNormalizes || RotatesAllLanes(); }

    const CommonTiling* tiling_ = nullptr;
    RopeArguments arguments_{};
    Table table_;
    Norm norm_;
    TileRotation<key> rotation_;
    RowBursts<T> bursts_;
    RowBursts<OutT> out_bursts_;
    CacheRows cache_;
#if __CCE_AICORE__ == 200
    PackedRows<T> packed_;
    ScalarRows<T> scalars_;
    ScalarRows<OutT> out_scalars_;
#endif
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, offsets_;
    LocalTensor<float> rows_, temp_;
    int32_t element_count_ = 0;  // elements of the tile, with the padding of its rows
};

// Runs the kernel for the launch's tiling key. The keys are literals, because CANN's build reads them from the
// preprocessed source. SourceT: type of the positions or of the given tables.
template <typename T, typename OutT, template <typename, int32_t> class Table, typename SourceT, bool scatters,
          typename Norm>
__aicore__ inline void RunByKey(const CommonTiling* tiling, const RopeArguments& arguments,
                                const typename Table<SourceT, kRopeHalves>::Source& source,
                                const typename Norm::Source& norm) {
    AscendC::TPipe pipe;
    if (TILING_KEY_IS(1)) {
        RopeKernel<T, OutT, Table<SourceT, kRopeHalves>, kRopeHalves, scatters, Norm> kernel;
        kernel.Run(&pipe, tiling, arguments, source, norm);
    } else if (TILING_KEY_IS(2)) {
        RopeKernel<T, OutT, Table<SourceT, kRopeSwapByShifts>, kRopeSwapByShifts, scatters, Norm> kernel;
        kernel.Run(&pipe, tiling, arguments, source, norm);
    } else if (TILING_KEY_IS(3)) {
        RopeKernel<T, OutT, Table<SourceT, kRopeSwapByGather>, kRopeSwapByGather, scatters, Norm> kernel;
        kernel.Run(&pipe, tiling, arguments, source, norm);
    }
}

static_assert(kRopeHalves == 1 && kRopeSwapByShifts == 2 && kRopeSwapByGather == 3, "RunByKey has them as literals");

template <typename T, typename OutT, typename PositionT, bool scatters>
__aicore__ inline void RunRope(const CommonTiling* tiling, const RopeArguments& arguments, const RopeSource& source) {
    RunByKey<T, OutT, ComputedTable, PositionT, scatters, NoNorm>(tiling, arguments, source, NoNorm::Source{});
}

template <typename T, typename PositionT>
__aicore__ inline void RunRmsNormRope(const CommonTiling* tiling, const RopeArguments& arguments,
                                      const RopeSource& source, const HeadNormSource& norm) {
    RunByKey<T, T, ComputedTable, PositionT, false, HeadNorm<T>>(tiling, arguments, source, norm);
}

template <typename T, typename SourceT>
__aicore__ inline void RunRotary(const CommonTiling* tiling, const RopeArguments& arguments,
                                 const RotarySource& source) {
    RunByKey<T, T, GivenTable, SourceT, false, NoNorm>(tiling, arguments, source, NoNorm::Source{});
}

}  // namespace rotation
