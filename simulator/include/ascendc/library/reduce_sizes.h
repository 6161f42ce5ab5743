// Sizes of the temporary memory of Sum, of Mean and of the reductions of two-dimensional data. Like tmp_sizes.h, plain
// C++ for host and kernel.
//
// Source: the pages GetReduceSumMaxMinTmpSize, GetReduceMaxMaxMinTmpSize and so on, GetSumMaxMinTmpSize,
// GetMeanMaxMinTmpSize. The figures are those of asc-devkit's impl/adv_api/tiling/reduce.
#pragma once

#include "tmp_sizes.h"

namespace AscendC {

// R: an axis that is reduced. A: an axis that stays.
enum class ReducePattern : uint32_t {
    AR,
    RA,
    R,
    ARA,
    ARAR,
    ARARA,
    ARARAR,
    ARARARA,
    ARARARAR,
    ARARARARA,
    RAR,
    RARA,
    RARAR,
    RARARA,
    RARARAR,
    RARARARA
};

}  // namespace AscendC

namespace ascend_sim {

enum class Fold : uint8_t { Sum, Mean, Max, Min, Prod, Any, All };

// Returns the largest power of two that is at most n.
constexpr uint32_t largest_power_of_two(uint32_t n) {
    uint32_t power = 1;
    while (n > 1) power *= 2, n /= 2;
    return power;
}
constexpr TmpSizes same_sizes(uint32_t bytes) { return {bytes, bytes}; }

// by_row: pattern AR, else RA. The shape is [first, last].
constexpr TmpSizes pattern_sizes(Fold fold, bool by_row, uint32_t first, uint32_t last, uint32_t type_bytes,
                                 bool reuse) {
    constexpr uint32_t kRepeat = 256, kBlock = 32;
    const bool is_sum = fold == Fold::Sum || fold == Fold::Mean, is_prod = fold == Fold::Prod;
    const uint32_t elements_per_block = kBlock / type_bytes;
    if ((fold == Fold::Any || fold == Fold::All) && type_bytes == 1 && by_row)
        return same_sizes(round_up(last, kBlock) * 2 + first * kBlock);
    if (reuse) return same_sizes(is_prod && by_row ? kRepeat : 0);
    if (!by_row) {
        uint32_t rows = largest_power_of_two(first);
        if (rows == first && first > 1) rows /= 2;
        return same_sizes(rows * round_up(last * type_bytes, kBlock));
    }
    if (is_sum || is_prod) {
        uint32_t lanes = largest_power_of_two(last);
        if (lanes == last && first > 1) lanes /= 2;
        if (is_prod)
            return same_sizes(
                ((lanes > elements_per_block ? lanes : elements_per_block) + first * elements_per_block) * 4 + kRepeat);
        return same_sizes(last <= kRepeat / 4 ? 0 : first * lanes * 4);
    }
    if (last <= elements_per_block) return same_sizes(0);
    return same_sizes(first * (last < kRepeat / type_bytes ? kBlock : kRepeat));
}

constexpr TmpSizes sum_sizes(uint32_t n, uint32_t type_bytes) {
    const uint32_t elements_per_repeat = 256 / type_bytes, elements_per_block = 32 / type_bytes;
    return same_sizes(round_up((n + elements_per_repeat - 1) / elements_per_repeat, elements_per_block) * type_bytes);
}
constexpr TmpSizes mean_sizes(uint32_t n, uint32_t type_bytes, uint32_t sum_bytes) {
    const bool widens = type_bytes == 2 && sum_bytes == 4;
    const uint32_t elements_per_repeat = 256 / (widens ? 4 : type_bytes);
    return same_sizes(round_up((n + elements_per_repeat - 1) / elements_per_repeat, 32) +
                      (widens ? round_up(n * type_bytes, 32) / type_bytes * 4 : 0));
}

}  // namespace ascend_sim
