// SoftmaxFlash, SoftmaxFlashV2, SoftmaxGrad, SoftmaxGradFront: the rows of an attention, part by part.
//
// Rules: as SoftMax. dst may be src, maxTensor inMaxTensor, and the sums inSumTensor; other operands are apart.
// Meaning: in float. With isUpdate, the maximum includes the earlier one, expMax = exp(inMax - max), and the sum
// is expMax * inSum + the sum of exp(x - max). SoftmaxFlashV2 returns exp(x - max) itself; SoftmaxFlash divides it by
// the sum, and returns expMax * inSum / sum; without isUpdate it is SoftMax. SoftmaxGrad is (grad - d) * src with the
// row sums d of grad * src, which SoftmaxGradFront, or isFront, returns in blocks.
// Not simulated: the NZ format, outReduceMax and SOFTMAX_OUTPUT_WITHOUT_BRC, SoftmaxFlashV3.
// Pages: SoftmaxFlash, SoftmaxFlashV2, SoftmaxGrad, SoftmaxGradFront, and their tilings.
#pragma once

#include "ascendc/library/softmax.h"

namespace ascend_sim {

// The operands of SoftmaxFlash; expMax has the type of rows.
template <class T, class S>
struct FlashOperands {
    const AscendC::LocalTensor<T>& dst;
    const AscendC::LocalTensor<S>&sum, &max;
    const AscendC::LocalTensor<T>&src, &exp_max;
    const AscendC::LocalTensor<S>&in_sum, &in_max;
};

template <class T, class S>
void check_flash(const Call& call, const FlashOperands<T, S>& o, const RowTiles& rows, Range used, bool update) {
    using Tile = SoftmaxTile<T, S>;
    const uint64_t n = uint64_t(rows.m) * rows.pitch, blocks = uint64_t(rows.m) * Tile::kBlock;
    const Range to = call.check_operand("dstTensor", o.dst, n), from = call.check_operand("srcTensor", o.src, n);
    const Range sums = call.check_operand("sumTensor", o.sum, blocks),
                maxima = call.check_operand("maxTensor", o.max, blocks);
    call.check_same_or_apart("dstTensor", to, "srcTensor", from);
    Tile::check_apart_from(call, "sharedTmpBuffer", used,
                           {{"dstTensor", to}, {"srcTensor", from}, {"sumTensor", sums}, {"maxTensor", maxima}});
    Tile::check_apart_from(call, "sumTensor", sums, {{"maxTensor", maxima}, {"dstTensor", to}, {"srcTensor", from}});
    Tile::check_apart_from(call, "maxTensor", maxima, {{"dstTensor", to}, {"srcTensor", from}});
    if (!update) return;
    const Range in_sums = call.check_operand("inSumTensor", o.in_sum, blocks);
    const Range in_maxima = call.check_operand("inMaxTensor", o.in_max, blocks);
    const Range factors = call.check_operand("expMaxTensor", o.exp_max, rows.m * uint64_t(kBlockBytes / sizeof(T)));
    call.check_same_or_apart("sumTensor", sums, "inSumTensor", in_sums);
    call.check_same_or_apart("maxTensor", maxima, "inMaxTensor", in_maxima);
    Tile::check_apart_from(call, "expMaxTensor", factors,
                           {{"dstTensor", to},
                            {"srcTensor", from},
                            {"sumTensor", sums},
                            {"maxTensor", maxima},
                            {"inSumTensor", in_sums},
                            {"inMaxTensor", in_maxima},
                            {"sharedTmpBuffer", used}});
}

// One tile; v2: SoftmaxFlashV2.
template <bool v2, bool update, class T, class S>
void flash_tile(const RowSteps& v, const FlashOperands<T, S>& o, const RowTiles& rows, const SoftmaxTile<T, S>& tile,
                uint32_t first, uint32_t m) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlock = Tile::kBlock, kFactor = kBlockBytes / sizeof(T);
    const uint32_t count = m * rows.pitch, at = first * rows.pitch, n = m * kBlock, b = first * kBlock;
    const auto rows_of_tile = tile.rows_at(v, o.dst, o.src, at, count);
    const Floats &x = rows_of_tile.first, &y = rows_of_tile.second;
    auto given = [&](const AscendC::LocalTensor<S>& blocks, const Floats& to) {
        return Tile::as_floats(v, blocks[b], n, to);
    };
    auto give = [&](const AscendC::LocalTensor<S>& blocks, const Floats& from) {
        if constexpr (Tile::kHalfBlocks)
            v.cast(blocks[b], from, n);
        else
            v.copy(blocks[b], from, n);
    };
    const Floats& result = tile.blocks[0];
    const Floats factor = [&] {  // of floats: the caller's memory, because it is not needed before
        if constexpr (Tile::kHalf)
            return tile.blocks[1];
        else
            return o.exp_max[b];
    }();
    v.template reduce<true>(result, x, m, rows.k, rows.pitch, kBlock, tile.folded);
    if constexpr (update) {
        const Floats before = given(o.in_max, factor);
        v.max(result, result, before, n);
        v.sub(factor, before, result, n);
        v.exp(factor, factor, n);
    }
    give(o.max, result);
    v.sub_blocks(y, x, result, m, rows.pitch, kBlock);
    v.exp(y, y, count);
    v.template reduce<false>(result, y, m, rows.k, rows.pitch, kBlock, tile.folded);
    if constexpr (v2 && Tile::kHalf) v.cast(o.dst[at], y, count);  // afterwards the row's memory is free
    if constexpr (update) {
        const Floats& spare = v2 && Tile::kHalf ? tile.wide[0] : tile.blocks[v2 && !Tile::kHalf ? 1 : 2];
        auto give_factor = [&] {
            if constexpr (Tile::kHalf && kFactor != kBlock) {  // half factors of float blocks
                v.double_blocks(spare, factor, m);
                v.cast(o.exp_max[first * kFactor], spare, m * kFactor);
            } else if constexpr (Tile::kHalf) {
                v.cast(o.exp_max[first * kFactor], factor, n);
            }
        };
        if constexpr (v2) give_factor();
        v.mul(spare, factor, given(o.in_sum, spare), n);
        v.add(result, result, spare, n);
        if constexpr (!v2) {
            v.div(factor, spare, result, n);
            give_factor();
        }
    }
    give(o.sum, result);
    if constexpr (!v2) {
        v.div_blocks(y, y, result, m, rows.pitch, kBlock);
        if constexpr (Tile::kHalf) v.cast(o.dst[at], y, count);
    }
}

