// Attention of many heads: softmax(query @ key^T * scale + pse, masked) @ value, in blocks of keys with a running
// maximum as in FlashAttention. The scores, their exponentials and the sums are float32. The exponentials are rounded
// to the type of value before they are multiplied by it. The result is rounded once. In the high-performance mode of
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
    // Position encodings that are added to the scaled scores: [batch or 1, heads, tokens or more, keys or more].
    std::optional<Operand> pse;
    // [batch or 1, tokens or more, keys or more] of bytes: 1 hides a key.
    std::optional<Operand> mask;
    std::optional<Operand> lse;  // [batch, heads, tokens, 1]: logarithm of the sum of exponentials
    // Numbers of valid tokens and keys in each batch. The results for the other tokens are zero.
    std::vector<int64_t> query_lengths, key_lengths;
    std::vector<AttentionBand> bands;  // one for each batch
    float scale = 1;
    bool is_high_performance = false;
    // If true, a query that sees no key gets zeros. If false, it gets the mean of all values, or zeros if its band
    // contains no key.
    bool zeroes_blind_queries = false;
};

void run_attention(const Attention& attention);

}  // namespace simulated_cann
