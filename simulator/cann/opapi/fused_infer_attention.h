// The part that the versions of aclnnFusedInferAttentionScore share.
#pragma once

#include "cann/opapi/first_phase.h"

namespace simulated_cann {

struct AntiquantModes {
    int64_t both = 0, key = 0, value = 0;
};

struct AttentionArguments {
    const aclTensor *query = nullptr, *pse = nullptr, *mask = nullptr, *out = nullptr, *lse = nullptr;
    const aclTensorList *key = nullptr, *value = nullptr;
    const aclIntArray *query_lengths = nullptr, *key_lengths = nullptr;
    int64_t heads = 0, key_heads = 0, previous_tokens = 0, next_tokens = 0, sparse_mode = 0, inner_precise = 0;
    AntiquantModes antiquant;
    double scale = 1;
    const char* layout = nullptr;
    bool has_lse = false;
};

// Checks the arguments and ends the first phase.
aclError finish_attention(FirstPhase* call, const AttentionArguments& given, uint64_t* bytes, aclOpExecutor** executor);

}  // namespace simulated_cann
