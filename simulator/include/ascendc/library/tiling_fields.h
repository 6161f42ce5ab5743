// The fields of the library functions' tiling structs, for the kernel's plain structs and the host's classes, whose
// layouts must be equal. Plain C++.
//
// Source: CANN's kernel_tiling/kernel_tiling.h.
#pragma once

// clang-format off
#define ASCEND_SIM_SOFT_MAX_TILING(FIELD) \
    FIELD(uint32_t, srcM) FIELD(uint32_t, srcK) FIELD(uint32_t, srcSize) FIELD(uint32_t, outMaxM) \
    FIELD(uint32_t, outMaxK) FIELD(uint32_t, outMaxSize) FIELD(uint32_t, splitM) FIELD(uint32_t, splitK) \
    FIELD(uint32_t, splitSize) FIELD(uint32_t, reduceM) FIELD(uint32_t, reduceK) FIELD(uint32_t, reduceSize) \
    FIELD(uint32_t, rangeM) FIELD(uint32_t, tailM) FIELD(uint32_t, tailSplitSize) FIELD(uint32_t, tailReduceSize)
#define ASCEND_SIM_BATCH_NORM_TILING(FIELD) \
    FIELD(uint32_t, originalBLength) FIELD(uint32_t, meanVarSize) FIELD(uint32_t, meanTmpTensorPos) \
    FIELD(uint32_t, varianceTmpTensorPos) FIELD(uint32_t, tmpBufSize) FIELD(uint32_t, oneTmpSize) \
    FIELD(uint32_t, firstTmpStartPos) FIELD(uint32_t, secondTmpStartPos) FIELD(uint32_t, thirdTmpStartPos) \
    FIELD(uint32_t, loopRound) FIELD(uint32_t, inputTailSize) FIELD(uint32_t, inputTailPos) \
    FIELD(uint32_t, meanVarTailSize) FIELD(uint32_t, meanVarTailPos) FIELD(uint32_t, bshCurLength) \
    FIELD(uint32_t, shCurLength) FIELD(float, firstDimValueBack) FIELD(uint32_t, castHalfRepStride) \
    FIELD(uint32_t, shCurLengthBlockNum) FIELD(uint32_t, castHalfOutRepStride)
#define ASCEND_SIM_DEEP_NORM_TILING(FIELD) \
    FIELD(uint32_t, bLength) FIELD(uint32_t, sLength) FIELD(uint32_t, hLength) FIELD(uint32_t, originalHLength) \
    FIELD(uint32_t, inputXSize) FIELD(uint32_t, meanVarSize) FIELD(uint32_t, numberOfTmpBuf) \
    FIELD(uint32_t, meanTmpTensorPos) FIELD(uint32_t, meanTmpTensorSize) FIELD(uint32_t, varianceTmpTensorPos) \
    FIELD(uint32_t, varianceTmpTensorSize) FIELD(uint32_t, tmpBufSize) FIELD(uint32_t, oneTmpSize) \
    FIELD(uint32_t, firstTmpStartPos) FIELD(uint32_t, secondTmpStartPos) FIELD(uint32_t, thirdTmpStartPos) \
    FIELD(uint32_t, loopRound) FIELD(uint32_t, inputRoundSize) FIELD(uint32_t, inputTailSize) \
    FIELD(uint32_t, inputTailPos) FIELD(uint32_t, meanVarRoundSize) FIELD(uint32_t, meanVarTailSize) \
    FIELD(uint32_t, meanVarTailPos) FIELD(uint32_t, bshCurLength) FIELD(uint32_t, bsCurLength) \
    FIELD(float, lastDimValueBack)
