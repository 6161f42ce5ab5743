// aclnnFusedInferAttentionScore and its versions V2 and V3, without quantization, paged keys, prefixes, left padding
// and rope. Sources: hicann/ops-transformer attention/fused_infer_attention_score/docs.
#include <cstring>

#include "cann/opapi/fused_infer_attention.h"

namespace simulated_cann {
namespace {

// An optional argument that CANN has and the stand-in lacks.
struct UnsimulatedOption {
    const void* value;
    const char* name;
};

aclError prepare_attention(const char* function, std::initializer_list<UnsimulatedOption> options,
                           const AttentionArguments& given, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call(function);
    for (const UnsimulatedOption& option : options) call.refuse_unsimulated(option.value != nullptr, option.name);
    return finish_attention(&call, given, bytes, executor);
}

// Returns the layout if only V3 has it, otherwise NULL. Layouts of V3 alone have the tokens of all batches in one
// dimension (T), or heads as the first dimension of the output (NBSD).
const char* layout_of_v3(const char* layout) {
    return layout && (std::strchr(layout, 'T') || std::strstr(layout, "_NBSD")) ? layout : nullptr;
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnFusedInferAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize, int64_t numHeads,
    double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
    int64_t sparseMode, int64_t innerPrecise, int64_t /*blockSize*/, int64_t antiquantMode, bool softmaxLseFlag,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* bytes, aclOpExecutor** executor) {
    const simulated_cann::AntiquantModes modes{antiquantMode, 0, 0};
    return simulated_cann::prepare_attention(
        "aclnnFusedInferAttentionScore",
        {{deqScale1, "deqScale1"},
         {quantScale1, "quantScale1"},
         {deqScale2, "deqScale2"},
         {quantScale2, "quantScale2"},
         {quantOffset2, "quantOffset2"},
         {antiquantScale, "antiquantScale"},
         {antiquantOffset, "antiquantOffset"},
         {blockTable, "blockTable"},
         {queryPaddingSize, "queryPaddingSize"},
         {kvPaddingSize, "kvPaddingSize"}},
        {query, pseShift, attenMask, attentionOut, softmaxLse, key, value, actualSeqLengths, actualSeqLengthsKv,
         numHeads, numKeyValueHeads, preTokens, nextTokens, sparseMode, innerPrecise, modes, scaleValue, inputLayout,
         softmaxLseFlag},
        bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnFusedInferAttentionScore)

NPU_CANN_API aclError aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShiftOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* actualSeqLengthsOptional,
    const aclIntArray* actualSeqLengthsKvOptional, const aclTensor* deqScale1Optional,
    const aclTensor* quantScale1Optional, const aclTensor* deqScale2Optional, const aclTensor* quantScale2Optional,
    const aclTensor* quantOffset2Optional, const aclTensor* antiquantScaleOptional,
    const aclTensor* antiquantOffsetOptional, const aclTensor* blockTableOptional,
    const aclTensor* queryPaddingSizeOptional, const aclTensor* kvPaddingSizeOptional,
    const aclTensor* keyAntiquantScaleOptional, const aclTensor* keyAntiquantOffsetOptional,
    const aclTensor* valueAntiquantScaleOptional, const aclTensor* valueAntiquantOffsetOptional,
    const aclTensor* keySharedPrefixOptional, const aclTensor* valueSharedPrefixOptional,
    const aclIntArray* actualSharedPrefixLenOptional, int64_t numHeads, double scaleValue, int64_t preTokens,
    int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
    int64_t /*blockSize*/, int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode,
    int64_t valueAntiquantMode, const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* bytes,
    aclOpExecutor** executor) {
    const simulated_cann::AntiquantModes modes{antiquantMode, keyAntiquantMode, valueAntiquantMode};
    return simulated_cann::prepare_attention(
        "aclnnFusedInferAttentionScoreV2",
        {{deqScale1Optional, "deqScale1"},
         {quantScale1Optional, "quantScale1"},
         {deqScale2Optional, "deqScale2"},
         {quantScale2Optional, "quantScale2"},
         {quantOffset2Optional, "quantOffset2"},
         {antiquantScaleOptional, "antiquantScale"},
         {antiquantOffsetOptional, "antiquantOffset"},
         {blockTableOptional, "blockTable"},
         {queryPaddingSizeOptional, "queryPaddingSize"},
         {kvPaddingSizeOptional, "kvPaddingSize"},
         {keyAntiquantScaleOptional, "keyAntiquantScale"},
         {keyAntiquantOffsetOptional, "keyAntiquantOffset"},
         {valueAntiquantScaleOptional, "valueAntiquantScale"},
         {valueAntiquantOffsetOptional, "valueAntiquantOffset"},
         {keySharedPrefixOptional, "keySharedPrefix"},
         {valueSharedPrefixOptional, "valueSharedPrefix"},
         {actualSharedPrefixLenOptional, "actualSharedPrefixLen"}},
        {query, pseShiftOptional, attenMaskOptional, attentionOut, softmaxLse, key, value, actualSeqLengthsOptional,
         actualSeqLengthsKvOptional, numHeads, numKeyValueHeads, preTokens, nextTokens, sparseMode, innerPrecise, modes,
         scaleValue, inputLayout, softmaxLseFlag},
        bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnFusedInferAttentionScoreV2)

NPU_CANN_API aclError aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShiftOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* actualSeqLengthsOptional,
    const aclIntArray* actualSeqLengthsKvOptional, const aclTensor* deqScale1Optional,
    const aclTensor* quantScale1Optional, const aclTensor* deqScale2Optional, const aclTensor* quantScale2Optional,
    const aclTensor* quantOffset2Optional, const aclTensor* antiquantScaleOptional,
    const aclTensor* antiquantOffsetOptional, const aclTensor* blockTableOptional,
    const aclTensor* queryPaddingSizeOptional, const aclTensor* kvPaddingSizeOptional,
    const aclTensor* keyAntiquantScaleOptional, const aclTensor* keyAntiquantOffsetOptional,
    const aclTensor* valueAntiquantScaleOptional, const aclTensor* valueAntiquantOffsetOptional,
    const aclTensor* keySharedPrefixOptional, const aclTensor* valueSharedPrefixOptional,
    const aclIntArray* actualSharedPrefixLenOptional, const aclTensor* queryRopeOptional,
    const aclTensor* keyRopeOptional, const aclTensor* keyRopeAntiquantScaleOptional, int64_t numHeads,
    double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
    int64_t sparseMode, int64_t innerPrecise, int64_t /*blockSize*/, int64_t antiquantMode, bool softmaxLseFlag,
    int64_t keyAntiquantMode, int64_t valueAntiquantMode, const aclTensor* attentionOut, const aclTensor* softmaxLse,
    uint64_t* bytes, aclOpExecutor** executor) {
    const simulated_cann::AntiquantModes modes{antiquantMode, keyAntiquantMode, valueAntiquantMode};
    return simulated_cann::prepare_attention(
        "aclnnFusedInferAttentionScoreV3",
        {{deqScale1Optional, "deqScale1"},
         {quantScale1Optional, "quantScale1"},
         {deqScale2Optional, "deqScale2"},
         {quantScale2Optional, "quantScale2"},
         {quantOffset2Optional, "quantOffset2"},
         {antiquantScaleOptional, "antiquantScale"},
         {antiquantOffsetOptional, "antiquantOffset"},
         {blockTableOptional, "blockTable"},
         {queryPaddingSizeOptional, "queryPaddingSize"},
         {kvPaddingSizeOptional, "kvPaddingSize"},
         {keyAntiquantScaleOptional, "keyAntiquantScale"},
         {keyAntiquantOffsetOptional, "keyAntiquantOffset"},
         {valueAntiquantScaleOptional, "valueAntiquantScale"},
         {valueAntiquantOffsetOptional, "valueAntiquantOffset"},
         {keySharedPrefixOptional, "keySharedPrefix"},
         {valueSharedPrefixOptional, "valueSharedPrefix"},
         {actualSharedPrefixLenOptional, "actualSharedPrefixLen"},
         {queryRopeOptional, "queryRope"},
         {keyRopeOptional, "keyRope"},
         {keyRopeAntiquantScaleOptional, "keyRopeAntiquantScale"},
         {simulated_cann::layout_of_v3(inputLayout), "an inputLayout with T or NBSD"}},
        {query, pseShiftOptional, attenMaskOptional, attentionOut, softmaxLse, key, value, actualSeqLengthsOptional,
         actualSeqLengthsKvOptional, numHeads, numKeyValueHeads, preTokens, nextTokens, sparseMode, innerPrecise, modes,
         scaleValue, inputLayout, softmaxLseFlag},
        bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnFusedInferAttentionScoreV3)
