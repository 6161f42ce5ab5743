// SoftMax, LogSoftMax, SimpleSoftMax, AdjustSoftMaxRes: functions of rows, with a tiling struct of the host.
//
// Rules: half and float; half also with float sums and maxima. A row has whole 32-byte blocks. sumTensor and maxTensor
// have a block for each row. dst may be src, except in LogSoftMax. The shape is softmaxShapeInfo, or else the tensor's
// ShapeInfo. If it is not the shape of the tiling, the function computes a new tiling. sharedTmpBuffer holds the rows
// of one tile.
// Meaning, computed in float for each row: SoftMax = exp(x - max) / sum(exp(x - max)), LogSoftMax = log10(SoftMax).
// The caller gives max and sum to SimpleSoftMax. Elements past the original columns do not count for max and sum, but
// the function overwrites them. AdjustSoftMaxRes fills each row whose maximum has the bits `from`, and returns whether
// there was one. The scalar unit reads the maxima.
// Not simulated: the NZ format.
// Pages: SoftMax, LogSoftMax, SimpleSoftMax, AdjustSoftMaxRes, SoftMax/SimpleSoftMax Tiling.
#pragma once

#include <initializer_list>
#include <utility>

#include "ascendc/duplicate.h"
#include "ascendc/library/rows.h"
#include "ascendc/library/softmax_tiling.h"
#include "ascendc/library/tiling_names.h"
#include "ascendc/shape.h"

namespace AscendC {

enum class SoftmaxMode { SOFTMAX_NORMAL = 0, SOFTMAX_OUTPUT_WITHOUT_BRC = 1 };

struct SoftmaxConfig {
    constexpr SoftmaxConfig(bool check, uint32_t m = 0, uint32_t k = 0,
                            SoftmaxMode output = SoftmaxMode::SOFTMAX_NORMAL)
        : isCheckTiling(check), oriSrcM(m), oriSrcK(k), mode(output) {}
    bool isCheckTiling = true;
    uint32_t oriSrcM = 0, oriSrcK = 0;
    SoftmaxMode mode = SoftmaxMode::SOFTMAX_NORMAL;
};
constexpr SoftmaxConfig SOFTMAX_DEFAULT_CFG = {true, 0, 0, SoftmaxMode::SOFTMAX_NORMAL};

struct SoftMaxShapeInfo {
    uint32_t srcM{0}, srcK{0}, oriSrcM{0}, oriSrcK{0};
};

}  // namespace AscendC

namespace ascend_sim {

constexpr const AscendC::LocalTensor<uint8_t>* kNoMemory = nullptr;

// The rows of a call, and its tiling.
struct Rows {
    uint32_t count, pitch, columns;  // pitch: elements of a row with filling; columns: without
    SoftMaxTiling tiling;
};

template <class T, const AscendC::SoftmaxConfig& config, class TileAgain>
Rows rows_of_call(const Call& call, const AscendC::LocalTensor<T>& src, const SoftMaxTiling& tiling,
                  const AscendC::SoftMaxShapeInfo& info, TileAgain tile_again) {
    Rows rows{info.srcM, info.srcK, config.oriSrcK ? config.oriSrcK : info.oriSrcK, tiling};
    if (info.srcM == 0 || info.srcK == 0) {
        const AscendC::ShapeInfo shape = src.shape().is_set() ? src.GetShapeInfo() : AscendC::ShapeInfo{};
        rows.count = rows.pitch = 1;
        for (int i = 0; i < shape.shapeDim; ++i) (i + 1 < shape.shapeDim ? rows.count : rows.pitch) *= shape.shape[i];
        rows.columns = shape.originalShapeDim ? shape.originalShape[shape.originalShapeDim - 1] : 0;
        if (shape.shapeDim == 0)
            call.report(Rule::Count04, "the shape is missing: pass SoftMaxShapeInfo, or call SetShapeInfo.");
    }
    if (rows.columns == 0) rows.columns = rows.pitch;
    if (rows.pitch * sizeof(T) % kBlockBytes || rows.columns > rows.pitch)
        call.report(Rule::Count04,
                    "a row must have whole 32-byte blocks, and at least its original elements, but "
                    "srcK is %u and oriSrcK %u.",
                    rows.pitch, rows.columns);
    if (config.isCheckTiling && (rows.pitch != tiling.srcK || rows.count != tiling.srcM))
        rows.tiling = tile_again(rows);
    if (rows.tiling.splitM == 0)
        call.report(Rule::Work01, "the tiling has no rows: the temporary memory is smaller than one row needs.");
    return rows;
}

// Calls run_tile(first row, rows) for each tile.
template <class Function>
void for_each_tile(const Rows& rows, Function run_tile) {
    const uint32_t step = rows.tiling.splitM;
    for (uint32_t first_row = 0; step && first_row < rows.count; first_row += step)
        run_tile(first_row, rows.count - first_row < step ? rows.count - first_row : step);
}

// The memory of one tile. T: the type of the rows. S: the type of sums and maxima, which are blocks.
template <class T, class S>
struct SoftmaxTile {
    static constexpr bool kIsHalf = std::is_same_v<T, half>, kHasHalfBlocks = std::is_same_v<S, half>;
    static constexpr uint32_t kBlockElements = kBlockBytes / sizeof(S);

    // matrix_count: float matrices of the tile's size. block_count: arrays of float blocks, one block for each row.
    SoftmaxTile(const Call& call, const Rows& rows, const AscendC::LocalTensor<uint8_t>* shared, uint32_t matrix_count,
                uint32_t block_count) {
        const uint32_t split = rows.tiling.splitM, fold = fold_floats(rows.pitch);
        const uint32_t bytes =
            split * (matrix_count * rows.pitch + block_count * kBlockElements + fold) * uint32_t(sizeof(float));
        memory = call.temporary_memory(shared, {bytes, bytes});
        const Floats all = memory.template ReinterpretCast<float>();
        for (uint32_t i = 0; i < 3; ++i) matrices[i] = all[split * rows.pitch * (i < matrix_count ? i : 0)];
        for (uint32_t i = 0; i < 4; ++i)
            blocks[i] = all[split * (matrix_count * rows.pitch + kBlockElements * (i < block_count ? i : 0))];
        fold_tmp = all[split * (matrix_count * rows.pitch + kBlockElements * block_count)];
    }
    // Checks that an operand overlaps none of the others.
    static void check_apart_from_each(const Call& call, const char* name, Range range,
                                      std::initializer_list<std::pair<const char*, Range>> others) {
        for (const auto& [other, bytes] : others) call.check_apart(name, range, other, bytes);
    }
    // Returns the rows of a tile as floats, and the memory of their results. Both are temporary memory if T is half.
    std::pair<Floats, Floats> rows_at(const RowSteps& steps, const AscendC::LocalTensor<T>& dst,
                                      const AscendC::LocalTensor<T>& src, uint32_t offset, uint32_t elements) const {
        if constexpr (kIsHalf) {
            steps.cast(matrices[0], src[offset], elements);
            return {matrices[0], matrices[0]};
        } else {
            return {src[offset], dst[offset]};
        }
    }
    // Returns blocks of the caller as floats. If they are half, the floats are in `copy`.
    static Floats as_floats(const RowSteps& steps, const AscendC::LocalTensor<S>& blocks, uint32_t elements,
                            const Floats& copy) {
        if constexpr (kHasHalfBlocks) {
            steps.cast(copy, blocks, elements);
            return copy;
        } else {
            return blocks;
        }
    }
    AscendC::LocalTensor<uint8_t> memory;
    Floats matrices[3], blocks[4], fold_tmp;
};

template <bool kLogarithm, const AscendC::SoftmaxConfig& config, class T, class S>
void softmax(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<S>* sum,
             const AscendC::LocalTensor<S>* maximum, const AscendC::LocalTensor<T>& src,
             const AscendC::LocalTensor<uint8_t>* shared, const SoftMaxTiling& tiling,
             const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlockElements = Tile::kBlockElements;
    const Rows rows = rows_of_call<T, config>(call, src, tiling, info, [&](const Rows& untiled_rows) {
        return softmax_tiling(untiled_rows.count, untiled_rows.pitch, sizeof(T),
                              call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength());
    });
    const bool needs_blocks = !sum || Tile::kHasHalfBlocks;
    const Tile tile(call, rows, shared, Tile::kIsHalf, needs_blocks);
    const uint64_t total_elements = uint64_t(rows.count) * rows.pitch;
    const Range dst_bytes = call.check_operand("dstTensor", dst, total_elements),
                src_bytes = call.check_operand("srcTensor", src, total_elements);
    const Range tmp_bytes = range_of(tile.memory);
    if (kLogarithm)
        call.check_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    else
        call.check_same_or_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    call.check_apart("sharedTmpBuffer", tmp_bytes, "srcTensor", src_bytes);
    call.check_apart("sharedTmpBuffer", tmp_bytes, "dstTensor", dst_bytes);
    if (sum) {
        const Range sums = call.check_operand("sumTensor", *sum, uint64_t(rows.count) * kBlockElements);
        const Range maxima = call.check_operand("maxTensor", *maximum, uint64_t(rows.count) * kBlockElements);
        Tile::check_apart_from_each(call, "sumTensor", sums,
                                    {{"maxTensor", maxima},
                                     {"dstTensor", dst_bytes},
                                     {"srcTensor", src_bytes},
                                     {"sharedTmpBuffer", tmp_bytes}});
        Tile::check_apart_from_each(
            call, "maxTensor", maxima,
            {{"dstTensor", dst_bytes}, {"srcTensor", src_bytes}, {"sharedTmpBuffer", tmp_bytes}});
    }
    const RowSteps steps(call.site());
    for_each_tile(rows, [&](uint32_t first_row, uint32_t tile_rows) {
        const uint32_t elements = tile_rows * rows.pitch, offset = first_row * rows.pitch;
        const auto [x, y] = tile.rows_at(steps, dst, src, offset, elements);
        auto reduce_to_blocks = [&](auto is_max, const AscendC::LocalTensor<S>* result, const Floats& values) {
            Floats result_blocks = tile.blocks[0];
            if constexpr (!Tile::kHasHalfBlocks)
                if (result) result_blocks = (*result)[first_row * kBlockElements];
            steps.template reduce<decltype(is_max)::value>(result_blocks, values, tile_rows, rows.columns, rows.pitch,
                                                           kBlockElements, tile.fold_tmp);
            if constexpr (Tile::kHasHalfBlocks)
                if (result)
                    steps.cast((*result)[first_row * kBlockElements], result_blocks, tile_rows * kBlockElements);
            return result_blocks;
        };
        steps.sub_blocks(y, x, reduce_to_blocks(std::true_type(), maximum, x), tile_rows, rows.pitch, kBlockElements);
        steps.exp(y, y, elements);
        steps.div_blocks(y, y, reduce_to_blocks(std::false_type(), sum, y), tile_rows, rows.pitch, kBlockElements);
        if constexpr (kLogarithm) {
            steps.ln(y, y, elements);
            steps.muls(y, y, 0.43429448190325176f /* 1 / ln 10 */, elements);
        }
        if constexpr (Tile::kIsHalf) steps.cast(dst[offset], y, elements);
    });
}

template <const AscendC::SoftmaxConfig& config, class T, class S>
void simple_softmax(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<S>& sum,
                    const AscendC::LocalTensor<S>& maximum, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>* shared, const SoftMaxTiling& tiling,
                    const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlockElements = Tile::kBlockElements;
    const Rows rows = rows_of_call<T, config>(call, src, tiling, info, [&](const Rows& untiled_rows) {
        return softmax_tiling(untiled_rows.count, untiled_rows.pitch, sizeof(T),
                              call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength());
    });
    const Tile tile(call, rows, shared, Tile::kIsHalf, Tile::kHasHalfBlocks);
    const uint64_t total_elements = uint64_t(rows.count) * rows.pitch;
    const Range dst_bytes = call.check_operand("dstTensor", dst, total_elements),
                src_bytes = call.check_operand("srcTensor", src, total_elements);
    call.check_same_or_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    Tile::check_apart_from_each(
        call, "sharedTmpBuffer", range_of(tile.memory),
        {{"dstTensor", dst_bytes},
         {"srcTensor", src_bytes},
         {"inSumTensor", call.check_operand("inSumTensor", sum, uint64_t(rows.count) * kBlockElements)},
         {"inMaxTensor", call.check_operand("inMaxTensor", maximum, uint64_t(rows.count) * kBlockElements)}});
    const RowSteps steps(call.site());
    for_each_tile(rows, [&](uint32_t first_row, uint32_t tile_rows) {
        const uint32_t elements = tile_rows * rows.pitch, offset = first_row * rows.pitch;
        const auto [x, y] = tile.rows_at(steps, dst, src, offset, elements);
        auto load_blocks = [&](const AscendC::LocalTensor<S>& blocks) {
            return Tile::as_floats(steps, blocks[first_row * kBlockElements], tile_rows * kBlockElements,
                                   tile.blocks[0]);
        };
        steps.sub_blocks(y, x, load_blocks(maximum), tile_rows, rows.pitch, kBlockElements);
        steps.exp(y, y, elements);
        steps.div_blocks(y, y, load_blocks(sum), tile_rows, rows.pitch, kBlockElements);
        if constexpr (Tile::kIsHalf) steps.cast(dst[offset], y, elements);
    });
}

}  // namespace ascend_sim

