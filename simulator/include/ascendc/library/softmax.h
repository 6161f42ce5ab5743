// SoftMax, LogSoftMax, SimpleSoftMax, AdjustSoftMaxRes: rows, with a tiling struct of the host.
//
// Rules: half and float; half with float sums and maxima. A row has whole 32-byte blocks; sumTensor and maxTensor have
// a block for each row. dst may be src (not for LogSoftMax). The shape is softmaxShapeInfo, or else the tensor's
// ShapeInfo; if it is not the tiling's, the function tiles again. sharedTmpBuffer holds the tiling's rows.
// Meaning: in float: the row's maximum, exp(x - max), their sum, and the quotient; LogSoftMax takes its decimal
// logarithm; SimpleSoftMax is given maximum and sum. Elements past the original columns do not count for maximum and
// sum, but are overwritten. AdjustSoftMaxRes sets the rows whose maximum has the bits `from`, and returns whether there
// are any; the scalar unit reads the maxima.
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
struct RowTiles {
    uint32_t m, pitch, k;  // rows, and their elements with and without filling
    SoftMaxTiling tiling;
};

template <class T, const AscendC::SoftmaxConfig& config, class Again>
RowTiles row_tiles(const Call& call, const AscendC::LocalTensor<T>& src, const SoftMaxTiling& tiling,
                   const AscendC::SoftMaxShapeInfo& info, Again tile_again) {
    RowTiles rows{info.srcM, info.srcK, config.oriSrcK ? config.oriSrcK : info.oriSrcK, tiling};
    if (info.srcM == 0 || info.srcK == 0) {
        const AscendC::ShapeInfo shape = src.shape().is_set() ? src.GetShapeInfo() : AscendC::ShapeInfo{};
        rows.m = rows.pitch = 1;
        for (int i = 0; i < shape.shapeDim; ++i) (i + 1 < shape.shapeDim ? rows.m : rows.pitch) *= shape.shape[i];
        rows.k = shape.originalShapeDim ? shape.originalShape[shape.originalShapeDim - 1] : 0;
        if (shape.shapeDim == 0)
            call.report(Rule::Count04, "the shape is missing: pass SoftMaxShapeInfo, or call SetShapeInfo.");
    }
    if (rows.k == 0) rows.k = rows.pitch;
    if (rows.pitch * sizeof(T) % kBlockBytes || rows.k > rows.pitch)
        call.report(Rule::Count04,
                    "a row must have whole 32-byte blocks, and at least its original elements, but "
                    "srcK is %u and oriSrcK %u.",
                    rows.pitch, rows.k);
    if (config.isCheckTiling && (rows.pitch != tiling.srcK || rows.m != tiling.srcM)) rows.tiling = tile_again(rows);
    if (rows.tiling.splitM == 0)
        call.report(Rule::Work01, "the tiling has no rows: the temporary memory is smaller than one row needs.");
    return rows;
}

// Calls f(first row, rows) for each tile.
template <class F>
void for_each_tile(const RowTiles& rows, F f) {
    const uint32_t step = rows.tiling.splitM;
    for (uint32_t first = 0; step && first < rows.m; first += step)
        f(first, rows.m - first < step ? rows.m - first : step);
}

// The type of operands of rows, of their results in blocks, and the memory of one tile.
template <class T, class S>
struct SoftmaxTile {
    static constexpr bool kHalf = std::is_same_v<T, half>, kHalfBlocks = std::is_same_v<S, half>;
    static constexpr uint32_t kBlock = kBlockBytes / sizeof(S);

    // wide_rows: matrices of floats; own_blocks: blocks of floats.
    SoftmaxTile(const Call& call, const RowTiles& rows, const AscendC::LocalTensor<uint8_t>* shared, uint32_t wide_rows,
                uint32_t own_blocks) {
        const uint32_t split = rows.tiling.splitM, fold = fold_floats(rows.pitch);
        const uint32_t bytes = split * (wide_rows * rows.pitch + own_blocks * kBlock + fold) * uint32_t(sizeof(float));
        memory = call.temporary(shared, {bytes, bytes});
        const Floats all = memory.template ReinterpretCast<float>();
        for (uint32_t i = 0; i < 3; ++i) wide[i] = all[split * rows.pitch * (i < wide_rows ? i : 0)];
        for (uint32_t i = 0; i < 4; ++i)
            blocks[i] = all[split * (wide_rows * rows.pitch + kBlock * (i < own_blocks ? i : 0))];
        folded = all[split * (wide_rows * rows.pitch + kBlock * own_blocks)];
    }
    // Checks that results of the caller are apart from the temporary memory, and from each other.
    static void check_apart_from(const Call& call, const char* name, Range range,
                                 std::initializer_list<std::pair<const char*, Range>> others) {
        for (const auto& [other, bytes] : others) call.apart(name, range, other, bytes);
    }
    // The rows of a tile as floats, and where their results go: both in the tile's memory if the rows are half.
    std::pair<Floats, Floats> rows_at(const RowSteps& v, const AscendC::LocalTensor<T>& dst,
                                      const AscendC::LocalTensor<T>& src, uint32_t at, uint32_t count) const {
        if constexpr (kHalf) {
            v.cast(wide[0], src[at], count);
            return {wide[0], wide[0]};
        } else {
            return {src[at], dst[at]};
        }
    }
    // Blocks of the caller as floats: a copy in `to` if they are half.
    static Floats as_floats(const RowSteps& v, const AscendC::LocalTensor<S>& blocks, uint32_t n, const Floats& to) {
        if constexpr (kHalfBlocks) {
            v.cast(to, blocks, n);
            return to;
        } else {
            return blocks;
        }
    }
    AscendC::LocalTensor<uint8_t> memory;
    Floats wide[3], blocks[4], folded;
};

