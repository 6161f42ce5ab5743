// The split of work among cores, and integer arithmetic, for all tilings.
#pragma once

#include <algorithm>
#include <cstdint>

#include "op_host/tile_preferences.h"

namespace npu_rope {

constexpr int64_t kUbBlockBytes = 32;        // alignment of DMAs and vector operands, in bytes
constexpr int64_t kUbBankPeriodBytes = 512;  // period of UB's bank groups, in bytes

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }
// Returns an offset for an operand that follows `bytes` bytes of another operand. The two begin half the bank groups
// apart, to avoid bank conflicts.
inline int64_t conflict_free_offset(int64_t bytes) {
    return round_up(bytes, kUbBankPeriodBytes) + kUbBankPeriodBytes / 2;
}
inline int32_t to_int32(int64_t n) { return static_cast<int32_t>(n); }

// Preferred bytes of a tile, for a core with this share of the work.
inline int64_t target_tile_bytes(int64_t rows, int64_t heads, int64_t head_bytes) {
    const TilePreferences& p = tile_preferences();
    const double share = static_cast<double>(rows) * static_cast<double>(heads * head_bytes);
    return static_cast<int64_t>(std::clamp(share / static_cast<double>(p.tiles_per_core),
                                           static_cast<double>(p.min_tile_bytes), static_cast<double>(p.tile_bytes)));
}

struct WorkSplit {
    int64_t row_parts = 1, head_parts = 1;
};

// Splits the heads of token rows among as many cores as their bytes justify, with the least work for the busiest core:
// the rows into row_parts parts, the heads of each row into head_parts parts. rows: the number of token rows. granule:
// this number of consecutive rows is not split. min_heads: the fewest heads of a part. token_cost: the cost of a token
// in addition to its heads, as a number of heads.
inline WorkSplit split_work(int64_t rows, int64_t granule, int64_t heads, int64_t head_bytes, int64_t cores,
                            int64_t min_heads, int64_t token_cost) {
    const double bytes = static_cast<double>(rows) * static_cast<double>(heads) * static_cast<double>(head_bytes);
    const auto min_bytes = static_cast<double>(tile_preferences().min_core_bytes);
    const auto parts = static_cast<int64_t>(std::clamp(bytes / min_bytes, 1.0, static_cast<double>(cores)));
    const int64_t max_head_parts = std::max<int64_t>(1, std::min(parts, heads / min_heads));
    WorkSplit best;
    const int64_t groups = ceil_div(rows, granule);
    double min_work = 0;
    for (int64_t head_parts = 1; head_parts <= max_head_parts; ++head_parts) {
        int64_t row_parts = std::min(groups, parts / head_parts);
        double work = static_cast<double>(ceil_div(groups, row_parts) * granule) *
                      static_cast<double>(ceil_div(heads, head_parts) + token_cost);
        if (head_parts > 1 && work >= min_work) continue;
        min_work = work;
        best = {row_parts, head_parts};
    }
    return best;
}

}  // namespace npu_rope
