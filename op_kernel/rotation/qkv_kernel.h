// qkv_norm_rope_cache: the step of attention between the projection and the cache. Queries and keys are normalized and
// rotated, values are only moved, and keys and values may be stored into rows of caches, in another type.
//
// The tiles are those of rope_kernel.h, with three sides. q and k are processed as float32 rows: those of float32 heads
// in the input buffer, others in the work buffer. Each result is rounded once, to the type of its output.
#pragma once

#include "../memory/cache_rows.h"
#include "../memory/row_bursts.h"
#include "../memory/row_steps.h"
#include "../memory/tile_rows.h"
#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../norm/row_factors.h"
#include "../norm/row_norm.h"
#include "../qkv_norm_rope_cache_tiling_data.h"
#include "computed_table.h"
#include "given_table.h"
#include "kernel_operator.h"
#include "tile_loop.h"
#include "tile_rotation.h"

namespace rotation {

using namespace memory;
using namespace norm;

struct QkvArguments {
    GM_ADDR x[kRopeMaxSides];
    GM_ADDR out[kRopeMaxSides];  // outputs or caches
    GM_ADDR slots;
    GM_ADDR square_sums;
    GM_ADDR scale[2];                     // of q and k
    GM_ADDR bias[2];                      // of q and k
    GM_ADDR factor[kRopeMaxSides];        // of k and v
    GM_ADDR quant_offset[kRopeMaxSides];  // of k and v
};

// T: type of q, k and v. ParameterT: type of scales and biases. Table: ComputedTable or GivenTable. key: kRopeHalves,
// kRopeSwapByShifts or kRopeSwapByGather.
template <typename T, typename ParameterT, typename Table, int32_t key>
class QkvKernel {
public:
    // memory: the tiling data in GM. The copies that the table needs start before the kernel reads the rest of the
    // tiling data, because everything else waits for the table.
    __aicore__ inline void Run(AscendC::TPipe* pipe, const CommonTiling* tiling, GM_ADDR memory,
                               const QkvArguments& arguments, const typename Table::Source& source) {
        TileWindow window;
        if (!window.Begin(tiling, AscendC::GetBlockIdx(), AscendC::GetBlockNum())) return;
        InitTable(pipe, tiling, source);
        table_.LoadConstants();
        if (window.current.opens_block != 0) table_.Load(window.current);
        GET_TILING_DATA_MEMBER(QkvNormRopeCacheTilingData, qkv, qkv_tiling_data, memory);
        Init(pipe, &qkv_tiling_data, arguments);
        StartFactors();
        LoadTile(window.current);
        rotation_.BuildConstants(&offsets_, false);
        table_.BuildConstants(&rotation_.Index());
        if (window.current.opens_block != 0) table_.Build(window.current.block_tokens);
        PrepareFactors();
        ProcessTiles(this, &table_, &window);
        table_.Finish();
        inputs_.Finish(arguments.out[0]);  // for all outputs
    }

    // ---- for ProcessTiles()

    __aicore__ inline LocalTensor<T> NextInput() { return in_.template DeQue<T>(); }

    __aicore__ inline void LoadTile(const Tile& tile) {
        LocalTensor<T> x = in_.template AllocTensor<T>();
        (tile.side == kValues ? value_inputs_ : inputs_).Load(x, arguments_.x[tile.side], tile);
        in_.EnQue(x);
    }

    __aicore__ inline void ProcessTile(LocalTensor<T> x, const Tile& tile) {
        const QkvSideTiling& side = qkv_->side[tile.side];
        head_ = HeadOf(tile.side);
        element_count_ = tile.tokens * tile.heads * head_.pitch;
        factors_.Select(side, head_);
        if (tile.side == kValues) {
            MoveValues(x, side, tile);
            return;
        }
        rotation_.Begin(tile, table_.Sin(tile.table_row), table_.Cos(tile.table_row));
        // If a side is not normalized and not all lanes are rotated, the other lanes keep their bits.
        const bool keeps_lanes =
            side.norm_kind == kNormNone && side.out_type == kOwnType && tiling_->n_dims != tiling_->head_size;
        if constexpr (kIsFloat) {
            Normalize(x, side, tile);
            rotation_.RotateInPlace(x, temp_);
            LocalTensor<T> y = out_.template AllocTensor<T>();
            Convert(y, x, side, tile);
            in_.FreeTensor(x);
            out_.EnQue(y);
        } else {
            LocalTensor<T> y;
            if (keeps_lanes) {
                y = out_.template AllocTensor<T>();
                AscendC::DataCopy(y, x, static_cast<uint32_t>(element_count_));
            }
            if constexpr (key == kRopeSwapByShifts) {
                // Exchange the partners as 16-bit elements. The host selects this key only if nothing is normalized.
                LocalTensor<T> swapped = rows_.template ReinterpretCast<T>();
                SwapNeighbours(swapped, x, swapped, temp_.template ReinterpretCast<T>(), element_count_);
                ToFloats(temp_, swapped, element_count_);
            }
            ToFloats(rows_, x, element_count_);
            in_.FreeTensor(x);
            Normalize(rows_, side, tile);
            rotation_.RotateInPlace(rows_, temp_);
            if (keeps_lanes) {
                rotation_.NarrowRotated(y, rows_);
                VectorBarrier();
            } else {
                y = out_.template AllocTensor<T>();
                Convert(y, rows_, side, tile);
            }
            out_.EnQue(y);
        }
    }

    __aicore__ inline void StoreTile(const Tile& tile) {
        LocalTensor<T> y = out_.template DeQue<T>();
        int32_t type = qkv_->side[tile.side].out_type;
        if (type == kOutFloat32) {
            StoreAs(y.template ReinterpretCast<float>(), tile);
        } else if (type == kOutFloat16) {
            StoreAs(y.template ReinterpretCast<half>(), tile);
#if __CCE_AICORE__ != 200
        } else if (type == kOutBfloat16) {
            StoreAs(y.template ReinterpretCast<bfloat16_t>(), tile);
#endif
        } else {
            StoreAs(y.template ReinterpretCast<int8_t>(), tile);
        }
        out_.FreeTensor(y);
    }

private:
    static constexpr int32_t kValues = 2;  // the side of v
    static constexpr bool kIsFloat = sizeof(T) == sizeof(float);
    static constexpr int32_t kLowestInt8 = -128, kHighestInt8 = 127;
    // All modes give the same result for integers. Every SoC has this mode.
    static constexpr AscendC::RoundMode kExactToInt8 = AscendC::RoundMode::CAST_TRUNC;
    static constexpr int32_t kOwnType = kIsFloat ? kOutFloat32 : SameType<T, half>::value ? kOutFloat16 : kOutBfloat16;

    __aicore__ inline void InitTable(AscendC::TPipe* pipe, const CommonTiling* tiling,
                                     const typename Table::Source& source) {
        tiling_ = tiling;
        pipe->InitBuffer(work_, static_cast<uint32_t>(tiling->work_bytes));
        rows_ = work_.template Get<float>();
        temp_ = rows_[static_cast<uint32_t>(tiling->temp_offset_bytes) / sizeof(float)];
        rotation_.Init(tiling, rows_);
        table_.Init(pipe, tiling, source, rotation_.Index().Rest(), rows_);
    }

