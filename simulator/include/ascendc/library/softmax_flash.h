// SoftmaxFlash, SoftmaxFlashV2: softmax of attention rows that come in parts. SoftmaxGrad, SoftmaxGradFront: gradients.
//
// Rules: those of SoftMax. dst may be src, maxTensor may be inMaxTensor, and the sums may be inSumTensor. No other
// operands overlap.
// Meaning, computed in float for each row. With isUpdate, max includes inMax, expMax = exp(inMax - max), and
// sum = expMax * inSum + sum(exp(x - max)).
//   SoftmaxFlashV2: dst = exp(x - max).
//   SoftmaxFlash: dst = exp(x - max) / sum, and expMax is multiplied by inSum / sum. Without isUpdate it is SoftMax.
//   SoftmaxGrad: dst = (grad - d) * src with d = sum(grad * src).
//   SoftmaxGradFront, and SoftmaxGrad with isFront: dst = d, in blocks.
// Not simulated: the NZ format, outReduceMax and SOFTMAX_OUTPUT_WITHOUT_BRC, SoftmaxFlashV3.
// Pages: SoftmaxFlash, SoftmaxFlashV2, SoftmaxGrad, SoftmaxGradFront, and their tilings.
#pragma once

#include "ascendc/library/softmax.h"

namespace ascend_sim {

// The operands of SoftmaxFlash and SoftmaxFlashV2. expMax has the type of the rows.
template <class T, class S>
struct FlashOperands {
    const AscendC::LocalTensor<T>& dst;
    const AscendC::LocalTensor<S>&sum, &max;
    const AscendC::LocalTensor<T>&src, &exp_max;
    const AscendC::LocalTensor<S>&in_sum, &in_max;
};

template <class T, class S>
void check_flash(const Call& call, const FlashOperands<T, S>& operands, const Rows& rows, Range tmp_bytes,
                 bool update) {
    using Tile = SoftmaxTile<T, S>;
    const uint64_t total_elements = uint64_t(rows.count) * rows.pitch,
                   blocks = uint64_t(rows.count) * Tile::kBlockElements;
    const Range dst_bytes = call.check_operand("dstTensor", operands.dst, total_elements),
                src_bytes = call.check_operand("srcTensor", operands.src, total_elements);
    const Range sums = call.check_operand("sumTensor", operands.sum, blocks),
                maxima = call.check_operand("maxTensor", operands.max, blocks);
    call.check_same_or_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    Tile::check_apart_from_each(
        call, "sharedTmpBuffer", tmp_bytes,
        {{"dstTensor", dst_bytes}, {"srcTensor", src_bytes}, {"sumTensor", sums}, {"maxTensor", maxima}});
    Tile::check_apart_from_each(call, "sumTensor", sums,
                                {{"maxTensor", maxima}, {"dstTensor", dst_bytes}, {"srcTensor", src_bytes}});
    Tile::check_apart_from_each(call, "maxTensor", maxima, {{"dstTensor", dst_bytes}, {"srcTensor", src_bytes}});
    if (!update) return;
    const Range in_sums = call.check_operand("inSumTensor", operands.in_sum, blocks);
    const Range in_maxima = call.check_operand("inMaxTensor", operands.in_max, blocks);
    const Range factors =
        call.check_operand("expMaxTensor", operands.exp_max, rows.count * uint64_t(kBlockBytes / sizeof(T)));
    call.check_same_or_apart("sumTensor", sums, "inSumTensor", in_sums);
    call.check_same_or_apart("maxTensor", maxima, "inMaxTensor", in_maxima);
    Tile::check_apart_from_each(call, "expMaxTensor", factors,
                                {{"dstTensor", dst_bytes},
                                 {"srcTensor", src_bytes},
                                 {"sumTensor", sums},
                                 {"maxTensor", maxima},
                                 {"inSumTensor", in_sums},
                                 {"inMaxTensor", in_maxima},
                                 {"sharedTmpBuffer", tmp_bytes}});
}

// Computes one tile. kIsV2: SoftmaxFlashV2.
template <bool kIsV2, bool kUpdates, class T, class S>
void flash_tile(const RowSteps& steps, const FlashOperands<T, S>& operands, const Rows& rows,
                const SoftmaxTile<T, S>& tile, uint32_t first_row, uint32_t tile_rows) {
    using Tile = SoftmaxTile<T, S>;
    constexpr uint32_t kBlockElements = Tile::kBlockElements, kFactorElements = kBlockBytes / sizeof(T);
    const uint32_t elements = tile_rows * rows.pitch, offset = first_row * rows.pitch,
                   block_elements = tile_rows * kBlockElements, block_offset = first_row * kBlockElements;
    const auto rows_of_tile = tile.rows_at(steps, operands.dst, operands.src, offset, elements);
    const Floats &x = rows_of_tile.first, &y = rows_of_tile.second;
    auto load_blocks = [&](const AscendC::LocalTensor<S>& blocks, const Floats& copy) {
        return Tile::as_floats(steps, blocks[block_offset], block_elements, copy);
    };
    auto store_blocks = [&](const AscendC::LocalTensor<S>& blocks, const Floats& values) {
        if constexpr (Tile::kHasHalfBlocks)
            steps.cast(blocks[block_offset], values, block_elements);
        else
            steps.copy(blocks[block_offset], values, block_elements);
    };
    const Floats& result = tile.blocks[0];
    const Floats factor = [&] {  // floats use the memory of expMax, which is written last
        if constexpr (Tile::kIsHalf)
            return tile.blocks[1];
        else
            return operands.exp_max[block_offset];
    }();
    steps.template reduce<true>(result, x, tile_rows, rows.columns, rows.pitch, kBlockElements, tile.fold_tmp);
    if constexpr (kUpdates) {
        const Floats before = load_blocks(operands.in_max, factor);
        steps.max(result, result, before, block_elements);
        steps.sub(factor, before, result, block_elements);
        steps.exp(factor, factor, block_elements);
    }
    store_blocks(operands.max, result);
    steps.sub_blocks(y, x, result, tile_rows, rows.pitch, kBlockElements);
    steps.exp(y, y, elements);
    steps.template reduce<false>(result, y, tile_rows, rows.columns, rows.pitch, kBlockElements, tile.fold_tmp);
    if constexpr (kIsV2 && Tile::kIsHalf)
        steps.cast(operands.dst[offset], y, elements);  // now the matrix is free for other values
    if constexpr (kUpdates) {
        const Floats& spare = kIsV2 && Tile::kIsHalf ? tile.matrices[0] : tile.blocks[kIsV2 && !Tile::kIsHalf ? 1 : 2];
        auto store_factor = [&] {
            if constexpr (Tile::kIsHalf &&
                          kFactorElements != kBlockElements) {  // blocks of floats become blocks of halves
                steps.double_blocks(spare, factor, tile_rows);
                steps.cast(operands.exp_max[first_row * kFactorElements], spare, tile_rows * kFactorElements);
            } else if constexpr (Tile::kIsHalf) {
                steps.cast(operands.exp_max[first_row * kFactorElements], factor, block_elements);
            }
        };
        if constexpr (kIsV2) store_factor();
        steps.mul(spare, factor, load_blocks(operands.in_sum, spare), block_elements);
        steps.add(result, result, spare, block_elements);
        if constexpr (!kIsV2) {
            steps.div(factor, spare, result, block_elements);
            store_factor();
        }
    }
    store_blocks(operands.sum, result);
    if constexpr (!kIsV2) {
        steps.div_blocks(y, y, result, tile_rows, rows.pitch, kBlockElements);
        if constexpr (Tile::kIsHalf) steps.cast(operands.dst[offset], y, elements);
    }
}

template <bool kIsV2, bool kUpdates, const AscendC::SoftmaxConfig& config, class T, class S>
void softmax_flash(const Call& call, const FlashOperands<T, S>& operands, const AscendC::LocalTensor<uint8_t>* shared,
                   const SoftMaxTiling& tiling, const AscendC::SoftMaxShapeInfo& info, bool basic_block) {
    using Tile = SoftmaxTile<T, S>;
    const Rows rows = rows_of_call<T, config>(call, operands.src, tiling, info, [&](const Rows& untiled_rows) {
        const uint32_t bytes = call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength();
        return kIsV2 ? softmax_flash_v2_tiling(untiled_rows.count, untiled_rows.pitch, sizeof(T), sizeof(S), bytes,
                                               basic_block)
                     : softmax_tiling(untiled_rows.count, untiled_rows.pitch, sizeof(T), bytes,
                                      kUpdates ? SoftmaxKind::FlashUpdate : SoftmaxKind::Plain);
    });
    constexpr uint32_t kBlocks = !kUpdates ? 1 : kIsV2 ? 2 : Tile::kIsHalf && !Tile::kHasHalfBlocks ? 4 : 3;
    const Tile tile(call, rows, shared, Tile::kIsHalf, kBlocks);
    check_flash(call, operands, rows, range_of(tile.memory), kUpdates);
    const RowSteps steps(call.site());
    for_each_tile(rows, [&](uint32_t first_row, uint32_t tile_rows) {
        flash_tile<kIsV2, kUpdates>(steps, operands, rows, tile, first_row, tile_rows);
    });
}

// Ascend950: one instruction.
template <class T>
void softmax_grad_in_registers(const Call& call, bool front, const AscendC::LocalTensor<T>& dst,
                               const AscendC::LocalTensor<T>& grad, const AscendC::LocalTensor<T>& src,
                               const Rows& rows) {
    constexpr uint32_t kBlockElements = kBlockBytes / sizeof(T);
    const uint32_t total_elements = rows.count * rows.pitch;
    start(Pipe::V, "registers", call.site());
    const Range src_bytes = bytes_of(src, total_elements), gradients = bytes_of(grad, total_elements),
                dst_bytes = bytes_of(dst, front ? rows.count * kBlockElements : total_elements);
    reads("srcTensor", src.view(), &src_bytes, 1);
    reads("gradTensor", grad.view(), &gradients, 1);
    writes("dstTensor", dst.view(), &dst_bytes, 1);
    const Arithmetic<T> type;
    for (uint32_t row = 0; row < rows.count; ++row) {
        const T *const x = src.data() + row * rows.pitch, *const g = grad.data() + row * rows.pitch;
        float sum = 0;
        for (uint32_t i = 0; i < rows.columns; ++i) sum += type.widen(g[i]) * type.widen(x[i]);
        for (uint32_t i = 0; i < (front ? kBlockElements : rows.pitch); ++i)
            dst.data()[row * (front ? kBlockElements : rows.pitch) + i] =
                type.narrow(front ? sum : (type.widen(g[i]) - sum) * type.widen(x[i]));
    }
    const uint32_t chunks = (rows.pitch + kRepeatFloats - 1) / kRepeatFloats;
    finish_vector(rows.count * (chunks * (front ? 4 : 8) + 2), cycles_of(Cost::Repeat));
}

// front: dst has a block for each row; else dst has rows.
template <class T>
void softmax_grad(const Call& call, bool front, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& grad,
                  const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<uint8_t>* shared,
                  const SoftMaxTiling& tiling, const AscendC::SoftMaxShapeInfo& info) {
    using Tile = SoftmaxTile<T, T>;
    constexpr uint32_t kBlockElements = Tile::kBlockElements;
    const Rows rows =
        rows_of_call<T, AscendC::SOFTMAX_DEFAULT_CFG>(call, src, tiling, info, [&](const Rows& untiled_rows) {
            return softmax_tiling(untiled_rows.count, untiled_rows.pitch, sizeof(T),
                                  call.temporary_memory(shared, {UINT32_MAX, 0}).GetLength(),
                                  front ? SoftmaxKind::GradFront : SoftmaxKind::Grad);
        });
    const Tile tile(call, rows, shared, kIs950 ? 0 : Tile::kIsHalf ? 3 : 1, kIs950 ? 0 : 1);
    const uint64_t total_elements = uint64_t(rows.count) * rows.pitch;
    const Range dst_bytes =
        call.check_operand("dstTensor", dst, front ? uint64_t(rows.count) * kBlockElements : total_elements);
    const Range src_bytes = call.check_operand("srcTensor", src, total_elements),
                gradients = call.check_operand("gradTensor", grad, total_elements);
    if (front)
        call.check_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    else
        call.check_same_or_apart("dstTensor", dst_bytes, "srcTensor", src_bytes);
    call.check_apart("dstTensor", dst_bytes, "gradTensor", gradients);
    Tile::check_apart_from_each(call, "sharedTmpBuffer", range_of(tile.memory),
                                {{"dstTensor", dst_bytes}, {"srcTensor", src_bytes}, {"gradTensor", gradients}});
    if constexpr (kIs950) return softmax_grad_in_registers(call, front, dst, grad, src, rows);
    const RowSteps steps(call.site());
    for_each_tile(rows, [&](uint32_t first_row, uint32_t tile_rows) {
        const uint32_t elements = tile_rows * rows.pitch, offset = first_row * rows.pitch;
        Floats x = tile.matrices[1], g = tile.matrices[2], sums = tile.blocks[0];
        const Floats& product = tile.matrices[0];
        if constexpr (Tile::kIsHalf) {
            steps.cast(x, src[offset], elements);
            steps.cast(g, grad[offset], elements);
        } else {
            x = src[offset];
            g = grad[offset];
            if (front) sums = dst[first_row * kBlockElements];
        }
        steps.mul(product, g, x, elements);
        steps.template reduce<false>(sums, product, tile_rows, rows.columns, rows.pitch, kBlockElements, tile.fold_tmp);
        if (front) {
            if constexpr (Tile::kIsHalf) steps.cast(dst[first_row * kBlockElements], sums, tile_rows * kBlockElements);
            return;
        }
        steps.sub_blocks(product, g, sums, tile_rows, rows.pitch, kBlockElements);
        if constexpr (Tile::kIsHalf) {
            steps.mul(product, product, x, elements);
            steps.cast(dst[offset], product, elements);
        } else {
            steps.mul(dst[offset], product, x, elements);
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
void SoftmaxFlashCall(const ascend_sim::FlashOperands<T, S>& operands, const LocalTensor<uint8_t>* tmp,
                      const SoftMaxTiling& tiling, bool isUpdate, const SoftMaxShapeInfo& info, ascend_sim::Site site) {
    const ascend_sim::Call call("SoftmaxFlash", site);
    if (isUpdate)
        ascend_sim::softmax_flash<false, true, SOFTMAX_DEFAULT_CFG>(call, operands, tmp, tiling, info, false);
    else
        ascend_sim::softmax<false, SOFTMAX_DEFAULT_CFG>(call, operands.dst, &operands.sum, &operands.max, operands.src,
                                                        tmp, tiling, info);
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