template <bool v2, bool update, const AscendC::SoftmaxConfig& config, class T, class S>
void softmax_flash(const Call& call, const FlashOperands<T, S>& o, const AscendC::LocalTensor<uint8_t>* shared,
                   const SoftMaxTiling& tiling, const AscendC::SoftMaxShapeInfo& info, bool basic_block) {
    using Tile = SoftmaxTile<T, S>;
    const RowTiles rows = row_tiles<T, config>(call, o.src, tiling, info, [&](const RowTiles& r) {
        const uint32_t bytes = call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength();
        return v2 ? softmax_flash_v2_tiling(r.m, r.pitch, sizeof(T), sizeof(S), bytes, basic_block)
                  : softmax_tiling(r.m, r.pitch, sizeof(T), bytes,
                                   update ? SoftmaxKind::FlashUpdate : SoftmaxKind::Plain);
    });
    constexpr uint32_t kBlocks = !update ? 1 : v2 ? 2 : Tile::kHalf && !Tile::kHalfBlocks ? 4 : 3;
    const Tile tile(call, rows, shared, Tile::kHalf, kBlocks);
    check_flash(call, o, rows, range_of(tile.memory), update);
    const RowSteps v(call.site());
    for_each_tile(rows, [&](uint32_t first, uint32_t m) { flash_tile<v2, update>(v, o, rows, tile, first, m); });
}

// Ascend950: one instruction.
template <class T>
void softmax_grad_in_registers(const Call& call, bool front, const AscendC::LocalTensor<T>& dst,
                               const AscendC::LocalTensor<T>& grad, const AscendC::LocalTensor<T>& src,
                               const RowTiles& rows) {
    constexpr uint32_t kBlock = kBlockBytes / sizeof(T);
    const uint32_t n = rows.m * rows.pitch;
    start(Pipe::V, "registers", call.site());
    const Range from = bytes_of(src, n), gradients = bytes_of(grad, n), to = bytes_of(dst, front ? rows.m * kBlock : n);
    reads("srcTensor", src.view(), &from, 1);
    reads("gradTensor", grad.view(), &gradients, 1);
    writes("dstTensor", dst.view(), &to, 1);
    const Arithmetic<T> type;
    for (uint32_t r = 0; r < rows.m; ++r) {
        const T *const x = src.data() + r * rows.pitch, *const g = grad.data() + r * rows.pitch;
        float sum = 0;
        for (uint32_t i = 0; i < rows.k; ++i) sum += type.widen(g[i]) * type.widen(x[i]);
        for (uint32_t i = 0; i < (front ? kBlock : rows.pitch); ++i)
            dst.data()[r * (front ? kBlock : rows.pitch) + i] =
                type.narrow(front ? sum : (type.widen(g[i]) - sum) * type.widen(x[i]));
    }
    const uint32_t chunks = (rows.pitch + kRepeatFloats - 1) / kRepeatFloats;
    finish_vector(rows.m * (chunks * (front ? 4 : 8) + 2), cycles_of(Cost::Repeat));
}