    __aicore__ inline void Init(AscendC::TPipe* pipe, const QkvTiling* qkv, const QkvArguments& arguments) {
        const CommonTiling* tiling = tiling_;
        qkv_ = qkv;
        arguments_ = arguments;
        pipe->InitBuffer(in_, static_cast<uint8_t>(qkv->buffers), static_cast<uint32_t>(tiling->queue_bytes));
        pipe->InitBuffer(out_, static_cast<uint8_t>(qkv->buffers), static_cast<uint32_t>(qkv->out_queue_bytes));
        if (tiling->gather_bytes > 0) pipe->InitBuffer(offsets_, static_cast<uint32_t>(tiling->gather_bytes));
        inputs_.Init(tiling, tiling->row_pitch);
        value_inputs_.Init(tiling, qkv->value_head.size, qkv->value_head.pitch);
        cache_.Init(tiling, arguments.slots);
        if (qkv->stats_bytes > 0) {
            pipe->InitBuffer(stats_, static_cast<uint32_t>(qkv->stats_bytes));
            int32_t slots = qkv->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float)));
            norm_.Init(&qkv->side[0].norm, stats_.template Get<float>(), slots);
        }
        bool has_padding = false;
        for (int32_t side = 0; side < kRopeMaxSides; ++side) has_padding |= HeadOf(side).pitch != HeadOf(side).size;
        factors_.Init(pipe, tiling, qkv->factor_bytes, has_padding,
                      rows_[static_cast<uint32_t>(qkv->staging_offset) / sizeof(float)]);
    }

    __aicore__ inline HeadRow HeadOf(int32_t side) const {
        return side == kValues ? qkv_->value_head : HeadRow{tiling_->head_size, tiling_->row_pitch};
    }

    // Starts to load the factors that stay in UB, before the first tile, so that they arrive while the table is
    // computed.
    __aicore__ inline void StartFactors() {
        for (int32_t side = 0; side < kRopeMaxSides; ++side) {
            const QkvSideTiling& t = qkv_->side[side];
            factors_.Select(t, HeadOf(side));
            if (side < 2) {
                factors_.template StartLoad<ParameterT>(t.scale, arguments_.scale[side]);
                factors_.template StartLoad<ParameterT>(t.bias, arguments_.bias[side]);
            }
            factors_.template StartLoad<float>(t.factor, arguments_.factor[side]);
            factors_.template StartLoad<float>(t.quant_offset, arguments_.quant_offset[side]);
        }
        factors_.MarkLoads();
    }

    __aicore__ inline void PrepareFactors() {
        factors_.WaitForLoads();
        for (int32_t side = 0; side < kRopeMaxSides; ++side) {
            const QkvSideTiling& t = qkv_->side[side];
            factors_.Select(t, HeadOf(side));
            if (side < 2) {
                factors_.template Prepare<ParameterT>(t.scale, arguments_.scale[side]);
                factors_.template Prepare<ParameterT>(t.bias, arguments_.bias[side]);
                factors_.AddNumber(t.scale, qkv_->scale_offset);
            }
            factors_.template Prepare<float>(t.factor, arguments_.factor[side]);
            factors_.template Prepare<float>(t.quant_offset, arguments_.quant_offset[side]);
        }
    }

    // ---- from a tile of x to a tile of the output

    __aicore__ inline void MoveValues(LocalTensor<T> x, const QkvSideTiling& side, const Tile& tile) {
        LocalTensor<T> y = out_.template AllocTensor<T>();
        if (side.out_type == kOwnType) {
            AscendC::DataCopy(y, x, static_cast<uint32_t>(element_count_));
        } else if constexpr (kIsFloat) {
            Convert(y, x, side, tile);
        } else {
            ToFloats(rows_, x, element_count_);
            Convert(y, rows_, side, tile);
        }
        in_.FreeTensor(x);
        out_.EnQue(y);
    }

    // Normalizes the heads of q or k, multiplies them by the scale and adds the bias.
    __aicore__ inline void Normalize(LocalTensor<float> rows, const QkvSideTiling& side, const Tile& tile) {
        if (side.norm_kind == kNormNone) return;
        bool per_head = side.norm_kind == kNormHead;
        int32_t pitch = per_head ? tiling_->row_pitch : tile.heads * tiling_->row_pitch;
        int32_t count = per_head ? tile.tokens * tile.heads : tile.tokens;
        norm_.Select(&side.norm);
        if (qkv_->has_square_sums != 0) {
            ReadSquareSums(tile);
            norm_.FindInverseRmsFromGiven(count);
        } else {
            norm_.FindInverseRms(rows, temp_, pitch, count);
        }
        norm_.Normalize(rows, pitch, count);
        factors_.template LoadStreamed<ParameterT>(side.scale, arguments_.scale[tile.side], tile, qkv_->scale_offset);
        factors_.template Apply<RowOp::kMul>(side.scale, rows, tile);
        factors_.template LoadStreamed<ParameterT>(side.bias, arguments_.bias[tile.side], tile);
        factors_.template Apply<RowOp::kAdd>(side.bias, rows, tile);
    }

    __aicore__ inline void ReadSquareSums(const Tile& tile) {
        AscendC::GlobalTensor<float> sums = TensorAt<float>(arguments_.square_sums, tile.side);
        SyncPipes<AscendC::HardEvent::V_S>();
        for (int32_t t = 0; t < tile.tokens; ++t)
            norm_.SetSum(t, sums.GetValue(static_cast<uint64_t>((tile.token + t) * qkv_->square_sum_stride)));
        SyncPipes<AscendC::HardEvent::S_V>();
    }

    // Converts float32 rows to the output's type. They may be overwritten.
    __aicore__ inline void Convert(LocalTensor<T> y, LocalTensor<float> rows, const QkvSideTiling& side,
                                   const Tile& tile) {
        int32_t count = tile.tokens * tile.heads;
        if (side.out_type == kOutFloat32) {
            CopyRows(y.template ReinterpretCast<float>(), rows, side, count);
        } else if (side.out_type == kOutFloat16) {
            NarrowRows(y.template ReinterpretCast<half>(), side.out_pitch, rows, head_.pitch, count, head_.size);
#if __CCE_AICORE__ != 200
        } else if (side.out_type == kOutBfloat16) {
            NarrowRows(y.template ReinterpretCast<bfloat16_t>(), side.out_pitch, rows, head_.pitch, count, head_.size);
#endif
        } else {
            Quantize(y.template ReinterpretCast<int8_t>(), rows, side, tile);
        }
        VectorBarrier();
    }

    __aicore__ inline void CopyRows(LocalTensor<float> dst, LocalTensor<float> src, const QkvSideTiling& side,
                                    int32_t rows) {
        auto blocks = static_cast<uint16_t>(side.out_pitch / kBlockFloats);
        auto gap = static_cast<uint16_t>((head_.pitch - side.out_pitch) / kBlockFloats);
        AscendC::DataCopy(dst, src, AscendC::DataCopyParams(static_cast<uint16_t>(rows), blocks, gap, 0));
    }

    // Rounds half to even and saturates. A NaN becomes 0.
    __aicore__ inline void Quantize(LocalTensor<int8_t> y, LocalTensor<float> rows, const QkvSideTiling& side,
                                    const Tile& tile) {
        factors_.template LoadStreamed<float>(side.factor, arguments_.factor[tile.side], tile);
        factors_.template Apply<RowOp::kMul>(side.factor, rows, tile);
        factors_.template LoadStreamed<float>(side.quant_offset, arguments_.quant_offset[tile.side], tile);
        factors_.template Apply<RowOp::kAdd>(side.quant_offset, rows, tile);
        // Cast saturates at the limits of int32, and makes 0 of a NaN.
        LocalTensor<int32_t> numbers = temp_.template ReinterpretCast<int32_t>();
        AscendC::Cast(numbers, rows, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(element_count_));
        VectorBarrier();
        AscendC::Maxs(numbers, numbers, kLowestInt8, element_count_);
        VectorBarrier();
        AscendC::Mins(numbers, numbers, kHighestInt8, element_count_);
        VectorBarrier();
        AscendC::Cast(rows, numbers, kExactToFloat, static_cast<uint32_t>(element_count_));
        VectorBarrier();
        // The rounded numbers are exact in half, from which alone Cast converts to int8.
        LocalTensor<half> narrow = temp_.template ReinterpretCast<half>();
        int32_t count = tile.tokens * tile.heads;
        int32_t pitch = RoundUp(head_.size, kBlockBytes / static_cast<int32_t>(sizeof(half)));
        NarrowRows(narrow, pitch, rows, head_.pitch, count, head_.size);
        VectorBarrier();
        if (side.out_pitch == pitch) {
            AscendC::Cast(y, narrow, kExactToInt8, static_cast<uint32_t>(count * pitch));
            return;
        }
        for (int32_t row = 0; row < count; ++row)
            AscendC::Cast(y[row * side.out_pitch], narrow[row * pitch], kExactToInt8,
                          static_cast<uint32_t>(head_.size));
    }

    // ---- stores

    template <typename OutT>
    __aicore__ inline void StoreAs(LocalTensor<OutT> y, const Tile& tile) {
        const QkvSideTiling& side = qkv_->side[tile.side];
        TileRows<OutT> outputs;
        outputs.Init(tiling_, HeadOf(tile.side).size, side.out_pitch);
        GM_ADDR memory = arguments_.out[tile.side];
        if (qkv_->scatters != 0 && tile.side != 0) {
            cache_.Store(&outputs, memory, y, tile, CacheLayout{side.cache_rows, side.block_size, side.out_pitch});
        } else {
            outputs.Store(memory, y, tile);
        }
    }

    const CommonTiling* tiling_ = nullptr;
    const QkvTiling* qkv_ = nullptr;
    QkvArguments arguments_{};
    Table table_;
    TileRotation<key> rotation_;
    RowNorm norm_;
    RowFactors factors_;
    CacheRows cache_;
    TileRows<T> inputs_, value_inputs_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> work_, offsets_, stats_;
    LocalTensor<float> rows_, temp_;
    HeadRow head_{};             // a head of the tile
    int32_t element_count_ = 0;  // elements of the tile, with the padding of its rows
};