namespace AscendC {

#define ASCEND_SIM_SOFTMAX_CHECKS(Name)                                       \
    ASCEND_SIM_NEEDS(Name, T);                                                \
    static_assert(!isDataFormatNZ, #Name ": the NZ format is not simulated"); \
    static_assert(std::is_same_v<T, S> || std::is_same_v<S, float>, #Name ": sums have src's type, or float")

// The forms: with sums and maxima of type S, or without; with sharedTmpBuffer, or without.
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<S>& sumTensor, const LocalTensor<S>& maxTensor,
             const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SoftMax);
    ascend_sim::softmax<false, config>(ascend_sim::Call("SoftMax", site), dstTensor, &sumTensor, &maxTensor, srcTensor,
                                       &sharedTmpBuffer, tiling, softmaxShapeInfo);
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<S>& sumTensor, const LocalTensor<S>& maxTensor,
             const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SoftMax);
    ascend_sim::softmax<false, config>(ascend_sim::Call("SoftMax", site), dstTensor, &sumTensor, &maxTensor, srcTensor,
                                       ascend_sim::kNoMemory, tiling, softmaxShapeInfo);
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SoftMax, T);
    const LocalTensor<T>* const none = nullptr;
    ascend_sim::softmax<false, config>(ascend_sim::Call("SoftMax", site), dstTensor, none, none, srcTensor,
                                       &sharedTmpBuffer, tiling, softmaxShapeInfo);
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(SoftMax, T);
    const LocalTensor<T>* const none = nullptr;
    ascend_sim::softmax<false, config>(ascend_sim::Call("SoftMax", site), dstTensor, none, none, srcTensor,
                                       ascend_sim::kNoMemory, tiling, softmaxShapeInfo);
}