#define ASCEND_SIM_GROUP_NORM_TILING(FIELD) \
    FIELD(uint32_t, n) FIELD(uint32_t, c) FIELD(uint32_t, hw) FIELD(uint32_t, g) FIELD(uint32_t, d) \
    FIELD(uint32_t, hwAlignSize) FIELD(uint32_t, dhwAlignSize) FIELD(uint32_t, inputXSize) \
    FIELD(uint32_t, meanVarSize) FIELD(uint32_t, numberOfTmpBuf) FIELD(uint32_t, meanTmpTensorPos) \
    FIELD(uint32_t, meanTmpTensorSize) FIELD(uint32_t, varianceTmpTensorPos) FIELD(uint32_t, varianceTmpTensorSize) \
    FIELD(uint32_t, tmpBufSize) FIELD(uint32_t, oneTmpSize) FIELD(uint32_t, firstTmpStartPos) \
    FIELD(uint32_t, secondTmpStartPos) FIELD(uint32_t, thirdTmpStartPos) FIELD(uint32_t, loopRound) \
    FIELD(uint32_t, inputRoundSize) FIELD(uint32_t, inputTailSize) FIELD(uint32_t, inputTailPos) \
    FIELD(uint32_t, meanVarRoundSize) FIELD(uint32_t, meanVarTailSize) FIELD(uint32_t, meanVarTailPos) \
    FIELD(uint32_t, bshCurLength) FIELD(uint32_t, bsCurLength) FIELD(float, factor) FIELD(bool, smallShape)
#define ASCEND_SIM_LAYER_NORM_GRAD_BETA_TILING(FIELD) \
    FIELD(uint32_t, stackBufferSize) FIELD(uint32_t, bLength) FIELD(uint32_t, sLength) FIELD(uint32_t, hLength) \
    FIELD(uint32_t, originalHLength) FIELD(uint32_t, bshLength) FIELD(uint32_t, bsLength) FIELD(uint32_t, oneCalSize) \
    FIELD(uint32_t, numberOfTmpBuf) FIELD(uint32_t, loopRound) FIELD(uint32_t, inputTailSize) \
    FIELD(uint32_t, inputTailPos) FIELD(uint32_t, bsTailSize) FIELD(uint32_t, bshCurLength) \
    FIELD(uint32_t, bsCurLength) FIELD(uint32_t, gammaTempTensorPos) FIELD(uint32_t, betaTempTensorPos) \
    FIELD(uint32_t, inputDyTmpTensorPos) FIELD(uint32_t, resForGammaTmpTensorPos) FIELD(uint32_t, reserved)
#define ASCEND_SIM_LAYER_NORM_GRAD_TILING(FIELD) \
    FIELD(uint32_t, stackBufferSize) FIELD(uint32_t, bLength) FIELD(uint32_t, sLength) FIELD(uint32_t, hLength) \
    FIELD(uint32_t, originalHLength) FIELD(uint32_t, oneCalSize) FIELD(uint32_t, nohCalSize) FIELD(uint32_t, loopNum) \
    FIELD(uint32_t, tailSize) FIELD(uint32_t, nohTailSize) FIELD(uint32_t, tmpTensorBSHPos) \
    FIELD(uint32_t, tmpTensorBSHSize) FIELD(uint32_t, pdVarTensorPos) FIELD(uint32_t, pdVarTensorSize) \
    FIELD(uint32_t, pdMeanTensorPos) FIELD(uint32_t, pdMeanTensorSize) FIELD(uint32_t, x1TensorPos) \
    FIELD(uint32_t, x1TensorSize) FIELD(uint32_t, x2TensorPos) FIELD(uint32_t, x2TensorSize) \
    FIELD(uint32_t, x3TensorPos) FIELD(uint32_t, x3TensorSize) FIELD(uint32_t, tmpTensorPos) \
    FIELD(uint32_t, tmpTensorSize) FIELD(uint32_t, tmpTensor1Pos) FIELD(uint32_t, tmpTensor1Size) \
    FIELD(uint32_t, tmpTensor2Pos) FIELD(uint32_t, tmpTensor2Size) FIELD(uint32_t, lastDimValueBack) \
    FIELD(uint32_t, lastDimValueBackMulTwo)