// dst: rows, or, with `front`, blocks.
template <class T>
void softmax_grad(const Call& call, bool front, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& grad,
                  const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<uint8_t>* shared,
                  const SoftMaxTiling& tiling, const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, T>;
    constexpr uint32_t kBlock = Tile::kBlock;
    const RowTiles rows = row_tiles<T, AscendC::SOFTMAX_DEFAULT_CFG>(call, src, tiling, info, [&](const RowTiles& r) {
        return softmax_tiling(r.m, r.pitch, sizeof(T), call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength(),
                              front ? SoftmaxKind::GradFront : SoftmaxKind::Grad);
    });
    const Tile tile(call, rows, shared, kIs950 ? 0 : Tile::kHalf ? 3 : 1, kIs950 ? 0 : 1);
    const uint64_t n = uint64_t(rows.m) * rows.pitch;
    const Range to = call.check_operand("dstTensor", dst, front ? uint64_t(rows.m) * kBlock : n);
    const Range from = call.check_operand("srcTensor", src, n), gradients = call.check_operand("gradTensor", grad, n);
    if (front)
        call.check_apart("dstTensor", to, "srcTensor", from);
    else
        call.check_same_or_apart("dstTensor", to, "srcTensor", from);
    call.check_apart("dstTensor", to, "gradTensor", gradients);
    Tile::check_apart_from(call, "sharedTmpBuffer", range_of(tile.memory),
                           {{"dstTensor", to}, {"srcTensor", from}, {"gradTensor", gradients}});
    if constexpr (kIs950) return softmax_grad_in_registers(call, front, dst, grad, src, rows);
    const RowSteps v(call.site());
    for_each_tile(rows, [&](uint32_t first, uint32_t m) {
        const uint32_t count = m * rows.pitch, at = first * rows.pitch;
        Floats x = tile.wide[1], g = tile.wide[2], sums = tile.blocks[0];
        const Floats& product = tile.wide[0];
        if constexpr (Tile::kHalf) {
            v.cast(x, src[at], count);
            v.cast(g, grad[at], count);
        } else {
            x = src[at];
            g = grad[at];
            if (front) sums = dst[first * kBlock];
        }
        v.mul(product, g, x, count);
        v.template reduce<false>(sums, product, m, rows.k, rows.pitch, kBlock, tile.folded);
        if (front) {
            if constexpr (Tile::kHalf) v.cast(dst[first * kBlock], sums, m * kBlock);
            return;
        }
        v.sub_blocks(product, g, sums, m, rows.pitch, kBlock);
        if constexpr (Tile::kHalf) {
            v.mul(product, product, x, count);
            v.cast(dst[at], product, count);
        } else {
            v.mul(dst[at], product, x, count);
        }
    });
}

}  // namespace ascend_sim

namespace AscendC {

template <class T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false,
          bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<S>& expSumTensor,
                    const LocalTensor<S>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<S>& inExpSumTensor,
                    const LocalTensor<S>& inMaxTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                    const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxFlashV2);
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL,
                  "SoftmaxFlashV2: results without blocks are not simulated");
    ascend_sim::softmax_flash<true, isUpdate, config>(
        ascend_sim::Call("SoftmaxFlashV2", site),
        ascend_sim::FlashOperands<T, S>{dstTensor, expSumTensor, maxTensor, srcTensor, expMaxTensor, inExpSumTensor,
                                        inMaxTensor},
        &sharedTmpBuffer, tiling, softmaxShapeInfo, isBasicBlock);
}
template <class T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false,
          bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG, class S>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<S>& expSumTensor,
                    const LocalTensor<S>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<S>& inExpSumTensor,
                    const LocalTensor<S>& inMaxTensor, const SoftMaxTiling& tiling,
                    const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxFlashV2);
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL,
                  "SoftmaxFlashV2: results without blocks are not simulated");
    ascend_sim::softmax_flash<true, isUpdate, config>(
        ascend_sim::Call("SoftmaxFlashV2", site),
        ascend_sim::FlashOperands<T, S>{dstTensor, expSumTensor, maxTensor, srcTensor, expMaxTensor, inExpSumTensor,
                                        inMaxTensor},
        ascend_sim::kNoMemory, tiling, softmaxShapeInfo, isBasicBlock);
}

