// Attention of many heads: softmax(query @ key^T * scale + pse, masked) @ value, in blocks of keys with a running
// maximum as in FlashAttention. The scores, the exponents and the sums are float32; the exponents are rounded to the
// type of value before they are multiplied with it; the result is rounded once. In the high-performance mode of
// float16, the scores are rounded to float16.
#pragma once

#include <optional>

#include "cann/opapi/elements.h"

namespace simulated_cann {

// Which keys a query sees, apart from a mask.
struct AttentionBand {
    // Key j is visible to query i if i + first <= j <= i + last.
    int64_t first = INT32_MIN, last = INT32_MAX;
};

struct Attention {
    Operand query, key, value, out;  // [batch, heads, tokens, head size]
    // [batch or 1, heads, tokens or more, keys or more], added to the scaled scores.
    std::optional<Operand> pse;
    // [batch or 1, tokens or more, keys or more] of bytes: 1 hides a key.
    std::optional<Operand> mask;
    std::optional<Operand> lse;  // [batch, heads, tokens, 1]: logarithm of the sum of exponents
    // Number of valid tokens and keys of each batch. Results of the other tokens are zero.
    std::vector<int64_t> query_lengths, key_lengths;
    std::vector<AttentionBand> bands;  // of each batch
    float scale = 1;
    bool is_high_performance = false;
    // A query that sees no key gets zeros. Otherwise it gets the mean of all values.
    bool zeroes_blind_queries = false;
};

void run_attention(const Attention& attention);

}  // namespace simulated_cann
