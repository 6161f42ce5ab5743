// How tilings cut work among cores, and the integer arithmetic they share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace npu_rope {

constexpr int64_t kUbBlock = 32;               // bytes a DMA and a vector operand are aligned to
constexpr int64_t kUbBankGroups = 512;         // bytes after which UB's bank groups come again
constexpr int64_t kTileBytes = 16 * 1024;      // a burst that uses the memory's bandwidth
constexpr int64_t kLeastTileBytes = 4 * 1024;  // smaller ones only where nothing else fits
constexpr int64_t kLeastCoreBytes = 1024;      // of x: less is not worth a core
constexpr int64_t kTilesPerCore = 4;           // so that copies and vectors overlap in short calls, too

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }
inline int32_t i32(int64_t n) { return static_cast<int32_t>(n); }

struct WorkSplit {
    int64_t row_parts = 1, head_parts = 1;
};

// How many cores `bytes` of x are worth.
inline int64_t worthwhile_cores(double bytes, int64_t cores) {
    return static_cast<int64_t>(std::max(1.0, std::min(static_cast<double>(cores), bytes / kLeastCoreBytes)));
}

// Token rows x heads for up to `parts` cores, granules of rows staying together: the split whose busiest core has
// the least to do. What a token costs beside its heads counts as `token_heads` of them.
inline WorkSplit split_work(int64_t rows, int64_t granule, int64_t heads, int64_t parts, int64_t most_head_parts,
                            int64_t token_heads) {
    WorkSplit best;
    const int64_t groups = ceil_div(rows, granule);
    double least = 0;
    for (int64_t head_parts = 1; head_parts <= most_head_parts; ++head_parts) {
        int64_t row_parts = std::min(groups, parts / head_parts);
        double work = static_cast<double>(ceil_div(groups, row_parts) * granule) *
                      static_cast<double>(ceil_div(heads, head_parts) + token_heads);
        if (head_parts > 1 && work >= least) continue;
        least = work;
        best = {row_parts, head_parts};
    }
    return best;
}

}  // namespace npu_rope