namespace sim_detail {
template <class T, class S>
void SoftmaxFlashCall(const ascend_sim::FlashOperands<T, S>& o, const LocalTensor<uint8_t>* tmp,
                      const SoftMaxTiling& tiling, bool isUpdate, const SoftMaxShapeInfo& info, ascend_sim::Site site) {
    const ascend_sim::Call call("SoftmaxFlash", site);
    if (isUpdate)
        ascend_sim::softmax_flash<false, true, SOFTMAX_DEFAULT_CFG>(call, o, tmp, tiling, info, false);
    else
        ascend_sim::softmax<false, SOFTMAX_DEFAULT_CFG>(call, o.dst, &o.sum, &o.max, o.src, tmp, tiling, info);
}
}  // namespace sim_detail

template <class T, bool isReuseSource = false, bool isBasicBlock = false, class S>
void SoftmaxFlash(const LocalTensor<T>& dstTensor, const LocalTensor<S>& sumTensor, const LocalTensor<S>& maxTensor,
                  const LocalTensor<T>& srcTensor, const LocalTensor<T>& expMaxTensor,
                  const LocalTensor<S>& inSumTensor, const LocalTensor<S>& inMaxTensor,
                  const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, bool isUpdate = false,
                  const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    constexpr bool isDataFormatNZ = false;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxFlash);
    sim_detail::SoftmaxFlashCall<T, S>(
        {dstTensor, sumTensor, maxTensor, srcTensor, expMaxTensor, inSumTensor, inMaxTensor}, &sharedTmpBuffer, tiling,
        isUpdate, softmaxShapeInfo, site);
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, class S>
void SoftmaxFlash(const LocalTensor<T>& dstTensor, const LocalTensor<S>& sumTensor, const LocalTensor<S>& maxTensor,
                  const LocalTensor<T>& srcTensor, const LocalTensor<T>& expMaxTensor,
                  const LocalTensor<S>& inSumTensor, const LocalTensor<S>& inMaxTensor, const SoftMaxTiling& tiling,
                  bool isUpdate = false, const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    constexpr bool isDataFormatNZ = false;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxFlash);
    sim_detail::SoftmaxFlashCall<T, S>(
        {dstTensor, sumTensor, maxTensor, srcTensor, expMaxTensor, inSumTensor, inMaxTensor}, nullptr, tiling, isUpdate,
        softmaxShapeInfo, site);
}

template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
void SoftmaxGrad(const LocalTensor<T>& dstTensor, const LocalTensor<T>& gradTensor, const LocalTensor<T>& srcTensor,
                 const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, bool isFront = false,
                 const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    using S = T;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxGrad);
    ascend_sim::softmax_grad(ascend_sim::Call("SoftmaxGrad", site), isFront, dstTensor, gradTensor, srcTensor,
                             &sharedTmpBuffer, tiling, softmaxShapeInfo);
}
template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
void SoftmaxGrad(const LocalTensor<T>& dstTensor, const LocalTensor<T>& gradTensor, const LocalTensor<T>& srcTensor,
                 const SoftMaxTiling& tiling, bool isFront = false, const SoftMaxShapeInfo& softmaxShapeInfo = {},
                 ASCEND_SIM_SITE) {
    using S = T;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxGrad);
    ascend_sim::softmax_grad(ascend_sim::Call("SoftmaxGrad", site), isFront, dstTensor, gradTensor, srcTensor,
                             ascend_sim::kNoMemory, tiling, softmaxShapeInfo);
}
template <class T, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftmaxGradFront(const LocalTensor<T>& dstTensor, const LocalTensor<T>& gradTensor,
                      const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                      const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    using S = T;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxGradFront);
    ascend_sim::softmax_grad(ascend_sim::Call("SoftmaxGradFront", site), true, dstTensor, gradTensor, srcTensor,
                             &sharedTmpBuffer, tiling, softmaxShapeInfo);
}
template <class T, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftmaxGradFront(const LocalTensor<T>& dstTensor, const LocalTensor<T>& gradTensor,
                      const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling,
                      const SoftMaxShapeInfo& softmaxShapeInfo = {}, ASCEND_SIM_SITE) {
    using S = T;
    ASCEND_SIM_SOFTMAX_CHECKS(SoftmaxGradFront);
    ascend_sim::softmax_grad(ascend_sim::Call("SoftmaxGradFront", site), true, dstTensor, gradTensor, srcTensor,
                             ascend_sim::kNoMemory, tiling, softmaxShapeInfo);
}

}  // namespace AscendC