template <bool logarithm, const AscendC::SoftmaxConfig& config, class T, class S>
void softmax(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<S>* sum,
             const AscendC::LocalTensor<S>* maximum, const AscendC::LocalTensor<T>& src,
             const AscendC::LocalTensor<uint8_t>* shared, const SoftMaxTiling& tiling,
             const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlock = Tile::kBlock;
    const RowTiles rows = row_tiles<T, config>(call, src, tiling, info, [&](const RowTiles& r) {
        return softmax_tiling(r.m, r.pitch, sizeof(T), call.temporary(shared, {UINT32_MAX, 0}).GetLength());
    });
    const bool own_blocks = !sum || Tile::kHalfBlocks;
    const Tile tile(call, rows, shared, Tile::kHalf, own_blocks);
    const uint64_t n = uint64_t(rows.m) * rows.pitch;
    const Range to = call.operand("dstTensor", dst, n), from = call.operand("srcTensor", src, n);
    const Range used = range_of(tile.memory);
    if (logarithm)
        call.apart("dstTensor", to, "srcTensor", from);
    else
        call.same_or_apart("dstTensor", to, "srcTensor", from);
    call.apart("sharedTmpBuffer", used, "srcTensor", from);
    call.apart("sharedTmpBuffer", used, "dstTensor", to);
    if (sum) {
        const Range sums = call.operand("sumTensor", *sum, uint64_t(rows.m) * kBlock);
        const Range maxima = call.operand("maxTensor", *maximum, uint64_t(rows.m) * kBlock);
        Tile::check_apart_from(
            call, "sumTensor", sums,
            {{"maxTensor", maxima}, {"dstTensor", to}, {"srcTensor", from}, {"sharedTmpBuffer", used}});
        Tile::check_apart_from(call, "maxTensor", maxima,
                               {{"dstTensor", to}, {"srcTensor", from}, {"sharedTmpBuffer", used}});
    }
    const RowSteps v(call.site());
    for_each_tile(rows, [&](uint32_t first, uint32_t m) {
        const uint32_t count = m * rows.pitch, at = first * rows.pitch;
        const auto [x, y] = tile.rows_at(v, dst, src, at, count);
        auto reduced = [&](auto is_max, const AscendC::LocalTensor<S>* result, const Floats& s) {
            Floats b = tile.blocks[0];
            if constexpr (!Tile::kHalfBlocks)
                if (result) b = (*result)[first * kBlock];
            v.template reduce<decltype(is_max)::value>(b, s, m, rows.k, rows.pitch, kBlock, tile.folded);
            if constexpr (Tile::kHalfBlocks)
                if (result) v.cast((*result)[first * kBlock], b, m * kBlock);
            return b;
        };
        v.sub_blocks(y, x, reduced(std::true_type(), maximum, x), m, rows.pitch, kBlock);
        v.exp(y, y, count);
        v.div_blocks(y, y, reduced(std::false_type(), sum, y), m, rows.pitch, kBlock);
        if constexpr (logarithm) {
            v.ln(y, y, count);
            v.muls(y, y, 0.43429448190325176f, count);
        }
        if constexpr (Tile::kHalf) v.cast(dst[at], y, count);
    });
}

template <const AscendC::SoftmaxConfig& config, class T, class S>
void simple_softmax(const Call& call, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<S>& sum,
                    const AscendC::LocalTensor<S>& maximum, const AscendC::LocalTensor<T>& src,
                    const AscendC::LocalTensor<uint8_t>* shared, const SoftMaxTiling& tiling,
                    const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlock = Tile::kBlock;
    const RowTiles rows = row_tiles<T, config>(call, src, tiling, info, [&](const RowTiles& r) {
        return softmax_tiling(r.m, r.pitch, sizeof(T), call.temporary(shared, {UINT32_MAX, 0}).GetLength());
    });
    const Tile tile(call, rows, shared, Tile::kHalf, Tile::kHalfBlocks);
    const uint64_t n = uint64_t(rows.m) * rows.pitch;
    const Range to = call.operand("dstTensor", dst, n), from = call.operand("srcTensor", src, n);
    call.same_or_apart("dstTensor", to, "srcTensor", from);
    Tile::check_apart_from(call, "sharedTmpBuffer", range_of(tile.memory),
                           {{"dstTensor", to},
                            {"srcTensor", from},
                            {"inSumTensor", call.operand("inSumTensor", sum, uint64_t(rows.m) * kBlock)},
                            {"inMaxTensor", call.operand("inMaxTensor", maximum, uint64_t(rows.m) * kBlock)}});
    const RowSteps v(call.site());
    for_each_tile(rows, [&](uint32_t first, uint32_t m) {
        const uint32_t count = m * rows.pitch, at = first * rows.pitch;
        const auto [x, y] = tile.rows_at(v, dst, src, at, count);
        auto given = [&](const AscendC::LocalTensor<S>& blocks) {
            return Tile::as_floats(v, blocks[first * kBlock], m * kBlock, tile.blocks[0]);
        };
        v.sub_blocks(y, x, given(maximum), m, rows.pitch, kBlock);
        v.exp(y, y, count);
        v.div_blocks(y, y, given(sum), m, rows.pitch, kBlock);
        if constexpr (Tile::kHalf) v.cast(dst[at], y, count);
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
    call.operand("softMaxRes", softMaxRes, uint64_t(m) * softmaxShapeInfo.srcK);
    call.operand("maxTensor", maxTensor, uint64_t(m) * step);
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