template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
void LogSoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& sum, const LocalTensor<T>& max,
                const LocalTensor<T>& src, const LocalTensor<uint8_t>& sharedTmpBuffer, const LogSoftMaxTiling& tiling,
                const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    using S = T;
    ASCEND_SIM_SOFTMAX_CHECKS(LogSoftMax);
    ascend_sim::softmax<true, SOFTMAX_DEFAULT_CFG>(ascend_sim::Call("LogSoftMax", site), dst, &sum, &max, src,
                                                   &sharedTmpBuffer, ascend_sim::bits<SoftMaxTiling>(tiling),
                                                   softmaxShapeInfo);
}

template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SimpleSoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<S>& inSumTensor,
                   const LocalTensor<S>& inMaxTensor, const LocalTensor<T>& srcTensor,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
                   const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SimpleSoftMax);
    ascend_sim::simple_softmax<config>(ascend_sim::Call("SimpleSoftMax", site), dstTensor, inSumTensor, inMaxTensor,
                                       srcTensor, &sharedTmpBuffer, tiling, softmaxShapeInfo);
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SimpleSoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<S>& inSumTensor,
                   const LocalTensor<S>& inMaxTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling,
                   const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SimpleSoftMax);
    ascend_sim::simple_softmax<config>(ascend_sim::Call("SimpleSoftMax", site), dstTensor, inSumTensor, inMaxTensor,
                                       srcTensor, ascend_sim::kNoMemory, tiling, softmaxShapeInfo);
}

template <class T1, class T2, bool isDataFormatNZ = false, uint8_t stepSizeMode = 0>
bool AdjustSoftMaxRes(const LocalTensor<T1>& softMaxRes, const LocalTensor<T2>& maxTensor, const uint32_t from,
                      const T1 to, const SoftMaxShapeInfo& softmaxShapeInfo, ASCEND_SIM_SITE) {
    ASCEND_SIM_NEEDS(AdjustSoftMaxRes, T1);
    static_assert(!isDataFormatNZ, "AdjustSoftMaxRes: the NZ format is not simulated");
    const ascend_sim::Call call("AdjustSoftMaxRes", site);
    const uint32_t step = stepSizeMode ? 1 : ascend_sim::kBlockBytes / sizeof(T2), m = softmaxShapeInfo.srcM;
    call.check_operand("softMaxRes", softMaxRes, uint64_t(m) * softmaxShapeInfo.srcK);
    call.check_operand("maxTensor", maxTensor, uint64_t(m) * step);
    ascend_sim::hand_over(ascend_sim::Pipe::V, ascend_sim::Pipe::S, "AdjustSoftMaxRes", site);
    bool found = false;
    for (uint32_t r = 0; r < m; ++r) {
        const T2 value = maxTensor.GetValue(r * step, site);
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof value);
        if (bits != from) continue;
        if (!found) ascend_sim::hand_over(ascend_sim::Pipe::S, ascend_sim::Pipe::V, "AdjustSoftMaxRes", site);
        found = true;
        Duplicate(softMaxRes[r * softmaxShapeInfo.srcK], to, int32_t(softmaxShapeInfo.srcK), site);
    }
    return found;
}

}  // namespace AscendC