#define ASCEND_SIM_LAYER_NORM_SEPARATE_TILING(FIELD) \
    FIELD(uint32_t, aLength) FIELD(uint32_t, rLength) FIELD(uint32_t, halfAddRepeatTimes) \
    FIELD(uint32_t, rHeadLength) FIELD(float, k2Rec) FIELD(float, k2RRec) FIELD(uint32_t, inputXSize) \
    FIELD(uint32_t, meanVarSize) FIELD(uint32_t, numberOfTmpBuf) FIELD(uint32_t, varianceTmpTensorPos) \
    FIELD(uint32_t, varianceTmpTensorSize) FIELD(uint32_t, tmpBufSize) FIELD(uint32_t, oneTmpSize) \
    FIELD(uint32_t, firstTmpStartPos) FIELD(uint32_t, secondTmpStartPos) FIELD(uint32_t, thirdTmpStartPos) \
    FIELD(uint32_t, loopRound) FIELD(uint32_t, inputRoundSize) FIELD(uint32_t, inputTailSize) \
    FIELD(uint32_t, inputTailPos) FIELD(uint32_t, meanVarRoundSize) FIELD(uint32_t, meanVarTailSize) \
    FIELD(uint32_t, meanVarTailPos) FIELD(uint32_t, arCurLength) FIELD(uint32_t, aCurLength) FIELD(float, rValueBack)
#define ASCEND_SIM_RMS_NORM_TILING(FIELD) \
    FIELD(uint32_t, bLength) FIELD(uint32_t, sLength) FIELD(uint32_t, hLength) FIELD(uint32_t, originalHLength) \
    FIELD(float, reciprocalOfHLength) FIELD(uint32_t, mainBshLength) FIELD(uint32_t, mainBsLength) \
    FIELD(uint32_t, mainBsLengthAlign) FIELD(uint32_t, loopRound) FIELD(uint32_t, inputTailPos) \
    FIELD(uint32_t, tailBshLength) FIELD(uint32_t, tailBsLength)
#define ASCEND_SIM_UN_PAD_TILING(FIELD) \
    FIELD(uint32_t, srcHeight) FIELD(uint32_t, srcWidth) FIELD(uint32_t, tmpBuffer1BlockNum) \
    FIELD(uint32_t, tmpBuffer1RowNum) FIELD(uint32_t, tmpBuffer2Offset) FIELD(uint32_t, widthTiling) \
    FIELD(uint32_t, widthFractal) FIELD(uint32_t, widthFractalTail)
#define ASCEND_SIM_PAD_TILING(FIELD) \
    FIELD(uint32_t, srcHeight) FIELD(uint32_t, srcWidth) FIELD(uint32_t, srcOriWidth) \
    FIELD(uint32_t, widthWithoutLastBlock) FIELD(uint32_t, blocksPerRow) FIELD(uint32_t, heightTiling) \
    FIELD(uint32_t, heightFractal) FIELD(uint32_t, heightFractalTail) FIELD(uint32_t, mainLoopOffset) \
    FIELD(uint32_t, tailBlockOffset) FIELD(uint32_t, tmpBuffer1BlockNum) FIELD(uint32_t, tmpBuffer1RowNum) \
    FIELD(uint32_t, tmpBuffer2Offset) FIELD(uint32_t, widthTiling) FIELD(uint32_t, widthFractal) \
    FIELD(uint32_t, widthFractalTail) FIELD(uint32_t, widthFractalTailAlingned) FIELD(uint32_t, brcbTiling) \
    FIELD(uint32_t, brcbFractal) FIELD(uint32_t, brcbFractalTail) FIELD(uint32_t, maxRepeatTimes) \
    FIELD(uint32_t, brcbTilingRepeatTimes) FIELD(uint32_t, brcbTilingRepeatTimesTail) \
    FIELD(uint32_t, brcbFractalTailRepeatTimes) FIELD(uint32_t, brcbFractalTailRepeatTimesTail) \
    FIELD(uint32_t, reserved)