template <typename T, typename ParameterT, int32_t key>
__aicore__ inline void RunWithGivenTable(AscendC::TPipe* pipe, const CommonTiling* tiling, GM_ADDR memory,
                                         const QkvArguments& arguments, RotarySource tables) {
    GET_TILING_DATA_MEMBER(QkvNormRopeCacheTilingData, table, table_tiling_data, memory);
    tables.tiling = &table_tiling_data;
    QkvKernel<T, ParameterT, GivenTable<ParameterT, key>, key> kernel;
    kernel.Run(pipe, tiling, memory, arguments, tables);
}

// Runs the kernel for the launch's tiling key, of which 4 to 6 are those of given tables. The keys are literals,
// because CANN's build reads them from the preprocessed source. memory: the tiling data in GM. tables.tiling: not set.
template <typename T, typename ParameterT, typename PositionT>
__aicore__ inline void RunQkvNormRopeCache(const CommonTiling* tiling, GM_ADDR memory, const QkvArguments& arguments,
                                           const RopeSource& positions, const RotarySource& tables) {
    AscendC::TPipe pipe;
    if (TILING_KEY_IS(1)) {
        QkvKernel<T, ParameterT, ComputedTable<PositionT, kRopeHalves>, kRopeHalves> kernel;
        kernel.Run(&pipe, tiling, memory, arguments, positions);
    } else if (TILING_KEY_IS(2)) {
        QkvKernel<T, ParameterT, ComputedTable<PositionT, kRopeSwapByShifts>, kRopeSwapByShifts> kernel;
        kernel.Run(&pipe, tiling, memory, arguments, positions);
    } else if (TILING_KEY_IS(3)) {
        QkvKernel<T, ParameterT, ComputedTable<PositionT, kRopeSwapByGather>, kRopeSwapByGather> kernel;
        kernel.Run(&pipe, tiling, memory, arguments, positions);
    } else if (TILING_KEY_IS(4)) {
        RunWithGivenTable<T, ParameterT, kRopeHalves>(&pipe, tiling, memory, arguments, tables);
    } else if (TILING_KEY_IS(5)) {
        RunWithGivenTable<T, ParameterT, kRopeSwapByShifts>(&pipe, tiling, memory, arguments, tables);
    } else if (TILING_KEY_IS(6)) {
        RunWithGivenTable<T, ParameterT, kRopeSwapByGather>(&pipe, tiling, memory, arguments, tables);
    }
}

static_assert(kQkvGivenTables == 3, "RunQkvNormRopeCache has the keys as literals");

}  // namespace rotation