#define ASCEND_SIM_TOPK_TILING(FIELD) \
    FIELD(int32_t, tmpLocalSize) FIELD(int32_t, allDataSize) FIELD(int32_t, innerDataSize) \
    FIELD(uint32_t, sortRepeat) FIELD(int32_t, mrgSortRepeat) FIELD(int32_t, kAlignFourBytes) \
    FIELD(int32_t, kAlignTwoBytes) FIELD(int32_t, maskOffset) FIELD(int32_t, maskVreducev2FourBytes) \
    FIELD(int32_t, maskVreducev2TwoBytes) FIELD(int32_t, mrgSortSrc1offset) FIELD(int32_t, mrgSortSrc2offset) \
    FIELD(int32_t, mrgSortSrc3offset) FIELD(int32_t, mrgSortTwoQueueSrc1Offset) FIELD(int32_t, mrgFourQueueTailPara1) \
    FIELD(int32_t, mrgFourQueueTailPara2) FIELD(int32_t, srcIndexOffset) FIELD(uint32_t, copyUbToUbBlockCount) \
    FIELD(int32_t, topkMrgSrc1MaskSizeOffset) FIELD(int32_t, topkNSmallSrcIndexOffset) \
    FIELD(uint32_t, vreduceValMask0) FIELD(uint32_t, vreduceValMask1) FIELD(uint32_t, vreduceIdxMask0) \
    FIELD(uint32_t, vreduceIdxMask1) FIELD(uint16_t, vreducehalfValMask0) FIELD(uint16_t, vreducehalfValMask1) \
    FIELD(uint16_t, vreducehalfValMask2) FIELD(uint16_t, vreducehalfValMask3) FIELD(uint16_t, vreducehalfValMask4) \
    FIELD(uint16_t, vreducehalfValMask5) FIELD(uint16_t, vreducehalfValMask6) FIELD(uint16_t, vreducehalfValMask7)
#define ASCEND_SIM_CONFUSION_TRANSPOSE_TILING(FIELD) \
    FIELD(uint32_t, param0) FIELD(uint32_t, param1) FIELD(uint32_t, param2) FIELD(uint32_t, param3) \
    FIELD(uint32_t, param4) FIELD(uint32_t, param5) FIELD(uint32_t, param6) FIELD(uint32_t, param7) \
    FIELD(uint32_t, param8) FIELD(uint32_t, param9) FIELD(uint32_t, param10) FIELD(uint32_t, param11) \
    FIELD(uint32_t, param12) FIELD(uint32_t, param13) FIELD(uint32_t, param14) FIELD(uint32_t, param15) \
    FIELD(uint32_t, param16) FIELD(uint32_t, param17)

// STRUCT(name, fields)
#define ASCEND_SIM_TILING_STRUCTS(STRUCT) \
    STRUCT(LogSoftMaxTiling, ASCEND_SIM_SOFT_MAX_TILING) \
    STRUCT(SoftMaxTiling, ASCEND_SIM_SOFT_MAX_TILING) \
    STRUCT(BatchNormTiling, ASCEND_SIM_BATCH_NORM_TILING) \
    STRUCT(DeepNormTiling, ASCEND_SIM_DEEP_NORM_TILING) \
    STRUCT(GroupNormTiling, ASCEND_SIM_GROUP_NORM_TILING) \
    STRUCT(LayerNormGradBetaTiling, ASCEND_SIM_LAYER_NORM_GRAD_BETA_TILING) \
    STRUCT(LayerNormGradTiling, ASCEND_SIM_LAYER_NORM_GRAD_TILING) \
    STRUCT(LayerNormTiling, ASCEND_SIM_DEEP_NORM_TILING) \
    STRUCT(LayerNormSeparateTiling, ASCEND_SIM_LAYER_NORM_SEPARATE_TILING) \
    STRUCT(RmsNormTiling, ASCEND_SIM_RMS_NORM_TILING) \
    STRUCT(UnPadTiling, ASCEND_SIM_UN_PAD_TILING) \
    STRUCT(PadTiling, ASCEND_SIM_PAD_TILING) \
    STRUCT(TopkTiling, ASCEND_SIM_TOPK_TILING) \
    STRUCT(ConfusionTransposeTiling, ASCEND_SIM_CONFUSION_TRANSPOSE_TILING)
// clang-format on
